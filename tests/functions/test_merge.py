"""The merge function: every table of the lake, in the time there is."""

from __future__ import annotations

import errno
import json
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.errors import AlluviaError, Invalid, TableNotFound, Unavailable
from alluvia.serverless import warm_lake
from alluvia.serverless.rounds import MARGIN_MS
from functions.merge.handler import handler
from tests.log_lines import Context
from tests.rejects import create_rejects
from tests.s3server import S3Server
from tests.samples import payload

DAY = 1_700_000_000_000_000
FILES = 5


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    """A lake with a table and its rejects, in small files each, and another table in one file."""
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    lake = alluvia.connect(str(tmp_path))
    lake.create_events("access_log")
    create_rejects(lake, "access_log", {"event_id": "string", "reason": "string"})
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


def ids(lake: alluvia.Lake, table: str) -> list[str]:
    return sorted(lake.table(table).scan(["event_id"]).read_all()["event_id"].to_pylist())


def files(lake: alluvia.Lake, table: str) -> int:
    return len(lake.table(table).snapshot().files)


def test_a_schedule_merges_every_table(lake: alluvia.Lake) -> None:
    answer = handler(payload("merge_schedule"), None)
    reports = {report["table"]: (report["files_removed"], report["files_added"]) for report in answer["tables"]}
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
    firsts = {handler({}, Context("r", 0))["tables"][0]["table"] for _ in range(60)}
    assert firsts == {"access_log", "access_log/_rejects", "quiet"}


def test_it_stops_between_tables_when_time_runs_out(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alluvia.serverless.rounds.TABLES_AT_ONCE", 1)
    event = {"tables": ["access_log", "access_log/_rejects", "quiet"]}
    answer = handler(event, Context("r", MARGIN_MS + 1, MARGIN_MS + 1, MARGIN_MS))
    assert [report["table"] for report in answer["tables"]] == ["access_log", "access_log/_rejects"]
    assert answer["left"] == ["quiet"]


def test_it_stops_between_groups_of_files_with_the_finished_ones_committed(lake: alluvia.Lake) -> None:
    days = lake.create_table("days", {"day": "date", "n": "long"}, partition_by=["day"])
    for number in range(4):
        days.append([{"day": date(2026, 1, 1 + number % 2), "n": number}])
    answer = handler({"tables": ["days"]}, Context("r", 0))
    assert (answer["tables"][0]["left"], answer["left"], files(lake, "days")) == (1, ["days"], 3)
    answer = handler({"tables": ["days"]}, Context("r", 0))
    assert (answer["tables"][0]["left"], answer["left"], files(lake, "days")) == (0, [], 2)
    assert sorted(days.scan(["n"]).read_all()["n"].to_pylist()) == [0, 1, 2, 3]


def test_memory_is_nine_tenths_of_the_functions(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int | None] = []
    real = alluvia.Table.optimize

    def optimize(self: alluvia.Table, **options: Any) -> Any:
        given.append(options["memory_mb"])
        return real(self, **options)

    monkeypatch.setattr(alluvia.Table, "optimize", optimize)
    handler({"tables": ["quiet"]}, None)
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "3000")
    handler({"tables": ["quiet"]}, None)
    monkeypatch.setenv("ALLUVIA_MERGE_MEMORY_MB", "700")
    handler({"tables": ["quiet"]}, None)
    assert given == [None, 2700, 700]


