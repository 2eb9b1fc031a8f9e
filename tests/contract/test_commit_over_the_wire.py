"""The commit of a table on S3, its answers lost, late and wrong, over real connections. Requests are the server's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.delta.log.commit import encode_commit
from alluvia.delta.log.paths import commit_name
from alluvia.errors import AnswerLost, CommitUnknown, Invalid, ObjectNotFound, Unavailable
from alluvia.store import PutResult, Store, open_store
from alluvia.store.s3.bucket import CONFLICT_TRIES, S3Store
from tests.contract.workers import events
from tests.proved import proved
from tests.s3server import S3Server

KEY = "t/" + commit_name(1)
COMMIT = r"_delta_log/0+1\.json$"


def fault(method: str, what: str, times: int = 1, match: str = COMMIT) -> dict[str, Any]:
    return {"method": method, "match": match, "fault": what, "times": times}


@pytest.fixture
def server(s3_server: S3Server) -> S3Server:
    s3_server.inject()
    return s3_server


@pytest.fixture
def store(server: S3Server) -> Store:
    return proved(open_store(f"s3://{server.new_bucket()}/lake", ManualClock(), **server.options))


@pytest.fixture
def table(store: Store, server: S3Server) -> Table:
    lake = Lake(store, ManualClock())
    found = lake.create_events("t", partition_by=())
    server.requests()
    return found


def append(table: Table, *ids: str) -> int:
    return table.append(events(table._handle.at_hand().schema, ids)).version


def test_a_warm_append_is_two_puts(table: Table, server: S3Server) -> None:
    assert append(table, "a") == 1
    assert server.requests() == {"PUT": 2}


def test_a_lost_answer_to_a_commit_that_happened_is_read_back(table: Table, server: S3Server) -> None:
    server.inject(fault("PUT", "lost"))
    assert append(table, "a") == 1
    assert server.requests() == {"PUT": 2, "GET": 1}
    assert append(table, "b") == 2
    assert len(table.scan().read_all()) == 2


def test_a_commit_that_did_not_happen_is_sent_again(table: Table, server: S3Server) -> None:
    server.inject(fault("PUT", "lost-before"))
    assert append(table, "a") == 1
    assert server.requests() == {"PUT": 1 + 2, "GET": 1}


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_error_is_read_back_and_sent_again(table: Table, server: S3Server, status: int) -> None:
    server.inject(fault("PUT", f"status:{status}", 2))
    assert append(table, "a") == 1
    assert server.requests() == {"PUT": 1 + 3, "GET": 2}
    assert len(table.scan().read_all()) == 1


def test_409_is_not_taken_for_exists(table: Table, server: S3Server) -> None:
    server.inject(fault("PUT", "status:409", 3))
    assert append(table, "a") == 1
    assert server.requests() == {"PUT": 1 + 4}


def test_409_without_end_gives_up_with_nothing_written(table: Table, server: S3Server) -> None:
    server.inject(fault("PUT", "status:409", 1000))
    with pytest.raises(Unavailable, match="409"):
        append(table, "a")
    assert server.requests() == {"PUT": 1 + CONFLICT_TRIES}
    server.inject()
    assert append(table, "a") == 1


def test_412_for_ones_own_write_is_a_commit(
    table: Table, store: Store, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something on the way sends the PUT twice: the first has its effect, and the answer to the second is 412."""

    assert isinstance(store, S3Store)
    client = store._client

    class Twice:
        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

        def put(self, *args: Any, **options: Any) -> Any:
            if "mode" in options:
                client.put(*args, **options)
            return client.put(*args, **options)

    monkeypatch.setattr(store, "_client_of", lambda *_: Twice())
    assert append(table, "a") == 1
    assert server.requests() == {"PUT": 2 + 2, "GET": 1 + 1}  # the data file and the commit, each read back
    assert append(table, "b") == 2
    assert len(table.scan().read_all()) == 2


def test_412_for_anothers_write_is_a_lost_race(table: Table, store: Store, server: S3Server) -> None:
    store.put(KEY, encode_commit({"txnId": "other", "inCommitTimestamp": 1_800_000_000_000}, []))
    server.requests()
    assert append(table, "a") == 2
    assert server.requests() == {"PUT": 1 + 2, "GET": 2}
    assert table.snapshot().timestamp_ms == 1_800_000_000_001


