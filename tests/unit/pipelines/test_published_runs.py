"""Runs on a branch that is published: the next run on the lake goes on from what the branch's runs have read."""

from __future__ import annotations

from typing import Any

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.errors import Unavailable
from alluvia.operations.planning import optimistic_retry
from alluvia.operations.transactions import lake_commit
from alluvia.pipelines.running import TableRun
from alluvia.store import MemoryStore
from tests.unit.pipelines.conftest import Declare

BRONZE = "CREATE TABLE bronze AS SELECT id, visitor, n FROM events"
SILVER = """CREATE TABLE silver (CONSTRAINT small EXPECT (n < 100) ON VIOLATION QUARANTINE)
AS SELECT id, visitor, n FROM bronze"""
TOTALS = "CREATE TABLE totals AS SELECT visitor, sum(n) AS s FROM silver GROUP BY visitor"
HISTORY = "CREATE TABLE history KEY (visitor) SEQUENCE BY n SCD TYPE 2 AS SELECT visitor, n, id FROM bronze"
WHOLE = "CREATE TABLE whole AS SELECT count(*) AS c, max(n) AS hi FROM bronze"
ALL = (BRONZE, SILVER, TOTALS, HISTORY, WHOLE)
COPY = "CREATE TABLE copy AS SELECT id, visitor, n FROM events"
BY_VISITOR = "CREATE TABLE by_visitor KEY (visitor) AS SELECT visitor, sum(n) AS s FROM events GROUP BY visitor"


def rows(lake: Lake, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in lake.sql(query).to_pylist())


def event(number: int, visitor: str, n: int) -> dict[str, Any]:
    return {"id": number, "visitor": visitor, "n": n}


def modes(reports: list[TableRun]) -> list[str]:
    assert [each.error for each in reports] == [None] * len(reports)
    return [each.mode for each in reports]


def check_copies(lake: Lake) -> None:
    """Check that tables of rows that were only appended, and the sums, are those of the source as it is."""
    assert rows(lake, "FROM copy") == rows(lake, "SELECT id, visitor, n FROM events")
    assert rows(lake, "FROM by_visitor") == rows(lake, "SELECT visitor, sum(n) FROM events GROUP BY visitor")


def test_a_chain_goes_on_after_a_publish(lake: Lake, events: Table, declare: Declare) -> None:
    declare(*ALL).run()
    events.append([event(4, "c", 4)])
    fix = lake.branch("fix")
    fix.table("events").append([event(5, "d", 500)])
    assert modes(declare(*ALL, on=fix).run()) == ["appended", "appended", "changed", "changed", "rebuilt"]
    fix.publish()
    pipeline = declare(*ALL)
    assert modes(pipeline.run()) == ["nothing"] * 5
    events.append([event(7, "d", 700), event(8, "a", 8)])
    reports = pipeline.run()
    assert modes(reports) == ["appended", "appended", "changed", "changed", "rebuilt"]
    assert [each.rows for each in reports[:2]] == [2, 2]
    assert rows(lake, "SELECT id FROM silver") == [(1,), (2,), (3,), (4,), (8,)]
    assert rows(lake, "SELECT id FROM silver_quarantine") == [(5,), (7,)]
    assert rows(lake, "FROM totals") == [("a", 12), ("b", 2), ("c", 4)]
    assert rows(lake, "SELECT id FROM history WHERE is_current") == [(2,), (4,), (7,), (8,)]
    assert rows(lake, "FROM whole") == [(7, 700)]


