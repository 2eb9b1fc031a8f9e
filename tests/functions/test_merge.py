"""The merge function: every table of the lake, one after another, in the time there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.errors import AlluviaError, Invalid, TableNotFound, Unavailable
from alluvia.rounds import MARGIN_MS
from functions.merge.handler import handler

EVENTS = Path(__file__).parents[2] / "events"
DAY = 1_700_000_000_000_000
FILES = 5


class Context:
    """A Lambda context whose time runs out after some calls."""

    def __init__(self, *remaining_ms: int) -> None:
        self._remaining_ms = list(remaining_ms)

    def get_remaining_time_in_millis(self) -> int:
        return self._remaining_ms.pop(0)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    """A lake with a table and its rejects, in small files each, and another table in one file."""
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    lake = alluvia.connect(str(tmp_path))
    lake.create_events("access_log")
    lake.create_table("access_log/_rejects", {"event_id": "string", "reason": "string"})
    lake.create_events("quiet")
    for number in range(FILES):
        add(lake, "access_log", f"e{number}")
        lake.table("access_log/_rejects").append([{"event_id": f"r{number}", "reason": "why"}])
    add(lake, "quiet", "q")
    return lake


def add(lake: alluvia.Lake, table: str, event_id: str) -> None:
    schema = lake.table(table).snapshot().schema
    values: dict[str, Any] = {"event_id": event_id, "ts": DAY, "received_at": DAY, "event": "click"}
    columns = [pa.array([values.get(field.name)], field.type) for field in schema]
    lake.table(table).ingest(pa.Table.from_arrays(columns, schema=schema))


def payload(name: str) -> dict[str, Any]:
    return dict(json.loads((EVENTS / f"{name}.json").read_text()))


def ids(lake: alluvia.Lake, table: str) -> list[str]:
    return sorted(lake.table(table).scan(["event_id"]).read_all()["event_id"].to_pylist())


def files(lake: alluvia.Lake, table: str) -> int:
    return len(lake.table(table).snapshot().files)


def test_a_schedule_merges_every_table(lake: alluvia.Lake) -> None:
    answer = handler(payload("merge_schedule"), None)
    reports = {report["table"]: (report["files_merged"], report["files_written"]) for report in answer["tables"]}
    assert reports == {"access_log": (FILES, 1), "access_log/_rejects": (FILES, 1), "quiet": (0, 0)}
    assert answer["left"] == []
    assert [files(lake, name) for name in reports] == [1, 1, 1]
    assert ids(lake, "access_log") == [f"e{number}" for number in range(FILES)]
    assert ids(lake, "access_log/_rejects") == [f"r{number}" for number in range(FILES)]
    assert json.loads(json.dumps(answer)) == answer


def test_the_tables_of_the_event_in_its_order(lake: alluvia.Lake) -> None:
    answer = handler(payload("merge_tables") | {"tables": ["quiet", "access_log/_rejects"]}, None)
    assert [report["table"] for report in answer["tables"]] == ["quiet", "access_log/_rejects"]
    assert files(lake, "access_log") == FILES


def test_the_order_starts_elsewhere_each_time(lake: alluvia.Lake) -> None:
    firsts = {handler({}, Context(0))["tables"][0]["table"] for _ in range(60)}
    assert firsts == {"access_log", "access_log/_rejects", "quiet"}


def test_it_stops_between_tables_when_time_runs_out(lake: alluvia.Lake) -> None:
    event = {"tables": ["access_log", "access_log/_rejects", "quiet"]}
    answer = handler(event, Context(MARGIN_MS + 1, MARGIN_MS))
    assert [report["table"] for report in answer["tables"]] == ["access_log", "access_log/_rejects"]
    assert answer["left"] == ["quiet"]


def test_one_failing_table_stops_no_other_and_is_raised_at_the_end(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = alluvia.Table.merge

    def fail(self: alluvia.Table, **options: Any) -> Any:
        if self.name == "access_log":
            raise Unavailable("the store went away")
        return real(self, **options)

    monkeypatch.setattr(alluvia.Table, "merge", fail)
    with pytest.raises(AlluviaError, match="1 of 2 tables failed: access_log: Unavailable: the store went"):
        handler(payload("merge_tables"), None)
    assert (files(lake, "access_log"), files(lake, "access_log/_rejects")) == (FILES, 1)


def test_a_missing_table_is_named(lake: alluvia.Lake) -> None:
    with pytest.raises(AlluviaError, match=f"unknown: {TableNotFound.__name__}"):
        handler({"tables": ["unknown"]}, None)


def test_the_target_size(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_TARGET_FILE_BYTES", "1")
    handler({"tables": ["access_log"]}, None)
    assert files(lake, "access_log") == FILES
    monkeypatch.setenv("ALLUVIA_TARGET_FILE_BYTES", "many")
    with pytest.raises(Invalid, match="ALLUVIA_TARGET_FILE_BYTES is 'many'"):
        handler({}, None)


@pytest.mark.parametrize("tables", ["access_log", {"a": 1}, [1]])
def test_bad_events(lake: alluvia.Lake, tables: object) -> None:
    with pytest.raises(Invalid, match="tables: expected a list"):
        handler({"tables": tables}, None)


@pytest.mark.parametrize(
    ("event", "named"),
    [
        ({"table": "quiet"}, "table"),
        ({"tables": ["access_log"], "dry_run": True}, "dry_run"),
        ({"id": "7"}, "id"),
        ({**payload("merge_schedule"), "Tables": []}, "Tables"),
        (payload("ingest_api_gateway"), "version"),
        (payload("ingest_sqs"), "Records"),
        (payload("query_invoke"), "query"),
    ],
)
def test_an_unknown_field_is_named_and_nothing_is_done(lake: alluvia.Lake, event: dict[str, Any], named: str) -> None:
    with pytest.raises(Invalid, match=f"^{named} is not a field of this event: use tables$"):
        handler(event, None)
    assert files(lake, "access_log") == FILES


@pytest.mark.parametrize("event", [[], None, "access_log", 5])
def test_an_event_that_is_no_object(lake: alluvia.Lake, event: Any) -> None:
    with pytest.raises(Invalid, match="the event is no object: send"):
        handler(event, None)
    assert files(lake, "access_log") == FILES


def test_what_an_event_of_a_bus_holds_is_not_taken_for_all_tables(lake: alluvia.Lake) -> None:
    event = {**payload("merge_schedule"), "detail": {"tables": ["quiet"]}}
    with pytest.raises(Invalid, match="detail is not read: have the rule send tables as its input"):
        handler(event, None)
    assert files(lake, "access_log") == FILES


def test_no_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALLUVIA_LAKE", raising=False)
    with pytest.raises(Invalid, match="ALLUVIA_LAKE is not set"):
        handler({}, None)
