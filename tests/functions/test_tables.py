"""What a lake has, over HTTP: tables under the caller's rights, and whether the lake answers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.access.rights import Grant
from alluvia.errors import Unavailable
from alluvia.store import DirectoryStore
from functions.ingest import handler as ingest
from functions.query import handler as query
from tests.access import grant, token
from tests.functions.test_query import Answer, event

HIDDEN = ("comment", "partition_by", "sort_by", "cluster_by", "files", "bytes", "rows", "rejects")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> alluvia.Lake:
    lake = alluvia.connect(tmp_path_factory.mktemp("lake"))
    lake.create_events("clicks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLUVIA_LAKE", lake.uri.removeprefix("file://"))
        posted = ingest.handler(event('{"event": "open"}\nbroken\n[1]', path="/v1/events/clicks"), None)
    assert json.loads(posted["body"])["rejected"] == 2
    user = pa.field("user", pa.string(), metadata={"comment": "who"})
    columns = pa.schema([user, ("email", pa.string()), ("n", pa.decimal128(9, 2))])
    lake.create_table("totals", columns, partition_by=["user"], sort_by=["n"], comment="by user")
    lake["totals"].append([{"user": user, "email": f"{user}@b", "n": n} for n, user in enumerate("abb")])
    lake["totals"].delete("n = 2")
    lake.create_table("gone", {"n": "long"})
    lake.drop_table("gone")
    return lake


@pytest.fixture(autouse=True)
def settings(lake: alluvia.Lake, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_LAKE", lake.uri.removeprefix("file://"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "config"))


def get(path: str, bearer: str | None = None) -> Answer:
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    return query.handler(event("", method="GET", path=path) | {"headers": headers}, None)


def told(answer: Answer) -> Any:
    assert (answer["statusCode"], answer["headers"]["Cache-Control"]) == (200, "no-store"), answer["body"]
    return json.loads(answer["body"])


def test_tables_are_listed_and_told_of() -> None:
    assert told(get("/v1/tables")) == {"tables": [{"name": "clicks"}, {"name": "totals"}], "views": []}
    clicks = told(get("/v1/tables/clicks"))
    assert (clicks["rows"], clicks["files"], clicks["rejects"]) == (1, 1, 2)
    assert clicks["columns"][1] == {"name": "ts", "type": "timestamp", "nullable": False}
    assert told(get("/v1/tables/clicks._rejects"))["rows"] == 2
    totals = told(get("/v1/tables/totals"))
    committed = datetime.fromisoformat(totals.pop("committed"))
    assert abs(datetime.now(UTC) - committed) < timedelta(minutes=10)
    assert 200 < totals.pop("bytes") < 20_000
    assert totals == {
        "name": "totals",
        "version": 2,
        "versions": {"oldest": 0, "newest": 2},
        "comment": "by user",
        "columns": [
            {"name": "user", "type": "string", "nullable": True, "comment": "who"},
            {"name": "email", "type": "string", "nullable": True},
            {"name": "n", "type": "decimal(9,2)", "nullable": True},
        ],
        "partition_by": ["user"],
        "sort_by": ["n"],
        "cluster_by": [],
        "files": 2,
        "rows": 2,
        "rejects": 0,
        "unreadable_times": 0,
        "future_times": 0,
    }


@pytest.mark.parametrize(("path", "status"), [("gone", 404), ("none", 404), ("No%20Name", 400), ("clicks._x", 400)])
def test_what_is_no_table_is_refused(path: str, status: int) -> None:
    assert get(f"/v1/tables/{path}")["statusCode"] == status


@pytest.mark.parametrize(
    ("granted", "listed", "statuses"),
    [
        ((grant("read:*"),), ["clicks", "totals"], (200, 200, 403)),
        ((grant("read:clicks read:clicks._rejects"),), ["clicks"], (200, 403, 200)),
        ((grant("append:clicks write:totals admin:totals"),), [], (403, 403, 403)),
    ],
)
def test_only_what_may_be_read_is_told(
    lake: alluvia.Lake,
    monkeypatch: pytest.MonkeyPatch,
    granted: tuple[Grant, ...],
    listed: list[str],
    statuses: tuple[int, ...],
) -> None:
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    bearer = token(lake, *granted)
    assert [each["name"] for each in told(get("/v1/tables", bearer))["tables"]] == listed
    names = ("clicks", "totals", "clicks._rejects")
    assert tuple(get(f"/v1/tables/{name}", bearer)["statusCode"] for name in names) == statuses
    if "clicks" in listed:
        rejects = told(get("/v1/tables/clicks", bearer))["rejects"]
        assert rejects == (2 if statuses[2] == 200 else None)
    there, absent = (get(f"/v1/tables/{name}", token(lake, grant("read:x"))) for name in ("totals", "totalz"))
    assert there["body"].replace("totals", "totalz") == absent["body"]
    assert [get(path)["statusCode"] for path in ("/v1/tables", "/v1/tables/totals")] == [401, 401]


@pytest.mark.parametrize("granted", [grant("read:totals", where="user = 'a'"), grant("read:totals", hide="email user")])
def test_what_is_hidden_is_not_told(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, granted: Grant) -> None:
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    found = told(get("/v1/tables/totals", token(lake, granted)))
    assert [each["name"] for each in found["columns"]] == [
        name for name in ("user", "email", "n") if name not in granted.hide
    ]
    assert not any("comment" in each for each in found["columns"])
    assert {name: found[name] for name in HIDDEN} == dict.fromkeys(HIDDEN)
    assert found["versions"] == {"oldest": 0, "newest": 2}


def test_ready_without_a_token_while_the_storage_answers(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    assert told(get("/readyz")) == {"status": "ok"}

    def fail(self: object, prefix: str) -> None:
        raise Unavailable(f"the bucket of {lake.uri} does not answer")

    monkeypatch.setattr("alluvia.store.directory.DirectoryStore.list_folders", fail)
    answer = get("/readyz")
    assert (answer["statusCode"], "bucket" in answer["body"]) == (503, False)


def test_ready_only_while_the_storage_takes_writes(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    real, now_ms, written = DirectoryStore.put, lake.clock.now_ms(), list[str]()

    def put(self: DirectoryStore, key: str, data: bytes) -> None:
        written.append(key)
        if full:
            raise Unavailable("no space left on device")
        real(self, key, data)

    monkeypatch.setattr(DirectoryStore, "put", put)
    full = True
    assert told(get("/readyz")) == {"status": "ok"}  # a function that only reads
    assert written == []
    monkeypatch.setenv("ALLUVIA_READY_WRITES", "true")
    for _ in range(2):
        answer = get("/readyz")
        assert (answer["statusCode"], "device" in answer["body"]) == (503, False)
    full = False
    for _ in range(3):
        assert told(get("/readyz")) == {"status": "ok"}
    assert written == ["_alluvia/ready"] * 3
    full = True
    monkeypatch.setattr("alluvia.clock.SystemClock.now_ms", lambda self: now_ms + 120_000)
    assert get("/readyz")["statusCode"] == 503
    assert sorted(alluvia.connect(lake.uri).tables()) == ["clicks", "totals"]


def test_views_are_listed_for_callers_who_may_read_them(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.sql("CREATE VIEW sums AS SELECT sum(n) AS n FROM totals")
    told_of_view = "there is no table 'sums', but a view: DESCRIBE sums shows it, DROP VIEW sums drops it"
    try:
        assert told(get("/v1/tables"))["views"] == [{"name": "sums"}]
        absent = get("/v1/tables/sums")
        assert (absent["statusCode"], json.loads(absent["body"])["error"]) == (404, told_of_view)
        monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
        assert told(get("/v1/tables", token(lake, grant("read:sums"))))["views"] == [{"name": "sums"}]
        other = token(lake, grant("read:totals"))
        assert told(get("/v1/tables", other))["views"] == []
        assert "view" not in str(get("/v1/tables/sums", other)["body"])
    finally:
        lake.sql("DROP VIEW sums")


def test_an_unknown_table_suggests_the_nearest_that_the_caller_may_see(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reason(path: str, bearer: str | None = None) -> str:
        answer = get(path, bearer)
        assert answer["statusCode"] == 404
        return str(json.loads(answer["body"])["error"])

    assert reason("/v1/tables/clikcs") == "there is no table 'clikcs': did you mean clicks?"
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    bearer = token(lake, grant("read:clikcs"), grant("read:totals"))
    assert reason("/v1/tables/clikcs", bearer) == "there is no table 'clikcs'"
