"""S3-compatible stores that ignore the condition of a write: refused by name, before a commit can be lost to one."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import alluvia
from alluvia.api.lake import Lake
from alluvia.errors import StoreRefused, Unavailable
from alluvia.store.s3.s3_conditions import PROOF_KEY, RACES, is_aws
from tests.s3server import S3Server

ALWAYS = 1_000_000


class Place:
    """A lake of its own, at one of two addresses of the server: a process proves what it writes to at each."""

    def __init__(self, server: S3Server) -> None:
        self.server, self.bucket = server, server.new_bucket()

    def lake(self, host: str = "127.0.0.1") -> Lake:
        options = {**self.server.options, "endpoint_url": self.server.endpoint_url.replace("127.0.0.1", host)}
        return alluvia.connect(f"s3://{self.bucket}/lake", **options)

    def ignore(self, header: str, match: str = "") -> None:
        self.fault("PUT", f"unconditional:{header}", match)

    def fault(self, method: str, fault: str, match: str = "", times: int = ALWAYS) -> None:
        self.server.inject({"method": method, "match": f"{self.bucket}.*{match}", "fault": fault, "times": times})

    def keys(self) -> list[str]:
        found = self.server.client.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return [each["Key"].removeprefix("lake/") for each in found]


@pytest.fixture
def place(s3_server: S3Server) -> Iterator[Place]:
    yield Place(s3_server)
    s3_server.inject()


def rows(lake: Lake) -> list[int]:
    return sorted(lake.table("t").to_arrow()["x"].to_pylist())


def test_a_lake_is_not_begun_on_a_store_that_ignores_if_none_match(place: Place) -> None:
    place.ignore("If-None-Match")
    for _ in range(2):
        with pytest.raises(StoreRefused, match=rf"endpoint {place.server.endpoint_url} ignores If-None-Match on PUT"):
            place.lake().create_table("t", {"x": "long"})
    assert place.keys() == [PROOF_KEY]


def test_no_commit_is_lost_on_a_store_that_has_begun_to_ignore_it(place: Place) -> None:
    first = place.lake().create_table("t", {"x": "long"})
    first.append([{"x": 1}])
    place.ignore("If-None-Match")
    with pytest.raises(StoreRefused, match=r"http://localhost:[0-9]+ ignores If-None-Match"):
        place.lake("localhost").table("t").append([{"x": 2}])
    assert rows(place.lake()) == [1]


def test_writers_that_meet_find_a_store_that_looks_and_then_writes(place: Place, s3_server: S3Server) -> None:
    """At addresses of their own, since they meet once for each. What is found so holds as long as the process."""
    lake = place.lake("LOCALHOST")
    place.ignore("If-None-Match", match=r"\.json\.[^/]*$")
    for _ in range(2):
        with pytest.raises(StoreRefused, match="ignores If-None-Match on PUT when writers race"):
            lake.create_table("t", {"x": "long"})
        assert place.keys() == []
        s3_server.inject()
    lake = place.lake("LocalHost")
    lake.create_table("t", {"x": "long"})
    assert place.keys() == [PROOF_KEY, "t/_delta_log/00000000000000000000.json"]


@pytest.mark.parametrize(("status", "error"), [(403, StoreRefused), (503, Unavailable)])
def test_a_race_that_could_not_be_run_is_no_proof(
    place: Place, monkeypatch: pytest.MonkeyPatch, status: int, error: type[Exception]
) -> None:
    lake = place.lake(f"LOCALhos{'tT'[status == 503]}")
    monkeypatch.setattr(lake.clock, "sleep", lambda _: None)
    place.fault("PUT", f"status:{status}", match=r"\.json\.[^/]*$")
    with pytest.raises(error, match=re.escape(PROOF_KEY)):
        lake.create_table("t", {"x": "long"})
    assert place.keys() == []
    place.server.inject()
    place.ignore("If-None-Match", match=r"\.json\.[^/]*$")
    with pytest.raises(StoreRefused, match="ignores If-None-Match on PUT when writers race"):
        lake.create_table("t", {"x": "long"})


def test_writers_that_may_not_delete_leave_what_they_met_over(place: Place) -> None:
    place.fault("POST", "status:403", match="/?$")
    place.lake("Localhost").create_table("t", {"x": "long"})
    assert len(place.keys()) == 1 + RACES + 1


def test_a_store_without_the_condition_is_told_apart_from_one_that_is_busy(place: Place) -> None:
    place.fault("PUT", "status:501")
    with pytest.raises(StoreRefused, match="does not implement If-None-Match"):
        place.lake().create_table("t", {"x": "long"})
    place.fault("PUT", "status:503", PROOF_KEY, 2)
    place.lake().create_table("t", {"x": "long"})
    assert rows(place.lake()) == []


def test_a_proof_that_may_not_be_made_names_its_key(place: Place) -> None:
    place.fault("PUT", "status:403", PROOF_KEY)
    with pytest.raises(
        StoreRefused, match=rf"refuses {re.escape(PROOF_KEY)} in the bucket {place.bucket} \(AccessDenied\)"
    ):
        place.lake().create_table("t", {"x": "long"})


def test_a_proof_that_gets_no_answer_is_no_proof(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = place.lake()
    monkeypatch.setattr(lake.clock, "sleep", lambda _: None)
    place.fault("PUT", "status:503", PROOF_KEY)
    with pytest.raises(Unavailable, match=re.escape(PROOF_KEY)):
        lake.create_table("t", {"x": "long"})
    place.ignore("If-None-Match")
    with pytest.raises(StoreRefused):
        lake.create_table("t", {"x": "long"})


def test_a_store_that_ignores_if_match_alone_takes_events_and_no_changes_in_place(place: Place) -> None:
    place.ignore("If-Match")
    table = place.lake().create_table("t", {"x": "long"})
    table.append([{"x": 1}])
    store = place.lake().store
    store.put("object", b"one")
    with pytest.raises(StoreRefused, match="ignores If-Match on PUT, so changes can be lost"):
        store.put_if_same("object", b"two", store.get_tagged("object")[1])
    assert store.get("object") == b"one"
    assert rows(place.lake()) == [1]


def test_a_read_of_one_content_looks_at_what_came(place: Place) -> None:
    store = place.lake().store
    store.put("object", b"one")
    (info,) = store.list("object")
    assert store.get_same("object", info.etag, 1) == b"ne"
    place.fault("GET", "unconditional:If-Match")
    assert store.get_same("object", info.etag, 1) == b"ne"
    store.put("object", b"two")
    assert store.get_same("object", info.etag, 1) is None


def test_a_proof_is_two_requests_for_a_lake_and_one_for_each_process_after_that(place: Place) -> None:
    place.lake().store.put("seed", b"")
    counted = []
    for host in ("127.0.0.1", "localhost"):  # where writers have met
        Place(place.server).lake(host).store.put_if_absent("first", b"")
    for host in ("127.0.0.1", "localhost"):
        store = place.lake(host).store
        for number in range(2):
            place.server.requests()
            store.put_if_absent(f"{host}/{number}", b"")
            counted.append(place.server.requests())
        _, tag = store.get_tagged("seed")
        place.server.requests()
        assert store.put_if_same("seed", b"", tag)
        counted.append(place.server.requests())
    assert counted == [{"PUT": 3}, {"PUT": 1}, {"PUT": 2}, {"PUT": 2}, {"PUT": 1}, {"PUT": 2}]


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("", True),
        ("https://s3.eu-central-1.amazonaws.com", True),
        ("https://bucket.vpce-1a2b.s3.us-east-1.vpce.amazonaws.com", True),
        ("https://s3.cn-north-1.amazonaws.com.cn", True),
        ("https://s3.dualstack.eu-west-1.api.aws", True),
        ("https://amazonaws.com.example.org", False),
        ("https://examplamazonaws.com", False),
        ("https://storage.googleapis.com", False),
        ("http://127.0.0.1:9000", False),
    ],
)
def test_the_endpoints_of_aws_need_no_proof(endpoint: str, expected: bool) -> None:
    assert is_aws(endpoint) is expected
