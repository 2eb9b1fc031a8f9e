"""Streams: positions in the changes of tables, which move with the commit that uses the changes, and else not."""

from __future__ import annotations

import pytest

from alluvia.access.rights import Grant, Rights
from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Conflict, Forbidden, Invalid, TableExists, TableNotFound
from alluvia.operations import checkpointing
from alluvia.query.engine import columns, run
from alluvia.sql.run import execute
from alluvia.store import CountingStore
from tests.inline_pool import InlinePool
from tests.unit.operations.streams.orders import arrived, consume, ids, order, unread, with_stream


@pytest.fixture
def lake(store: CountingStore, clock: ManualClock) -> Lake:
    return with_stream(store, clock)


def consume_and_fail(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.table("big").append(tx.stream("new_orders").to_arrow(["id", "amount"]))
        tx.table("nothing")


def test_reading_alone_moves_nothing(lake: Lake) -> None:
    order(lake, 1, 2)
    for _ in range(2):
        assert unread(lake) == [("insert", 1, 1), ("insert", 1, 2)]
        assert lake.sql("SELECT id FROM new_orders ORDER BY id").to_pylist() == [{"id": 1}, {"id": 2}]
        with lake.transaction() as tx:
            assert tx.stream("new_orders").to_arrow().num_rows == 2
        with pytest.raises(TableNotFound, match="nothing"):
            consume_and_fail(lake)
        tx = lake.transaction()
        tx.table("big").append(tx.stream("new_orders").to_arrow(["id", "amount"]))
        tx.rollback()
    assert arrived(lake) == []


def test_each_change_is_read_once_by_transactions_that_write(lake: Lake) -> None:
    for batch in ((1, 2), (3,), (4, 5)):
        order(lake, *batch)
        consume(lake)
    assert arrived(lake) == [1, 2, 3, 4, 5]
    assert unread(lake) == []
    consume(lake)
    assert arrived(lake) == [1, 2, 3, 4, 5]
    assert lake.stream("new_orders").info().position == 3


def test_a_transaction_reads_the_same_changes_each_time_and_not_its_own(lake: Lake) -> None:
    order(lake, 1)
    with lake.transaction(["orders", "big"]) as tx:
        first = tx.stream("new_orders").to_arrow()
        order(Lake(lake.store, lake.clock), 2)
        tx.table("orders").append([{"id": 3, "amount": 0}])
        assert tx.stream("new_orders").to_arrow() == first
        assert tx.sql("SELECT id FROM new_orders").to_pylist() == [{"id": 1}]
        tx.table("big").append(first.select(["id", "amount"]))
    assert tx.versions.keys() == {"orders", "big"}
    assert ids(unread(lake)) == [2, 3]


def test_of_two_consumers_one_wins(lake: Lake) -> None:
    order(lake, 1)
    other = Lake(lake.store, lake.clock)
    slow = other.transaction()
    slow.table("big").append(slow.stream("new_orders").to_arrow(["id", "amount"]))
    consume(lake)
    with pytest.raises(Conflict, match="stream new_orders was read or moved by another transaction meanwhile"):
        slow.commit()
    assert arrived(lake) == [1]
    consume(other)
    assert arrived(lake) == [1]


@pytest.mark.parametrize("isolation", ["serializable", "write_serializable", "snapshot"])
def test_the_source_may_change_meanwhile(lake: Lake, isolation: str) -> None:
    order(lake, 1)
    tx = lake.transaction(isolation=isolation)
    rows = tx.stream("new_orders").to_arrow(["id", "amount"])
    order(Lake(lake.store, lake.clock), 2)
    tx.table("big").append(rows)
    tx.commit()
    assert arrived(lake) == [1]
    assert ids(unread(lake)) == [2]


def test_a_statement_reads_a_stream_once_even_if_nothing_comes_of_it(lake: Lake) -> None:
    order(lake, 1, 20)
    order(lake, 2, 30)
    lake.sql("INSERT INTO big SELECT id, amount FROM new_orders WHERE amount > 100")
    assert arrived(lake) == [20, 30]
    order(lake, 3)
    done = lake.sql("INSERT INTO big SELECT id, amount FROM new_orders WHERE amount > 100")
    assert done.to_pylist()[0]["rows_inserted"] == 0
    assert unread(lake) == []
    order(lake, 40)
    lake.sql("MERGE INTO big USING new_orders AS n ON big.id = n.id WHEN NOT MATCHED THEN INSERT (id) VALUES (n.id)")
    order(lake, 40)
    lake.sql("DELETE FROM big WHERE id IN (SELECT id FROM new_orders)")
    assert (arrived(lake), unread(lake)) == ([20, 30], [])


def test_what_only_asks_for_columns_has_read_nothing(lake: Lake) -> None:
    order(lake, 1)
    with lake.transaction() as tx:
        assert columns(tx.catalog, "SELECT id, _change_type FROM new_orders").names == ["id", "_change_type"]
        tx.sql("EXPLAIN SELECT * FROM new_orders")
        tx.table("big").append([{"id": 7, "amount": 7}])
    assert ids(unread(lake)) == [1]


def test_limits_cut_between_versions(lake: Lake) -> None:
    for batch in ((1, 2), (3,), (4, 5, 6), (7,)):
        order(lake, *batch)
    assert ids(unread(lake, max_versions=2)) == [1, 2, 3]
    assert ids(unread(lake, max_rows=4)) == [1, 2, 3]
    assert ids(unread(lake, max_rows=1)) == [1, 2]
    with lake.transaction() as tx:
        tx.stream("new_orders").to_arrow(max_rows=4)
        with pytest.raises(Invalid, match="has read stream new_orders with other limits"):
            tx.stream("new_orders").to_arrow(max_rows=5)
        assert tx.stream("new_orders").to_arrow().num_rows == 3
    counts = []
    while unread(lake):
        consume(lake, max_rows=3)
        counts.append(len(arrived(lake)))
    assert counts == [3, 6, 7]
    with pytest.raises(Invalid, match="max_rows: expected a whole number above 0"):
        unread(lake, max_rows=0)


def test_changes_of_all_kinds_and_appended_rows_alone(lake: Lake) -> None:
    lake.create_stream("appended", "orders", appends_only=True)
    orders = lake.table("orders")
    order(lake, 1, 2)
    orders.update({"amount": "0"}, "id = 1")
    orders.delete("id = 2")
    with lake.transaction() as tx:
        tx.table("orders").append([{"id": 3, "amount": 0}])
        tx.table("orders").append([{"id": 4, "amount": 0}])
    orders.optimize(full=True)
    kinds = [(kind, version) for kind, version, _ in unread(lake)]
    assert {("insert", 1), ("delete", 2), ("insert", 2), ("delete", 3), ("insert", 4)} <= set(kinds)
    assert [(version, each) for _, version, each in unread(lake, "appended")] == [(1, 1), (1, 2), (4, 3), (4, 4)]
    consume(lake, "appended")
    assert (arrived(lake), unread(lake, "appended")) == ([1, 2, 3, 4], [])
    orders.restore(version=1)
    assert unread(lake) == [("insert", 1, 1), ("insert", 1, 2)]  # what came and was taken back is left out
    assert unread(lake, "appended") == []
    lake.move_stream("new_orders", 3)
    assert ("insert", 6) in {(kind, version) for kind, version, _ in unread(lake)}


def test_verify_knows_transactions_with_streams(lake: Lake) -> None:
    order(lake, 1)
    consume(lake)
    with pytest.MonkeyPatch.context() as patched:  # its process dies before it carries out what was decided
        patched.setattr("alluvia.operations.transactions.lake_commit.carry_out_claim", lambda *_: None)
        order(lake, 2)
        consume(lake)
    assert [lake.table(name).verify().findings for name in ("orders", "big")] == [(), ()]
    assert arrived(Lake(lake.store, lake.clock)) == [1, 2]
    assert unread(Lake(lake.store, lake.clock)) == []


def test_a_branch_has_streams_of_its_own(lake: Lake) -> None:
    order(lake, 1)
    fix = lake.branch("fix")
    assert fix.streams() == []
    fix.create_stream("new_orders", "orders", version=0)
    order(fix, 2)
    consume(fix)
    assert (arrived(fix), arrived(lake), ids(unread(lake))) == ([1, 2], [], [1])


def test_names(lake: Lake) -> None:
    lake.sql("CREATE VIEW seen AS SELECT 1")
    for taken, message in (("orders", "there is a table or view"), ("seen", "there is a table or view"),
                           ("new_orders", "stream 'new_orders' already exists")):  # fmt: skip
        with pytest.raises(TableExists, match=message):
            lake.create_stream(taken, "orders")
    assert lake.create_stream("new_orders", "orders", exist_ok=True).info().source == "orders"
    with pytest.raises(Invalid, match="stream name"):
        lake.create_stream("a/b", "orders")
    with pytest.raises(TableNotFound):
        lake.create_stream("lost", "nothing")
    for use in (lake.drop_stream, lake.move_stream, lambda name: lake.stream(name).info()):
        with pytest.raises(TableNotFound, match="the lake has no stream 'nothing'"):
            use("nothing")
    assert lake.tables() == ["big", "orders"]
    with pytest.raises(Invalid, match="table name"):
        lake.table("_alluvia/streams/new_orders")
    order(lake, 1)
    lake.drop_stream("new_orders")
    assert lake.streams() == []
    with pytest.raises(TableNotFound):
        lake.sql("FROM new_orders")
    lake.create_stream("new_orders", "orders")
    assert unread(lake) == []


def test_statements(lake: Lake) -> None:
    made = lake.sql("CREATE STREAM IF NOT EXISTS s ON TABLE orders AT (VERSION => 0) APPEND_ONLY = TRUE")
    assert made.to_pylist() == [{"stream": "s", "source": "orders", "position": 0}]
    lake.sql("CREATE STREAM IF NOT EXISTS s ON TABLE orders")
    lake.sql("CREATE STREAM w ON orders SHOW_INITIAL_ROWS = TRUE APPEND_ONLY = FALSE")
    shown = {row["name"]: (row["appends_only"], row["initial_rows"]) for row in lake.sql("SHOW STREAMS").to_pylist()}
    assert shown == {"new_orders": (False, False), "s": (True, False), "w": (False, True)}
    lake.sql("DROP STREAM s")
    lake.sql("DROP STREAM IF EXISTS s")
    with pytest.raises(Invalid, match="CREATE OR REPLACE STREAM is not supported"):
        lake.sql("CREATE OR REPLACE STREAM s ON TABLE orders")
    with pytest.raises(Invalid, match="expected APPEND_ONLY = TRUE or SHOW_INITIAL_ROWS = TRUE, got x"):
        lake.sql("CREATE STREAM s ON TABLE orders x")
    with pytest.raises(Invalid, match="a dry run reads no rows, so it cannot read stream new_orders"):
        run(lake.catalog, "FROM new_orders", dry_run=True)


def rights(*grants: tuple[str, str], where: str | None = None) -> Rights:
    found = [Grant(frozenset({operation}), (table,)) for operation, table in grants]
    limited = [] if where is None else [Grant(frozenset({"read"}), ("orders",), where)]
    return Rights((*found, *limited))


def test_rights(lake: Lake) -> None:
    order(lake, 1)
    reads = rights(("read", "orders"), ("append", "big"))
    assert execute(lake, "SELECT id FROM new_orders", rights=reads).num_rows == 1
    with pytest.raises(Forbidden, match="read:new_orders"):  # as of any name that it may not read
        execute(lake, "FROM new_orders", rights=rights(("read", "big")))
    with pytest.raises(Forbidden, match="only in part"):
        execute(lake, "FROM new_orders", rights=rights(where="id = 2"))
    copy = "INSERT INTO big SELECT id, amount FROM new_orders"
    with pytest.raises(Forbidden, match="write:new_orders"):
        execute(lake, copy, rights=reads)
    assert ids(unread(lake)) == [1]
    execute(lake, copy, rights=rights(("read", "orders"), ("append", "big"), ("write", "new_orders")))
    assert (arrived(lake), unread(lake)) == ([1], [])
    create = "CREATE STREAM s ON TABLE orders"
    for text, lacking in (
        (create, "admin:s"),
        ("DROP STREAM new_orders", "admin:new_orders"),
    ):
        with pytest.raises(Forbidden, match=lacking):
            execute(lake, text, rights=reads)
    with pytest.raises(Forbidden):
        execute(lake, create, rights=rights(("admin", "s")))
    assert execute(lake, "SHOW STREAMS", rights=rights(("read", "big"))).num_rows == 0


def test_what_a_consumer_costs(lake: Lake, store: CountingStore) -> None:
    order(lake, 1)
    consume(lake)
    order(lake, 2)
    store.reset()
    consume(lake)
    assert store.requests["put"] == 6  # a data file, two claims, the decision, and what was claimed
    store.reset()
    assert unread(lake) == []
    assert set(store.requests) <= {"get"}


def test_the_log_of_a_stream_is_kept_short(lake: Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "ThreadPoolExecutor", InlinePool)
    log = "_alluvia/streams/new_orders/"
    for _ in range(2):
        for each in range(120):
            lake.move_stream("new_orders", -1 if each % 2 else 0)
        clock.advance(9 * 24 * 3600)
    order(lake, 1)
    consume(lake)
    for each in range(120):
        lake.move_stream("new_orders", -1 if each % 2 else 0)
    names = [info.key for info in lake.store.list(log)]
    assert any("checkpoint" in name for name in names)
    assert not any(name.endswith("0000000000.json") for name in names)
    assert len([name for name in names if name.endswith(".json")]) < 300
    assert Lake(lake.store, clock).stream("new_orders").info().position == -1
