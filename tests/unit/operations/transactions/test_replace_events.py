"""A table in the place of another does not know its events, but for those whose rows it has taken over."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.event_window.id_files import ID_FOLDER, IDS_IN_COMMIT_MAX
from alluvia.operations.transactions import inherited_event_ids
from alluvia.store import CountingStore
from tests.contract.workers import events
from tests.transactions import APPLY_OF_A, stopped
from tests.unit.operations.bringing import bring
from tests.unit.operations.dropping import send
from tests.unit.operations.ingesting import ingest, stored
from tests.unit.operations.ingesting import table as table  # noqa: PLC0414 - a fixture

COLUMNS = "event_id STRING, ts TIMESTAMP, event STRING, source STRING, properties STRING, received_at TIMESTAMP"


def seen_by(lake: Lake) -> Table:
    """Return the table as a process sees it that has just begun."""
    return Lake(lake.store, lake.clock).table("t")


def by_sql(lake: Lake) -> None:
    lake.sql(f"CREATE OR REPLACE TABLE t ({COLUMNS})")


def by_sql_with_a_query(lake: Lake) -> None:
    lake.sql("CREATE OR REPLACE TABLE t AS SELECT * FROM t WHERE false")


def by_python(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", lake.table("t").schema, replace=True)


def by_a_drop(lake: Lake) -> None:
    lake.sql(f"DROP TABLE t; CREATE TABLE t ({COLUMNS})")


def by_a_branch(lake: Lake) -> None:
    fix = lake.branch("fix")
    by_sql(fix)
    fix.publish()


def by_a_drop_on_a_branch(lake: Lake) -> None:
    fix = lake.branch("fix")
    schema = fix.table("t").schema
    fix.drop_table("t")
    fix.create_table("t", schema)
    fix.publish()


WAYS = (by_sql, by_sql_with_a_query, by_python, by_a_drop, by_a_branch, by_a_drop_on_a_branch)


@pytest.mark.parametrize("replace", WAYS)
@pytest.mark.parametrize("who", ["who replaced it", "a process that knew them", "a new process"])
def test_events_of_the_old_table_may_come_again(
    lake: Lake, table: Table, clock: ManualClock, replace: Callable[[Lake], None], who: str
) -> None:
    known = Lake(lake.store, clock)
    send(known, "a", "b")
    clock.advance(1)
    table.checkpoint()
    replace(lake)
    sender = {"who replaced it": lake, "a process that knew them": known}.get(who) or Lake(lake.store, clock)
    assert send(sender, "a", "b") == (2, 0)
    assert stored(seen_by(lake)) == ["a", "b"]
    for each in (sender, Lake(lake.store, clock)):
        assert send(each, "a", "b") == (2, 2)


def test_a_process_that_knows_all_of_a_batch_looks_whether_a_restore_took_it_back(lake: Lake, table: Table) -> None:
    known = Lake(lake.store, lake.clock)
    send(known, "a")
    table.restore(version=0)
    assert send(known, "a") == (1, 0)
    assert stored(table) == ["a"]


def kept_by_sql(lake: Lake) -> None:
    lake.sql("CREATE OR REPLACE TABLE t AS SELECT * FROM t WHERE event_id < 'c'")


def kept_by_python(lake: Lake) -> None:
    rows = lake.table("t").to_arrow(where="event_id < 'c'")
    with lake.transaction() as tx:
        tx.create_table("t", rows.schema, replace=True).append(rows)


def kept_by_statements(lake: Lake) -> None:
    lake.sql(
        f"CREATE OR REPLACE TABLE t ({COLUMNS}); INSERT INTO t SELECT * FROM t(version => 2) WHERE event_id = 'a';"
        "INSERT INTO t SELECT * FROM t(version => 2) WHERE event_id = 'b'; UPDATE t SET event = 'fixed'"
    )


def kept_by_a_branch(lake: Lake) -> None:
    fix = lake.branch("fix")
    kept_by_sql(fix)
    fix.publish()


KEPT = (kept_by_sql, kept_by_python, kept_by_statements, kept_by_a_branch)


@pytest.mark.parametrize("ids_max", [IDS_IN_COMMIT_MAX, 1], ids=["ids in the commit", "ids in files"])
@pytest.mark.parametrize("replace", KEPT)
def test_events_whose_rows_are_taken_over_are_known(
    lake: Lake,
    table: Table,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    replace: Callable[[Lake], None],
    ids_max: int,
) -> None:
    monkeypatch.setattr(inherited_event_ids, "IDS_IN_COMMIT_MAX", ids_max)
    bring(table, "a", "c")
    ingest(table, "b", "d")
    table.append(events(table.schema, ["appended"]))
    clock.advance(1)
    replace(lake)
    assert stored(seen_by(lake)) == (["a", "appended", "b"] if replace is not kept_by_statements else ["a", "b"])
    for each in (table, seen_by(lake)):
        assert ingest(each, "a", "b") == (0, 2)
    rows = events(table.schema, ["a", "b", "b2"])
    answer = seen_by(lake).ingest(rows.set_column(rows.column_names.index("event"), "event", pa.array(["other"] * 3)))
    assert (answer.appended, answer.clashes) == (1, (0, 1))
    assert ingest(seen_by(lake), "a", "b", "c", "d") == (2, 2)
    assert ingest(table, "c", "d") == (0, 2)
    assert seen_by(lake).verify(full=True).ok
    table.checkpoint()
    assert ingest(seen_by(lake), "a", "b", "c", "d") == (0, 4)


@pytest.mark.parametrize("sources", ["gained", "lost"])
def test_they_are_known_by_the_columns_that_the_new_table_has(lake: Lake, sources: str) -> None:
    without = pa.schema([field for field in lake.create_events("u").schema if field.name != "source"])
    before, after = (without, lake.table("u").schema) if sources == "gained" else (lake.table("u").schema, without)
    table = lake.create_table("t", before)
    table.ingest(events(before, ["a", "b", "c"], "shop"))
    columns = ", ".join(
        f"'shop' AS {name}" if name == "source" and sources == "gained" else name for name in after.names
    )
    lake.sql(f"CREATE OR REPLACE TABLE t AS SELECT {columns} FROM t WHERE event_id <> 'c'")
    assert seen_by(lake).schema.names == after.names
    again = events(after, ["a", "b", "c"], "shop")
    for each in (seen_by(lake), table):
        answer = each.ingest(again, [b"same"] * 3)
        assert (answer.appended, answer.clashes) == (1 if each is not table else 0, (0, 1))


def test_a_restore_knows_the_events_of_the_table_that_it_brings_back(lake: Lake, table: Table) -> None:
    ingest(table, "a")
    ingest(table, "b")
    lake.sql("CREATE OR REPLACE TABLE t AS SELECT * FROM t WHERE event_id = 'a'")
    ingest(table, "c")
    table.restore(version=1)
    assert ingest(seen_by(lake), "a", "b", "c") == (2, 1)
    table.restore(version=4)
    assert stored(table) == ["a", "c"]
    assert ingest(table, "a", "b", "c") == (1, 2)


def test_a_branch_that_brings_the_old_table_back_knows_its_events(lake: Lake, table: Table, clock: ManualClock) -> None:
    ingest(table, "a")
    ingest(table, "b")
    clock.advance(1)
    fix = lake.branch("fix")
    by_sql(fix)
    fix.table("t").restore(version=1)
    fix.publish()
    assert stored(seen_by(lake)) == ["a"]
    assert ingest(seen_by(lake), "a", "b") == (1, 1)


def test_a_restore_in_the_transaction_that_replaces_the_table(lake: Lake, table: Table, store: CountingStore) -> None:
    ingest(table, "a")
    ingest(table, "b")
    files = {f"t/{file.path}" for file in table.snapshot(version=1).files}
    with lake.transaction() as tx:
        new = tx.create_table("t", table.schema, replace=True)
        store.reset()
        new.restore(version=1)
    assert not files & {key for kind, key in store.keys if kind == "get"}
    assert ingest(seen_by(lake), "a", "b") == (1, 1)
    assert stored(seen_by(lake)) == ["a", "b"]


def test_events_in_the_transaction_that_replaces_the_table(lake: Lake, table: Table) -> None:
    ingest(table, "a", "b")
    rows = table.to_arrow(where="event_id = 'a'")
    with lake.transaction() as tx:
        new = tx.create_table("t", rows.schema, replace=True)
        new.append(rows)
        assert ingest(new, "a", "b", "c") == (2, 1)
    assert stored(table) == ["a", "b", "c"]
    assert ingest(seen_by(lake), "a", "b", "c") == (0, 3)


@pytest.mark.parametrize(("query", "known"), [("AS SELECT * FROM a WHERE event_id = 'kept'", 1), (f"({COLUMNS})", 0)])
def test_events_of_a_transaction_that_has_happened_but_is_not_in_the_log(lake: Lake, query: str, known: int) -> None:
    """What has died in between: the table has its rows, and its log has yet to get them, with their ids."""

    def both(there: Lake) -> None:
        with there.transaction(["a", "b"]) as tx:
            for name in ("a", "b"):
                ingest(tx.table(name), "kept", "left")

    for name in ("a", "b"):
        lake.create_events(name)
    stopped(lake, APPLY_OF_A, both)
    lake.sql(f"CREATE OR REPLACE TABLE a {query}")
    cold = Lake(lake.store, lake.clock).table("a")
    assert ingest(cold, "kept", "left") == (2 - known, known)
    assert stored(cold) == ["kept", "left"]


def test_one_get_for_each_file_where_events_are_known(lake: Lake, table: Table, store: CountingStore) -> None:
    rows = events(table.schema, ["a", "b"])
    requests = []
    for ids in ((), ("a",)):
        ingest(table, *ids)
        store.reset()
        with lake.transaction(["t"]) as tx:
            tx.create_table("t", table.schema, replace=True).append(rows)
        requests.append(dict(store.requests))
    assert requests[1] == {**requests[0], "get": requests[0]["get"] + 1}
    assert not list(store.list(f"t/{ID_FOLDER}"))