def test_what_came_to_the_lake_since_the_cut_is_still_to_be_read(
    lake: Lake, events: Table, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the process dies when the publish has happened, and others carry it out."""

    def dies(*_: object) -> None:
        raise Unavailable("gone")

    declare(COPY, BY_VISITOR).run()
    fix = lake.branch("fix")
    fix.table("events").append([event(4, "c", 4)])
    events.append([event(5, "d", 5)])
    declare(COPY, BY_VISITOR, on=fix).run()
    events.append([event(6, "a", 6)])
    events.optimize(full=True)
    with monkeypatch.context() as patched:
        patched.setattr(lake_commit, "carry_out_claim", dies)
        assert [each.how for each in fix.publish().tables if each.name == "events"] == ["rebased"]
    fix.publish()  # which finds that it has happened
    events.append([event(7, "e", 7)])
    pipeline, behind = declare(COPY, BY_VISITOR), [{"events": events.version - 1}] * 2
    assert [each["behind"] for each in pipeline.status()] == behind
    assert [each["sources"] for each in pipeline.plan()] == [{"events": {"from": 1, "to": events.version}}] * 2
    reports = pipeline.run()
    assert modes(reports) == ["appended", "changed"]
    assert (reports[0].rows, reports[1].units) == (3, 3)
    check_copies(lake)


def test_a_commit_with_the_id_of_a_publish_is_read(
    lake: Lake, events: Table, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another writer may commit it: before the next run, and after."""
    declare(COPY, BY_VISITOR).run()
    fix = lake.branch("fix")
    fix.table("events").append([event(4, "c", 4)])
    declare(COPY, BY_VISITOR, on=fix).run()
    fix.publish()
    (marker,) = (each for each in events.snapshot().state.txns if each.startswith("alluvia.branch:"))
    for number in (98, 99):
        with monkeypatch.context() as patched:
            patched.setattr(optimistic_retry, "OWN_IDS", "none.")
            events.append([event(number, "e", 5)], txn=(marker, number))
        reports = declare(COPY, BY_VISITOR).run()
        assert (modes(reports), reports[0].rows) == (["appended", "changed"], 1)
    check_copies(lake)


def test_what_a_branch_began_with_is_not_read_again(
    lake: Lake, events: Table, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction over several tables may have happened, and be carried out after the branch was created."""

    def dies(*_: object) -> None:
        raise Unavailable("gone")

    declare(COPY, BY_VISITOR).run()
    lake.create_table("other", {"id": "long"})
    with monkeypatch.context() as patched:
        patched.setattr(lake_commit, "carry_out_claim", dies)
        with lake.transaction() as several:
            several.table("events").append([event(4, "c", 4)])
            several.table("other").append([{"id": 1}])
    fix = lake.branch("fix")
    assert modes(declare(COPY, BY_VISITOR, on=fix).run()) == ["appended", "changed"]
    fix.publish()
    events.append([event(5, "d", 5)])
    reports = declare(COPY, BY_VISITOR).run()
    assert (modes(reports), reports[0].rows) == (["appended", "changed"], 1)
    check_copies(lake)


def test_a_publish_beside_a_run_on_the_lake_conflicts(lake: Lake, events: Table, declare: Declare) -> None:
    pipeline = declare(BY_VISITOR)
    pipeline.run()
    fix = lake.branch("fix")
    fix.table("events").append([event(4, "c", 4)])
    declare(BY_VISITOR, on=fix).run()
    events.append([event(5, "d", 5)])
    declare(BY_VISITOR).run()
    found = {each.name: each.how for each in fix.publish(dry_run=True).tables}
    assert found == {"by_visitor": "conflict", "events": "rebased"}


def test_branches_are_published_one_after_another(lake: Lake, events: Table, declare: Declare) -> None:
    declare(COPY, BY_VISITOR).run()
    late = lake.branch("late")
    late.table("events").append([event(4, "c", 4)])
    for number, name in enumerate(("first", "second"), start=5):
        fix = lake.branch(name)
        fix.table("events").append([event(number, "d", number)])
        assert modes(declare(COPY, BY_VISITOR, on=fix).run()) == ["appended", "changed"]
        fix.publish()
    late.publish()  # with a source, and no table that shows it
    only_files = lake.branch("only_files")
    only_files.table("events").append([event(7, "e", 7)])
    only_files.table("copy").optimize(full=True)
    only_files.publish()  # with a table that does not show what is published with it
    reports = declare(COPY, BY_VISITOR).run()
    assert modes(reports) == ["appended", "changed"]
    assert (reports[0].rows, reports[1].units) == (2, 2)
    check_copies(lake)


def test_rows_that_were_undone_on_the_lake_are_taken_back(lake: Lake, events: Table, declare: Declare) -> None:
    declare(BY_VISITOR).run()
    before = events.version
    fix = lake.branch("fix")
    fix.table("events").append([event(4, "c", 4)])
    declare(BY_VISITOR, on=fix).run()
    fix.publish()
    events.restore(version=before)
    assert modes(declare(BY_VISITOR).run()) == ["changed"]
    assert rows(lake, "FROM by_visitor") == [("a", 4), ("b", 2)]


def test_a_source_that_is_as_before_the_branch_is_followed_from_there(
    lake: Lake, events: Table, declare: Declare
) -> None:
    declare(COPY, BY_VISITOR).run()
    fix = lake.branch("fix")
    there, before = fix.table("events"), events.version
    there.append([event(4, "c", 4)])
    there.restore(version=before)
    wider = BY_VISITOR.replace("sum(n) AS s", "sum(n) AS s, max(n) AS hi")
    declare(wider, on=fix).run(full_refresh=True)
    events.append([event(5, "d", 5)])
    assert [each.name for each in fix.publish().tables] == ["by_visitor"]
    assert modes(declare(wider).run()) == ["changed"]
    assert rows(lake, "FROM by_visitor") == [("a", 4, 3), ("b", 2, 2), ("d", 5, 5)]


@pytest.mark.parametrize("how", ["created", "created again", "replaced"])
def test_sources_that_are_made_on_the_branch(how: str, lake: Lake, events: Table, declare: Declare) -> None:
    if how != "replaced":
        lake.drop_table("events")
    if how == "created":
        lake = Lake(MemoryStore("n", lake.clock), lake.clock)
    if how == "replaced":
        declare(COPY, BY_VISITOR).run()
    fix = lake.branch("fix")
    fix.sql("CREATE OR REPLACE TABLE events AS SELECT 4 AS id, 'c' AS visitor, 4 AS n")
    fix.sql("INSERT INTO events VALUES (5, 'd', 5)")
    there = declare(COPY, BY_VISITOR, on=fix)
    assert modes(there.run(full_refresh=True)) == ["rebuilt", "rebuilt"]
    fix.publish()
    lake["events"].append([event(6, "e", 6)])
    reports = declare(COPY, BY_VISITOR, on=lake).run()
    assert modes(reports) == ["appended", "changed"]
    assert (reports[0].rows, reports[1].units) == (1, 1)
    check_copies(lake)


def test_a_table_that_is_behind_on_the_branch_shows_nothing_of_the_lake(
    lake: Lake, events: Table, declare: Declare
) -> None:
    declare(COPY, BY_VISITOR).run()
    fix = lake.branch("fix")
    fix.table("events").append([event(4, "c", 4)])
    declare(COPY, BY_VISITOR, on=fix).run()
    fix.table("events").append([event(5, "d", 5)])
    fix.publish()
    reports = declare(COPY, BY_VISITOR).run()
    reason = (
        "does not say which version of events it shows, since it was published from a branch, or another table was "
        "called events meanwhile"
    )
    assert f"copy {reason}: to start again from its rows, run it with --full-refresh" in str(reports[0].error)
    assert (reports[1].mode, reports[1].reason) == ("rebuilt", f"by_visitor {reason}")
    declare(COPY, BY_VISITOR).run(["copy"], full_refresh=True)
    check_copies(lake)


def test_a_rollup_as_a_source_is_not_published(lake: Lake, events: Table, declare: Declare) -> None:
    lake.create_rollup("sums", "SELECT visitor, sum(n) AS s FROM events GROUP BY visitor")
    below = "CREATE TABLE below AS SELECT s, count(*) AS visitors FROM sums GROUP BY s"
    declare(below).run()
    fix = lake.branch("fix")
    fix.table("events").append([event(4, "c", 2)])
    fix.table("sums").refresh()
    declare(below, on=fix).run()
    assert fix.publish().rollups == ("sums",)
    lake["sums"].refresh()
    assert modes(declare(below).run()) == ["rebuilt"]
    assert rows(lake, "FROM below") == [(2, 2), (4, 1)]