def test_a_lost_answer_to_a_lost_race_is_a_lost_race(table: Table, store: Store, server: S3Server) -> None:
    store.put(KEY, encode_commit({"txnId": "other", "inCommitTimestamp": 1}, []))
    server.requests()
    server.inject(fault("PUT", "lost"))
    assert append(table, "a") == 2
    assert server.requests() == {"PUT": 1 + 2, "GET": 2}


@pytest.mark.parametrize("put", ["lost", "lost-before", "status:500"])
@pytest.mark.parametrize("get", ["status:503", "status:403", "lost-before"])
def test_when_reading_back_fails_the_outcome_is_unknown_and_nothing_is_deleted(
    table: Table, store: Store, server: S3Server, put: str, get: str
) -> None:
    server.inject(fault("PUT", put), fault("GET", get, 1000))
    rows = events(table._handle.at_hand().schema, ["a", "b"])
    with pytest.raises(CommitUnknown, match="version 1"):
        table.ingest(rows)
    requests = server.requests()
    assert requests["PUT"] == 2
    assert "DELETE" not in requests
    assert "POST" not in requests
    assert len([info for info in store.list("t/") if info.key.endswith(".parquet")]) == 1
    server.inject()
    again = table.ingest(rows)
    assert again.appended + again.duplicates == 2
    assert again.version == 1
    assert sorted(table.scan().read_all()["event_id"].to_pylist()) == ["a", "b"]


def test_a_refused_commit_is_the_callers_to_mend(table: Table, server: S3Server) -> None:
    server.inject(fault("PUT", "status:403"))
    with pytest.raises(Invalid, match="AccessDenied"):
        append(table, "a")
    assert server.requests() == {"PUT": 2}


def test_a_data_file_is_put_again_until_it_is_there(table: Table, server: S3Server) -> None:
    server.inject(fault("PUT", "status:503", 2, r"\.parquet$"), fault("PUT", "lost", 1, r"\.parquet$"))
    assert append(table, "a") == 1
    assert server.requests() == {"PUT": 1 + 4, "GET": 1}  # what is there, whose answer was lost, is looked at


@pytest.mark.parametrize("what", ["status:503", "lost-before"])
def test_a_store_that_does_not_answer_is_unavailable(store: Store, server: S3Server, what: str) -> None:
    for method in ("GET", "PUT", "HEAD", "POST"):
        server.inject(fault(method, what, 1000, "."))
        attempts: dict[str, list[Callable[[], object]]] = {
            "GET": [lambda: store.get("a"), lambda: list(store.list("")), lambda: list(store.list_folders(""))],
            "PUT": [lambda: store.put("a", b"")],
            "HEAD": [lambda: store.head("a")],
            "POST": [lambda: store.delete(["a"])],
        }
        for attempt in attempts[method]:
            with pytest.raises(Unavailable):
                attempt()
    server.inject(fault("PUT", what, 1000, "."))
    server.requests()
    with pytest.raises(AnswerLost):
        store.put_if_absent("a", b"")
    assert server.requests() == {"PUT": 1}
    server.inject()
    assert store.put_if_absent("a", b"") is PutResult.CREATED


def test_what_the_caller_must_mend_is_invalid(server: S3Server) -> None:
    missing = open_store("s3://no-such-bucket-here/lake", ManualClock(), **server.options)
    for attempt in (lambda: missing.get("a"), lambda: missing.put("a", b""), lambda: missing.put_if_absent("a", b"")):
        with pytest.raises(Invalid, match=r"bucket no-such-bucket-here does not exist \(NoSuchBucket\)"):
            attempt()
    with pytest.raises(Invalid, match=r"bucket no-such-bucket-here does not exist \(NoSuchBucket\)"):
        list(missing.list(""))


def test_an_unreachable_endpoint_is_unavailable_and_shows_no_secret() -> None:
    store = open_store("s3://bucket/lake", ManualClock(), endpoint_url="http://127.0.0.1:9", region="us-east-1",
                       access_key_id="key", secret_access_key="hidden")  # fmt: skip
    with pytest.raises(Unavailable, match="Connect") as raised:
        store.put_if_absent("a", b"")
    assert "hidden" not in str(raised.value)


def test_an_object_that_goes_between_two_requests_is_not_found(store: Store) -> None:
    store.put("a", b"x")
    store.delete(["a"])
    with pytest.raises(ObjectNotFound, match="a"):
        store.get("a")
