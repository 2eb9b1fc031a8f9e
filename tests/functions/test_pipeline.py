"""The pipeline function: derived tables run when their sources change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import AlluviaError, Invalid, TableNotFound
from alluvia.pipelines import derived_tables
from alluvia.pipelines.derived_tables import DerivedTables
from alluvia.pipelines.marks import note_failure, read_failure
from alluvia.serverless import derived_runs
from alluvia.serverless.rounds import MARGIN_MS
from alluvia.serverless.table_messages import message_for
from functions.pipeline.handler import handler
from tests.functions.derived import BAD, GOLD, MINUTE, SILVER, append, declare, ran, rows
from tests.functions.derived import clock as clock  # noqa: PLC0414 - a fixture
from tests.functions.derived import lake as lake  # noqa: PLC0414 - a fixture
from tests.functions.derived import queue as queue  # noqa: PLC0414 - a fixture
from tests.functions.test_table_queue import event, failed
from tests.log_lines import Context
from tests.samples import payload


def test_what_changed_flows_down_in_one_round(lake: Lake, tmp_path: Path) -> None:
    declare(lake, tmp_path, SILVER, GOLD)
    lake.create_rollup("total", "SELECT sum(s) AS n FROM gold")
    append(lake, (2, "b", 5), (3, "a", -1))
    done = handler(payload("pipeline_schedule"), Context("r"))
    assert ran(done) == {"silver": "appended", "gold": "changed", "total": "folded"}
    assert (rows(lake, "gold"), rows(lake, "total")) == ([("a", 1), ("b", 5)], [(6,)])
    assert done["left"] == []
    assert handler({}, Context("r"))["tables"] == []


def test_a_schedule_and_its_absence(lake: Lake, tmp_path: Path, clock: ManualClock) -> None:
    declare(
        lake,
        tmp_path,
        "CREATE TABLE hourly SCHEDULE EVERY 1 HOUR AS SELECT id FROM events",
        "CREATE TABLE by_hand AS SELECT id FROM events",
    )
    append(lake, (2, "b", 5))
    clock.sleep(59 * MINUTE)
    assert ran(handler({}, Context("r"))) == {}
    clock.sleep(2 * MINUTE)
    assert ran(handler({}, Context("r"))) == {"hourly": "appended"}
    clock.sleep(61 * MINUTE)
    assert ran(handler({}, Context("r"))) == {}  # nothing is new
    assert ran(handler({"tables": ["by_hand"], "when_due": True}, Context("r"))) == {}
    assert failed(handler(event(message_for("by_hand")), Context("r"))) == []
    assert lake["by_hand"].count() == 1
    assert ran(handler({"tables": ["by_hand"]}, Context("r"))) == {"by_hand": "appended"}
    assert (lake["hourly"].count(), lake["by_hand"].count()) == (2, 2)


def test_a_named_source_runs_what_is_made_of_it(lake: Lake, tmp_path: Path) -> None:
    declare(lake, tmp_path, SILVER, GOLD)
    other = lake.create_table("other", {"n": "long"})
    lake.create_rollup("others", "SELECT count(*) AS n FROM other")
    other.append([{"n": 1}])
    append(lake, (2, "b", 5))
    assert ran(handler({"tables": ["events"]}, Context("r"))) == {"silver": "appended", "gold": "changed"}
    assert rows(lake, "others") == [(0,)]
    with pytest.raises(TableNotFound, match="there is no table 'silber'"):
        handler({"tables": ["silber"]}, Context("r"))
    with pytest.raises(Invalid, match="when_due: expected true or false"):
        handler({"tables": ["silver"], "when_due": 1}, Context("r"))
    with pytest.raises(Invalid, match="tabels is not a field"):
        handler({"tabels": ["silver"]}, Context("r"))


def test_one_that_fails_stops_no_other_rests_and_recovers(lake: Lake, tmp_path: Path, clock: ManualClock) -> None:
    declare(lake, tmp_path, BAD, SILVER)
    append(lake, (2, "b", 5))
    with pytest.raises(AlluviaError, match=r"1 of 2 tables failed: bad: Invalid.*broken"):
        handler({}, Context("r"))
    assert lake["silver"].count() == 2
    failure = read_failure(lake.store, "bad")
    assert failure is not None
    assert (failure.tries, "broken" in failure.error) == (1, True)
    assert handler({}, Context("r"))["tables"] == []
    clock.sleep(3 * MINUTE)
    with pytest.raises(AlluviaError, match="bad"):
        handler({}, Context("r"))
    clock.sleep(3 * MINUTE)
    assert handler({}, Context("r"))["tables"] == []  # it rests for twice as long
    lake["events"].delete("n > 1")
    clock.sleep(2 * MINUTE)
    # An appended table does not reflect that the row is gone: a person tells it to begin again.
    (tmp_path / "pipelines" / "all.sql").write_text(BAD)
    pipeline = lake.pipeline(tmp_path / "pipelines")
    assert [row["error"] for row in pipeline.status()] == ["Invalid Input Error: broken"]
    (report,) = pipeline.run(full_refresh=True)
    assert report.error is None
    assert [row["error"] for row in pipeline.status()] == [None]
    assert DerivedTables(lake.catalog).failed_run("bad") is None
    append(lake, (3, "c", 0))
    assert ran(handler({}, Context("r"))) == {"bad": "appended", "silver": "appended"}
    assert read_failure(lake.store, "bad") is None


def test_time_that_runs_out_leaves_tables_to_the_next_round(lake: Lake, tmp_path: Path) -> None:
    declare(lake, tmp_path, SILVER, "CREATE TABLE two SCHEDULE ON CHANGE AS SELECT id FROM events")
    append(lake, (2, "b", 5))
    done = handler({}, Context("r", MARGIN_MS))
    assert (len(done["tables"]), len(done["left"])) == (1, 1)


def test_a_run_beyond_the_function_is_refused(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(lake, tmp_path, SILVER)
    append(lake, (2, "b", 5))
    monkeypatch.setattr(derived_runs, "FUNCTION_BYTES_MAX", 10)
    with pytest.raises(AlluviaError, match=r"silver: Unsupported: a run reads \d+ bytes, more than the 10 of a"):
        handler({}, Context("r"))
    assert lake["silver"].count() == 1


def test_a_small_change_of_large_sources_is_tried_until_it_takes_too_much(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    declare(
        lake, tmp_path, "CREATE TABLE totals SCHEDULE ON CHANGE AS SELECT who, avg(n) AS a FROM events GROUP BY who"
    )
    append(lake, (2, "a", 5))
    size = sum(file.size for file in lake["events"].files)
    monkeypatch.setattr(derived_runs, "FUNCTION_BYTES_MAX", size - 1)
    assert ran(handler({}, Context("r"))) == {"totals": "changed"}
    append(lake, (3, "a", 6))
    clock.sleep(1)
    note_failure(lake.store, clock, "totals", "an expectation failed")  # which Spark would repeat
    clock.sleep(3 * MINUTE)
    assert ran(handler({}, Context("r"))) == {"totals": "changed"}
    append(lake, (4, "a", 7))
    with monkeypatch.context() as patch:
        patch.setattr(derived_runs, "seconds_left", lambda _: 1e-9)
        with pytest.raises(AlluviaError, match=r"totals: QueryTooCostly: .* took longer than"):
            handler({}, Context("r"))
    for _ in range(2):  # the refusal is no reason to try it again
        clock.sleep(10 * MINUTE)
        with pytest.raises(AlluviaError, match=r"totals: Unsupported: a run reads up to \d+ bytes"):
            handler({}, Context("r"))


def test_a_run_by_hand_ends_a_row_of_failures(lake: Lake, tmp_path: Path, clock: ManualClock) -> None:
    declare(lake, tmp_path, BAD)
    derived = DerivedTables(lake.catalog)
    table = derived.named("bad")
    assert table is not None
    for at_limit in (True, False):
        clock.sleep(MINUTE)
        derived.note_run(table, "it failed", at_limit=at_limit)
    key = "_alluvia/pipelines/failed/bad"
    record = json.loads(lake.store.get(key))
    lake.store.put(key, json.dumps({**record, "job": "as a newer version may write"}).encode())
    failure = DerivedTables(lake.catalog).failed_run("bad")
    assert failure is not None
    assert (failure.error, failure.tries, failure.at_limit) == ("it failed", 2, True)
    append(lake, (2, "b", 1))
    clock.sleep(MINUTE)
    declare(lake, tmp_path, BAD)
    append(lake, (3, "c", 2))
    clock.sleep(MINUTE)
    with pytest.raises(AlluviaError, match="broken"):
        handler({}, Context("r"))
    failure = read_failure(lake.store, "bad")
    assert failure is not None
    assert (failure.tries, failure.at_limit) == (1, False)


def test_tables_that_are_made_of_each_other_do_not_run_for_ever(lake: Lake, tmp_path: Path) -> None:
    declare(lake, tmp_path, SILVER, GOLD, "CREATE TABLE below SCHEDULE ON CHANGE AS SELECT who FROM gold")
    again = "CREATE TABLE silver KIND FULL SCHEDULE ON CHANGE AS SELECT s AS id, who, s AS n FROM gold"
    (tmp_path / "pipelines" / "again.sql").write_text(again)
    lake.pipeline(tmp_path / "pipelines").run(full_refresh=True)
    with pytest.raises(AlluviaError, match="tables are made of each other, or of such tables: below, gold, silver"):
        handler({}, Context("r"))
    versions = [lake[name].version for name in ("silver", "gold", "below")]
    for name in ("silver", "events", "below"):  # such as one that was sent before they were declared so
        assert failed(handler(event(message_for(name)), Context("r"))) == ["0"]
    assert [lake[name].version for name in ("silver", "gold", "below")] == versions


def test_a_table_of_a_branch_runs_once_it_is_published(lake: Lake, tmp_path: Path) -> None:
    branch = lake.branch("fix")
    declare(branch, tmp_path, SILVER)
    assert handler({}, Context("r"))["tables"] == []
    branch.publish()
    append(lake, (2, "b", 5))
    handler({}, Context("r"))
    assert rows(lake, "silver") == [(1, "a", 1), (2, "b", 5)]


def test_a_dropped_table_and_a_quarantine(lake: Lake, tmp_path: Path) -> None:
    checked = (
        "CREATE TABLE checked (CONSTRAINT big EXPECT (n > 1) ON VIOLATION QUARANTINE) SCHEDULE ON CHANGE "
        "AS SELECT id, n FROM events"
    )
    declare(lake, tmp_path, checked, "CREATE TABLE few SCHEDULE ON CHANGE AS SELECT id FROM checked_quarantine", SILVER)
    lake.drop_table("silver")
    append(lake, (2, "b", 1))
    assert ran(handler({}, Context("r"))) == {"checked": "appended", "few": "appended"}
    assert rows(lake, "few") == [(1,), (2,)]
    (tmp_path / "pipelines" / "all.sql").write_text(checked)
    (row,) = lake.pipeline(tmp_path / "pipelines").status()
    assert (row["failed"], row["behind"]) == ({"big": 1}, {"events": 0})


def test_a_log_that_cannot_be_read_stops_no_other_table(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(lake, tmp_path, SILVER, "CREATE TABLE two SCHEDULE ON CHANGE AS SELECT id FROM events")
    append(lake, (2, "b", 5))
    real = derived_tables.derived_table

    def unreadable(snapshot: Any) -> Any:
        if snapshot.name == "silver":
            raise AlluviaError("damaged")
        return real(snapshot)

    monkeypatch.setattr(derived_tables, "derived_table", unreadable)
    with pytest.raises(AlluviaError, match="1 of 2 tables failed: silver: damaged"):
        handler({}, Context("r"))
    assert lake["two"].count() == 2


def test_the_samples(lake: Lake) -> None:
    lake.create_table("access_log", {"n": "long"})
    assert failed(handler(payload("pipeline_sqs"), Context("r"))) == []
    assert handler(payload("pipeline_tables"), Context("r")) == {"tables": [], "left": []}