def test_a_full_scratch_disk_is_no_damage(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = alluvia.connect(f"s3://{s3_server.new_bucket()}/lake", **s3_server.options)
    table = lake.create_table("t", {"n": "long"})
    for number in range(3):
        table.append([{"n": number}])

    def full(key: str, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(lake.store, "get_file", full)
        with pytest.raises(Unavailable, match="not enough disk space to optimize 3 files"):
            table.optimize()
    folder = tmp_path / "scratch"
    folder.mkdir()
    (folder / "new-0.parquet").symlink_to("/dev/full")
    with monkeypatch.context() as patch:
        scratch = "alluvia.operations.compaction.optimize_write.tempfile.TemporaryDirectory"
        patch.setattr(scratch, lambda **_: nullcontext(str(folder)))
        with pytest.raises(Unavailable, match="not enough disk space to optimize 3 files"):
            table.optimize()
    assert table.optimize().files_after == 1


def test_an_idle_round_over_s3_is_one_listing_and_a_get_for_each_table(s3_server: S3Server) -> None:
    lake = alluvia.connect(f"s3://{s3_server.new_bucket()}/lake", **s3_server.options)
    names = [f"t{number:02d}" for number in range(20)]
    for name in names:
        lake.create_table(name, {"n": "long"})
    with warm_lake.using(alluvia.connect(lake.uri, **s3_server.options)):
        handler({}, None)
        s3_server.requests()
        answer = handler({}, None)
        assert s3_server.requests() == {"LIST": 1, "GET": 20}
        assert sorted(report["table"] for report in answer["tables"]) == names
        lake.table("t07").append([{"n": 1}])
        lake.drop_table("t03")
        lake.store.put("notes/readme.txt", b"not a table")
        answer = handler({}, None)
        assert sorted(report["table"] for report in answer["tables"]) == [name for name in names if name != "t03"]
    cold = alluvia.connect(lake.uri, **s3_server.options)
    assert cold.tables() == sorted({*names, "notes"} - {"t03"})


def test_one_failing_table_stops_no_other_and_is_raised_at_the_end(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = alluvia.Table.optimize

    def fail(self: alluvia.Table, **options: Any) -> Any:
        if self.name == "access_log":
            raise Unavailable("the store went away")
        return real(self, **options)

    monkeypatch.setattr(alluvia.Table, "optimize", fail)
    with pytest.raises(AlluviaError, match="1 of 2 tables failed: access_log: Unavailable: the store went"):
        handler(payload("merge_tables") | {"tables": ["access_log", "access_log/_rejects"]}, None)
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
        ({"tables": ["access_log"], "dry": True}, "dry"),
        ({"id": "7"}, "id"),
        ({**payload("merge_schedule"), "Tables": []}, "Tables"),
        (payload("ingest_api_gateway"), "version"),
        (payload("query_invoke"), "query"),
    ],
)
def test_an_unknown_field_is_named_and_nothing_is_done(lake: alluvia.Lake, event: dict[str, Any], named: str) -> None:
    with pytest.raises(Invalid, match=f"^{named} is not a field of this event: use tables, target_size, full, order"):
        handler(event, None)
    assert files(lake, "access_log") == FILES


@pytest.mark.parametrize("event", [[], None, "access_log", 5])
def test_an_event_that_is_no_object(lake: alluvia.Lake, event: Any) -> None:
    with pytest.raises(Invalid, match="the event must be a JSON object: send"):
        handler(event, None)
    assert files(lake, "access_log") == FILES


def test_what_an_event_of_a_bus_holds_is_not_taken_for_all_tables(lake: alluvia.Lake) -> None:
    event = {**payload("merge_schedule"), "detail": {"tables": ["quiet"]}}
    with pytest.raises(Invalid, match=r"detail is not supported: have the rule send tables, .* as its input"):
        handler(event, None)
    assert files(lake, "access_log") == FILES


def test_options_of_the_event(lake: alluvia.Lake) -> None:
    days = lake.create_table("days", {"day": "date", "n": "long"}, partition_by=["day"])
    for number in range(6):
        days.append([{"day": date(2026, 1, 1 + number % 3), "n": number}])
    event: dict[str, Any] = {"tables": ["days"], "partition": {"day": "2026-01-02"}}
    [report] = handler({**event, "dry_run": True}, None)["tables"]
    expected = {"partition": {"day": "2026-01-02"}, "files": 2, "into_files": 1}
    assert [expected | planned == planned for planned in report["plan"]] == [True]
    assert files(lake, "days") == 6
    assert handler(event, None)["tables"][0]["files_removed"] == 2
    assert handler({"tables": ["days"], "max_files": 3}, None)["tables"][0]["files_removed"] == 2
    assert files(lake, "days") == 4
    with pytest.raises(AlluviaError, match="days: Invalid: order: expected smallest, oldest or newest, got 'biggest'"):
        handler({"tables": ["days"], "order": "biggest"}, None)


def test_no_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALLUVIA_LAKE", raising=False)
    with pytest.raises(Invalid, match="ALLUVIA_LAKE is not set"):
        handler({}, None)
