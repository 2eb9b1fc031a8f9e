"""Runs of pipelines: what they write, what they refuse, and what happens in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock, datetime_of
from alluvia.errors import Invalid
from alluvia.operations.reading.relations import Relation, Split
from alluvia.pipelines.execution import LocalExecution, RowOutput
from alluvia.pipelines.pipeline import Pipeline
from alluvia.pipelines.running import TableRun
from alluvia.pipelines.sorting_rows import JudgedRows
from tests.unit.pipelines.conftest import Declare

COPY = "CREATE TABLE copy AS SELECT * FROM events"
TOTALS = "CREATE TABLE totals AS SELECT visitor, sum(n) AS s FROM events GROUP BY visitor"
LAST = "CREATE TABLE last KEY (visitor) SEQUENCE BY n AS SELECT visitor, n, id FROM events"


def rows(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(f"FROM {name} ORDER BY ALL").to_pylist()]


def ran(pipeline: Pipeline, *select: str, full_refresh: bool = False) -> TableRun:
    """Return the report of the one table that a pipeline runs, which must not fail."""
    (report,) = pipeline.run(select, full_refresh=full_refresh)
    assert report.error is None
    return report


def test_a_table_and_its_progress_are_one_commit(lake: Lake, events: Table, declare: Declare) -> None:
    report = ran(declare(TOTALS))
    assert (report.mode, report.sources, report.rows, report.version) == ("rebuilt", {"events": 1}, 2, 0)
    assert rows(lake, "totals") == [("a", 4), ("b", 2)]
    events.append([{"id": 4, "visitor": "b", "n": 5}])
    report = ran(declare(TOTALS))
    assert (report.mode, report.units, report.version) == ("changed", 1, 1)
    assert rows(lake, "totals") == [("a", 4), ("b", 7)]
    (last, *_) = lake["totals"].history()
    assert (last.operation, last.parameters["sources"]) == ("PIPELINE RUN", '{"events":2}')
    assert (ran(declare(TOTALS)).mode, lake["totals"].version) == ("nothing", 1)


def test_a_table_that_fails_stops_only_those_that_read_it(lake: Lake, events: Table, declare: Declare) -> None:
    pipeline = declare(
        "CREATE TABLE bad AS SELECT error('no')::INT AS x FROM events",
        "CREATE TABLE below AS SELECT count(*) AS n FROM bad GROUP BY x",
        TOTALS,
    )
    bad, below, totals = pipeline.run()
    assert (bad.mode, below.mode, totals.mode) == ("failed", "skipped", "rebuilt")
    assert str(bad.error).endswith("/all.sql:1: table bad: Invalid Input Error: no")
    assert str(below.error).endswith("/all.sql:2: table below: skipped, since bad failed")
    assert lake.tables() == ["events", "totals"]


def test_a_missing_source_is_named(declare: Declare) -> None:
    (report,) = declare(COPY).run()
    assert "table copy: its query reads a table that does not exist" in str(report.error)


def test_a_view_as_a_source_is_named(lake: Lake, events: Table, declare: Declare) -> None:
    lake.sql("CREATE VIEW visitors AS SELECT visitor FROM events")
    (report,) = declare("CREATE TABLE copy AS SELECT * FROM visitors").run()
    assert "its query reads the view visitors: write its SELECT as a WITH clause" in str(report.error)


def test_a_run_records_when_it_looked_at_its_sources(
    lake: Lake, events: Table, declare: Declare, clock: ManualClock
) -> None:
    began = clock.now_ms()

    class Slow(LocalExecution):
        def written(self, relation: Relation, split: Split, output: RowOutput) -> JudgedRows:
            clock.sleep(600)
            return LocalExecution(self.evaluate).written(relation, split, output)

    pipeline = declare(COPY)
    pipeline.run(execution=Slow(lake.evaluation()))
    assert clock.now_ms() - began >= 600_000
    assert pipeline.status()[0]["last_run"] == datetime_of(began)


def test_a_group_that_an_expectation_left_out_comes_back_whole(lake: Lake, events: Table, declare: Declare) -> None:
    ran(declare(TOTALS.replace("TABLE totals", "TABLE totals (CONSTRAINT c EXPECT (s < 3) ON VIOLATION QUARANTINE)")))
    assert (rows(lake, "totals"), len(rows(lake, "totals_quarantine"))) == ([("b", 2)], 1)
    events.append([{"id": 4, "visitor": "a", "n": 5}])
    assert ran(declare(TOTALS)).units == 1
    assert (rows(lake, "totals"), rows(lake, "totals_quarantine")) == ([("a", 9), ("b", 2)], [])


def test_a_full_refresh_with_other_columns_empties_a_former_quarantine(
    lake: Lake, events: Table, declare: Declare
) -> None:
    ran(declare(TOTALS.replace("TABLE totals", "TABLE totals (CONSTRAINT c EXPECT (s < 3) ON VIOLATION QUARANTINE)")))
    assert len(rows(lake, "totals_quarantine")) == 1
    columns = "visitor, max(n) AS most"
    text = f"CREATE TABLE totals (CONSTRAINT c EXPECT (most < 3)) AS SELECT {columns} FROM events GROUP BY visitor"
    ran(declare(text), full_refresh=True)
    assert (rows(lake, "totals"), rows(lake, "totals_quarantine")) == ([("a", 3), ("b", 2)], [])


@pytest.mark.parametrize("value", ["NULL", "[]", "CASE WHEN n > 1 THEN NULL END", "{'NULL': NULL}"])
def test_a_column_without_a_type_is_refused(events: Table, declare: Declare, value: str) -> None:
    (planned,) = declare(f"CREATE TABLE copy AS SELECT id, {value} AS e FROM events").plan()
    assert "column 'e' of the table has values without a type, such as NULL: cast them to one" in str(planned["why"])


def test_a_field_may_be_called_null(lake: Lake, events: Table, declare: Declare) -> None:
    ran(declare("""CREATE TABLE copy AS SELECT {'NULL': n, 'a "NULL" x': [n]} AS e FROM events WHERE n = 2"""))
    assert rows(lake, "copy") == [({"NULL": 2, 'a "NULL" x': [2]},)]


def test_two_rows_of_a_key_are_an_error_that_names_it(lake: Lake, events: Table, declare: Declare) -> None:
    keyed = declare("CREATE TABLE users KEY (visitor) AS SELECT DISTINCT visitor, n // 10 AS tens FROM events")
    ran(keyed)
    events.append([{"id": 9, "visitor": "b", "n": 70}])
    (report,) = keyed.run()
    assert 'two rows of table users have the same KEY ("visitor"): (b)' in str(report.error)
    assert rows(lake, "users") == [("a", 0), ("b", 0)]


def test_a_failed_expectation_names_a_row_and_leaves_the_table(lake: Lake, events: Table, declare: Declare) -> None:
    strict = declare(
        "CREATE TABLE copy (CONSTRAINT small EXPECT (n < 5) ON VIOLATION FAIL) AS SELECT id, n FROM events"
    )
    ran(strict)
    before = set(lake.store.list(""))
    events.append([{"id": 4, "visitor": "b", "n": 4}, {"id": 5, "visitor": "b", "n": 50}])
    (report,) = strict.run()
    assert "a row does not meet the expectation small (n < 5): id=5, n=50" in str(report.error)
    assert rows(lake, "copy") == [(1, 1), (2, 2), (3, 3)]
    assert {each.key for each in {*lake.store.list("copy/")} - before} == set()


def test_rows_are_set_aside_dropped_and_counted(lake: Lake, events: Table, declare: Declare) -> None:
    events.append([{"id": 4, "visitor": None, "n": 9}, {"id": 5, "visitor": "c", "n": None}])
    text = """CREATE TABLE copy (
        CONSTRAINT known EXPECT (visitor IS NOT NULL) ON VIOLATION QUARANTINE,
        CONSTRAINT even EXPECT (n % 2 = 0) ON VIOLATION WARN,
        CONSTRAINT below EXPECT (n < 3) ON VIOLATION DROP ROW) AS SELECT visitor, n FROM events"""
    report = ran(declare(text))
    assert report.failed == {"known": 1, "even": 4, "below": 3}  # null is not true
    assert (report.rows, report.quarantined) == (5, 1)
    assert rows(lake, "copy") == [("a", 1), ("b", 2)]
    assert lake.sql("FROM copy_quarantine").to_pylist() == [
        {"visitor": None, "n": 9, "_failed": ["known", "even", "below"], "_source_versions": '{"events":2}'}
    ]


def test_rows_that_come_to_meet_expectations_leave_the_quarantine(lake: Lake, events: Table, declare: Declare) -> None:
    text = """CREATE TABLE totals (CONSTRAINT some EXPECT (s > 3) ON VIOLATION QUARANTINE)
        AS SELECT visitor, sum(n) AS s FROM events GROUP BY visitor"""
    ran(declare(text))
    assert (rows(lake, "totals"), rows(lake, "totals_quarantine")) == ([("a", 4)], [("b", 2, ["some"], '{"events":1}')])
    events.append([{"id": 4, "visitor": "b", "n": 5}])
    events.delete("id = 3")
    ran(declare(text))
    assert (rows(lake, "totals"), rows(lake, "totals_quarantine")) == ([("b", 7)], [("a", 1, ["some"], '{"events":3}')])


CHANGES = [
    (TOTALS, TOTALS.replace("sum(n)", "max(n)"), "the query changed"),
    (COPY, COPY.replace("AS SELECT", "PARTITIONED BY (visitor) AS SELECT"), "PARTITIONED BY changed"),
    (COPY, COPY.replace("AS SELECT", "KEY (id) AS SELECT"), "KEY and the kind changed"),
    (LAST, LAST.replace("SEQUENCE BY n", "SEQUENCE BY id"), "SEQUENCE BY changed"),
    (TOTALS, TOTALS.replace("AS SELECT", "KIND FULL AS SELECT"), "the kind changed"),
]


@pytest.mark.parametrize(("before", "after", "says"), CHANGES)
def test_a_change_that_computes_all_again_must_be_asked_for(
    lake: Lake, events: Table, declare: Declare, before: str, after: str, says: str
) -> None:
    name = ran(declare(before)).table
    kept = rows(lake, name)
    changed = declare(after)
    (planned,) = changed.plan()
    (report,) = changed.run()
    assert planned["mode"] == "refused"
    assert planned["why"] == report.error
    assert f"{says}, so that all rows must be computed again: run it with --full-refresh" in str(report.error)
    assert rows(lake, name) == kept
    report = ran(changed, full_refresh=True)
    assert (report.mode, report.reason) == ("rebuilt", says)
    assert ran(changed).mode == "nothing"


def test_other_changes_apply_with_the_next_run(lake: Lake, events: Table, declare: Declare) -> None:
    ran(declare(TOTALS))
    reworded = TOTALS.replace("AS SELECT", "SORT BY (s) TBLPROPERTIES ('owner' = 'me') AS -- why\n select")
    assert ran(declare(reworded)).mode == "nothing"
    assert lake["totals"].snapshot().properties["owner"] == "me"
    assert lake["totals"].snapshot().properties["alluvia.sort_by"] == '["s"]'
    ran(declare(TOTALS))
    assert "owner" not in lake["totals"].snapshot().properties


def test_new_columns_of_a_source_reach_tables_that_append(lake: Lake, events: Table, declare: Declare) -> None:
    ran(declare(COPY))
    events.evolve(add={"more": "string"})
    events.append([{"id": 4, "visitor": "c", "n": 4, "more": "x"}])
    ran(declare(COPY))
    assert rows(lake, "copy")[-1] == (4, "c", 4, "x")
    assert lake["copy"].schema.names == ["id", "visitor", "n", "more"]
    keyed = COPY.replace("AS SELECT", "KEY (id) AS SELECT")
    ran(declare(keyed), full_refresh=True)
    events.evolve(add={"again": "string"})
    (report,) = declare(keyed).run()
    assert "the query gives other columns now (again is new)" in str(report.error)
    ran(declare(keyed), full_refresh=True)
    assert lake["copy"].schema.names[-1] == "again"


def test_a_column_that_the_query_names_keeps_its_meaning(lake: Lake, events: Table, declare: Declare) -> None:
    text = "CREATE TABLE tens AS SELECT n // 10 AS ten, count(*) AS c FROM events GROUP BY ten"
    ran(declare(text))
    events.evolve(add={"ten": "long"})
    events.append([{"id": 4, "visitor": "c", "n": 14, "ten": 7}])
    assert ran(declare(text)).mode == "changed"
    assert rows(lake, "tens") == [(0, 3), (1, 1)]


def test_another_table_of_a_sources_name(lake: Lake, events: Table, declare: Declare) -> None:
    pipeline = declare(COPY, TOTALS)
    pipeline.run()
    lake.drop_table("events")
    missing = [str(each.error) for each in pipeline.run()]
    assert all("does not exist" in each for each in missing)
    table = lake.create_table("events", {"id": "long", "visitor": "string", "n": "long"})
    table.append([{"id": 1, "visitor": "z", "n": 1}])
    copied, total = pipeline.run()
    assert "events was dropped and created again: to start again from its rows, run" in str(copied.error)
    assert (total.mode, total.reason) == ("rebuilt", "events was dropped and created again")
    assert (len(rows(lake, "copy")), rows(lake, "totals")) == (3, [("z", 1)])
    ran(pipeline, "copy", full_refresh=True)
    assert rows(lake, "copy") == [(1, "z", 1)]


def test_a_source_that_comes_back_after_another_of_its_name(lake: Lake, events: Table, declare: Declare) -> None:
    pipeline = declare(COPY, TOTALS)
    pipeline.run()
    dropped_in = events.version + 1
    lake.drop_table("events")
    lake.create_table("events", {"id": "long", "visitor": "string", "n": "long"}).append(
        [{"id": 9, "visitor": "z", "n": 9}]
    )
    pipeline.run(full_refresh=True)
    lake.drop_table("events")
    lake.undrop("events", version=dropped_in)
    reason = " does not say which version of events it shows, since it was published from a branch, or another table"
    assert [str(each["why"]).count(reason) for each in pipeline.plan()] == [1, 1]
    copied, total = pipeline.run()
    assert f"copy{reason} was called events meanwhile: to start again from its rows, run" in str(copied.error)
    assert (total.mode, total.error) == ("rebuilt", None)
    ran(pipeline, "copy", full_refresh=True)
    assert (len(rows(lake, "copy")), rows(lake, "totals")) == (3, [("a", 4), ("b", 2)])


def test_only_runs_write_the_tables_of_a_pipeline(lake: Lake, events: Table, declare: Declare) -> None:
    pipeline = declare(COPY.replace("copy", "copy (CONSTRAINT c EXPECT (n > 1) ON VIOLATION QUARANTINE)"))
    ran(pipeline)
    for name in ("copy", "copy_quarantine"):
        with pytest.raises(Invalid, match="belongs to a pipeline, and only its runs write it"):
            lake[name].delete("true")
        with pytest.raises(Invalid, match="belongs to a pipeline"):
            lake.sql(f"INSERT INTO {name} SELECT * FROM {name}")
    with pytest.raises(Invalid, match="change the query in its declaration"):
        lake["copy"].evolve(add={"x": "long"})
    with pytest.raises(Invalid, match="cannot be set: declare the table in a pipeline"):
        lake.create_table("own", {"a": "long"}, properties={"alluvia.pipeline": "{}"})
    lake["copy"].optimize(full=True)
    assert ran(pipeline).mode == "nothing"


def test_a_table_of_another_is_left_alone(lake: Lake, events: Table, declare: Declare) -> None:
    lake.create_table("copy", {"id": "long"}).append([{"id": 7}])
    (report,) = declare(COPY).run()
    assert "there is a table of this name that no pipeline has made" in str(report.error)
    assert rows(lake, "copy") == [(7,)]


class Meddling:
    """Computes relations as a lake does, but has something else happen before the first rows are written."""

    def __init__(self, lake: Lake, meddle: Any) -> None:
        self._evaluate, self._meddle = lake.evaluation(), meddle

    def __call__(self, relation: Relation, take: Any) -> Any:
        def meddled(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Any:
            if {"pipeline_made", "pipeline_kept"} & relation.views.keys():
                meddle, self._meddle = self._meddle, lambda: None
                meddle()
            return take(schema, batches)

        return self._evaluate(relation, meddled)


@pytest.mark.parametrize("text", [COPY, TOTALS, LAST, TOTALS.replace("AS SELECT", "KEY (visitor) KIND FULL AS SELECT")])
@pytest.mark.parametrize("begun", [False, True])
def test_of_two_runs_at_once_one_plans_again(
    lake: Lake, events: Table, declare: Declare, text: str, begun: bool
) -> None:
    pipeline = declare(text)
    name = pipeline.declarations[0].target
    if begun:
        ran(pipeline)

    def meddle() -> None:
        events.append([{"id": 5, "visitor": "a", "n": 10}])
        assert ran(pipeline).sources == {"events": events.version}
        events.append([{"id": 6, "visitor": "a", "n": 20}])

    events.append([{"id": 4, "visitor": "a", "n": 5}])
    report = ran(Pipeline(lake.catalog, lambda: Meddling(lake, meddle), pipeline.declarations))
    assert (report.tries, report.sources) == (2, {"events": events.version})
    found = rows(lake, name)
    lake.drop_table(name)
    ran(pipeline)
    assert rows(lake, name) == found


def test_a_run_survives_an_optimize_of_its_table(lake: Lake, events: Table, declare: Declare) -> None:
    pipeline = declare(TOTALS, COPY)
    pipeline.run()
    events.append([{"id": 4, "visitor": "b", "n": 5}])
    pipeline.run()

    def meddle() -> None:
        lake["totals"].optimize(full=True)

    events.append([{"id": 5, "visitor": "b", "n": 1}])
    meddled = Pipeline(lake.catalog, lambda: Meddling(lake, meddle), pipeline.declarations)
    assert [each.error for each in meddled.run()] == [None, None]
    assert rows(lake, "totals") == [("a", 4), ("b", 8)]


def test_an_erased_person_does_not_come_back(lake: Lake, events: Table, declare: Declare, clock: ManualClock) -> None:
    pipeline = declare(COPY, TOTALS, LAST)
    pipeline.run()
    for name in ("events", "copy", "totals", "last"):
        lake[name].erase("visitor = 'a'")
        assert "a" not in [row["visitor"] for row in lake[name].to_arrow().to_pylist()]
    events.append([{"id": 9, "visitor": "c", "n": 9}])
    assert [each.error for each in pipeline.run()] == [None, None, None]
    assert rows(lake, "copy") == [(2, "b", 2), (9, "c", 9)]
    assert rows(lake, "totals") == [("b", 2), ("c", 9)]
    assert rows(lake, "last") == [("b", 2, 2), ("c", 9, 9)]


def test_a_restored_lake_is_followed_by_the_next_run(lake: Lake, events: Table, declare: Declare) -> None:
    pipeline = declare(TOTALS)
    ran(pipeline)
    lake.sql("CREATE TAG before")
    events.append([{"id": 4, "visitor": "b", "n": 5}])
    ran(pipeline)
    lake.restore(tag="before")
    assert rows(lake, "totals") == [("a", 4), ("b", 7)]
    ran(pipeline)
    assert rows(lake, "totals") == [("a", 4), ("b", 2)]


def test_a_pipeline_runs_on_a_branch_and_is_published(lake: Lake, events: Table, declare: Declare) -> None:
    ran(declare(TOTALS))
    events.append([{"id": 4, "visitor": "b", "n": 5}])
    fix = lake.branch("fix")
    wider = TOTALS.replace("sum(n) AS s", "sum(n) AS s, count(*) AS c")
    ran(declare(wider, on=fix), full_refresh=True)
    assert (rows(fix, "totals"), rows(lake, "totals")) == ([("a", 4, 2), ("b", 7, 2)], [("a", 4), ("b", 2)])
    assert [(each.name, each.kind) for each in fix.diff()] == [("totals", "replaced")]
    fix.publish()
    assert rows(lake, "totals") == [("a", 4, 2), ("b", 7, 2)]
    assert ran(declare(wider)).mode == "nothing"
