"""The vacuum function: what it deletes, what it keeps, and what it says."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import alluvia
from alluvia.errors import AlluviaError, Invalid, Unavailable, VersionExpired
from alluvia.operations.results.results import RESULTS, KeptResult, keep_result
from alluvia.operations.retention import vacuum as vacuuming
from alluvia.serverless.rounds import MARGIN_MS
from alluvia.store import base
from functions.vacuum import handler as vacuum
from functions.vacuum.handler import handler
from tests.log_lines import Context
from tests.rejects import create_rejects
from tests.samples import payload

FILES = 4


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    """A lake with two tables, whose small files a merge has replaced just now."""
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    monkeypatch.setenv("ALLUVIA_RETENTION_HOURS", "0")
    lake = alluvia.connect(str(tmp_path))
    columns = {"event_id": "string"}
    for table in (lake.create_table("access_log", columns), create_rejects(lake, "access_log", columns)):
        for number in range(FILES):
            table.append([{"event_id": f"e{number}"}])
        table.optimize()
    return lake


def parquet_files(lake: alluvia.Lake, table: str) -> int:
    return sum(
        info.key.endswith(".parquet") and "/_" not in info.key.removeprefix(table)
        for info in lake.store.list(f"{table}/")
    )


def rows(lake: alluvia.Lake, table: str) -> int:
    return int(lake.table(table).scan().read_all().num_rows)


def test_a_schedule_vacuums_every_table(lake: alluvia.Lake) -> None:
    assert parquet_files(lake, "access_log") == FILES + 1
    answer = handler(payload("vacuum_schedule"), None)
    assert (answer["dry_run"], answer["left"]) == (False, [])
    assert sorted(report["table"] for report in answer["tables"]) == ["access_log", "access_log/_rejects"]
    for report in answer["tables"]:
        assert (report["data_files"], report["orphans"], len(report["names"])) == (
            FILES,
            0,
            FILES + report["log_files"],
        )
        assert report["bytes_freed"] > 0
        assert parquet_files(lake, report["table"]) == 1
        assert rows(lake, report["table"]) == FILES
    assert json.loads(json.dumps(answer)) == answer


def test_a_schedule_vacuums_dropped_tables_too(lake: alluvia.Lake) -> None:
    lake.drop_table("access_log")
    answer = handler(payload("vacuum_schedule"), None)
    assert sorted(report["table"] for report in answer["tables"]) == ["access_log", "access_log/_rejects"]
    assert [report["data_files"] for report in answer["tables"]] == [FILES + 1, FILES + 1]
    assert parquet_files(lake, "access_log") == 0
    with pytest.raises(VersionExpired):
        lake.undrop("access_log")


def test_rows_expire_before_the_vacuum_of_their_table(lake: alluvia.Lake) -> None:
    old = lake.create_table("old", {"ts": "timestamp"}, ["day(ts)"], properties={"alluvia.ttl": "1 day"})
    old.append([{"ts": datetime(2024, 1, 1, tzinfo=UTC)}])
    [report] = handler({"tables": ["old"], "dry_run": True}, None)["tables"]
    assert (report["expired"], report["data_files"], old.count()) == (1, 0, 1)
    [report] = handler({"tables": ["old"]}, None)["tables"]
    assert (report["expired"], report["data_files"], old.count()) == (1, 1, 0)


def test_a_dry_run_deletes_nothing(lake: alluvia.Lake) -> None:
    answer = handler(payload("vacuum_dry_run"), None)
    [report] = answer["tables"]
    assert (answer["dry_run"], report["table"], report["data_files"]) == (True, "access_log", FILES)
    assert parquet_files(lake, "access_log") == FILES + 1


@pytest.mark.parametrize("hours", ["168", ""])
def test_the_retention_keeps_what_is_young(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, hours: str) -> None:
    monkeypatch.setenv("ALLUVIA_RETENTION_HOURS", hours)
    assert [report["data_files"] for report in handler({}, None)["tables"]] == [0, 0]
    assert parquet_files(lake, "access_log") == FILES + 1


def test_a_retention_of_the_table_comes_first(lake: alluvia.Lake) -> None:
    lake.table("access_log").evolve(properties={"delta.deletedFileRetentionDuration": "interval 30 days"})
    freed = {report["table"]: report["data_files"] for report in handler({}, None)["tables"]}
    assert freed == {"access_log": 0, "access_log/_rejects": FILES}


def test_it_stops_between_tables_when_time_runs_out(lake: alluvia.Lake) -> None:
    answer = handler({"tables": ["access_log", "access_log/_rejects"]}, Context("r", MARGIN_MS))
    assert ([report["table"] for report in answer["tables"]], answer["left"]) == (
        ["access_log"],
        ["access_log/_rejects"],
    )


def test_a_table_too_big_for_one_run_is_continued_by_the_next(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuuming, "BLOCK_KEYS", 5)
    monkeypatch.setattr(base, "PAGE_KEYS", 5)
    runs, deleted = 0, 0
    while True:
        answer = handler({"tables": ["access_log"]}, Context("r", MARGIN_MS))
        deleted += answer["tables"][0]["data_files"]
        if not answer["left"]:
            break
        assert answer["left"] == ["access_log"]
        runs += 1
    assert runs > 1
    assert (deleted, parquet_files(lake, "access_log"), rows(lake, "access_log")) == (FILES, 1, FILES)


def test_one_failing_table_stops_no_other_and_is_raised_at_the_end(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = alluvia.Table.vacuum

    def fail(self: alluvia.Table, *given: Any, **options: Any) -> Any:
        if self.name == "access_log":
            raise Unavailable("the store went away")
        return real(self, *given, **options)

    monkeypatch.setattr(alluvia.Table, "vacuum", fail)
    with pytest.raises(AlluviaError, match="1 of 2 tables failed: access_log: Unavailable: the store"):
        handler({}, None)
    assert (parquet_files(lake, "access_log"), parquet_files(lake, "access_log/_rejects")) == (FILES + 1, 1)


def test_long_lists_of_names_are_cut(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum, "NAMES_MAX", 2)
    [report] = handler(payload("vacuum_dry_run"), None)["tables"]
    assert (report["data_files"], len(report["names"])) == (FILES, 2)


@pytest.mark.parametrize("hours", ["-1", "soon", "1.5", "9999999"])
def test_a_bad_retention_is_named(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, hours: str) -> None:
    monkeypatch.setenv("ALLUVIA_RETENTION_HOURS", hours)
    with pytest.raises(Invalid, match="ALLUVIA_RETENTION_HOURS"):
        handler({}, None)


@pytest.mark.parametrize(("event", "named"), [({"dry_run": "yes"}, "dry_run"), ({"tables": "all"}, "tables")])
def test_bad_events(lake: alluvia.Lake, event: dict[str, Any], named: str) -> None:
    with pytest.raises(Invalid, match=named):
        handler(event, None)


@pytest.mark.parametrize(
    ("event", "named"),
    [
        ({"table": "quiet"}, "table"),
        ({"tables": ["access_log"], "dryRun": True}, "dryRun"),
        ({"id": "7"}, "id"),
        ({**payload("vacuum_schedule"), "Tables": []}, "Tables"),
        (payload("ingest_api_gateway"), "version"),
        (payload("query_invoke"), "query"),
    ],
)
def test_an_unknown_field_is_named_and_nothing_is_done(lake: alluvia.Lake, event: dict[str, Any], named: str) -> None:
    with pytest.raises(Invalid, match=f"^{named} is not a field of this event: use tables, dry_run$"):
        handler(event, None)
    assert parquet_files(lake, "access_log") == FILES + 1


@pytest.mark.parametrize("event", [[], None, "access_log", 5])
def test_an_event_that_is_no_object(lake: alluvia.Lake, event: Any) -> None:
    with pytest.raises(Invalid, match="the event must be a JSON object: send"):
        handler(event, None)
    assert parquet_files(lake, "access_log") == FILES + 1


def test_what_an_event_of_a_bus_holds_is_not_taken_for_all_tables(lake: alluvia.Lake) -> None:
    event = {**payload("vacuum_schedule"), "detail": {"tables": ["quiet"]}}
    with pytest.raises(Invalid, match="detail is not supported: have the rule send tables, dry_run as its input"):
        handler(event, None)
    assert parquet_files(lake, "access_log") == FILES + 1


def test_no_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALLUVIA_LAKE", raising=False)
    with pytest.raises(Invalid, match="ALLUVIA_LAKE is not set"):
        handler({}, None)


def test_a_round_over_all_tables_deletes_old_results_of_queries(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("a", "b", "c"):
        keep_result(lake.store, key, KeptResult(b"x" * 1000, {}))
    assert "results" not in handler({"tables": ["access_log"]}, None)
    kept = {"deleted": 0, "bytes_freed": 0, "kept": 3}
    assert handler(payload("vacuum_schedule"), None)["results"] == kept
    monkeypatch.setattr(vacuum, "RESULT_MB", 0)
    found = handler({"dry_run": True}, None)["results"]
    assert (found["deleted"], found["kept"], len(list(lake.store.list(RESULTS)))) == (3, 0, 3)
    for folder in Path(lake.uri.removeprefix("file://")).glob("_alluvia/results/[ab]"):
        os.utime(folder, (0, 0))
    monkeypatch.undo()
    monkeypatch.setenv("ALLUVIA_LAKE", lake.uri)
    monkeypatch.setenv("ALLUVIA_RESULT_CACHE_HOURS", "1")
    assert handler(payload("vacuum_schedule"), None)["results"]["deleted"] == 2
    assert [info.key for info in lake.store.list(RESULTS)] == [f"{RESULTS}c"]
    monkeypatch.setenv("ALLUVIA_RESULT_CACHE_HOURS", "soon")
    with pytest.raises(Invalid, match="ALLUVIA_RESULT_CACHE_HOURS is 'soon'"):
        handler({}, None)
