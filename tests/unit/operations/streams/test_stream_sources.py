"""Sources of streams: where a stream begins, and sources that expire, go or come back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Conflict, Invalid, TableNotFound, VersionExpired, VersionNotFound
from alluvia.store import CountingStore
from tests.unit.operations.streams.orders import COLUMNS, arrived, consume, ids, order, unread, with_stream


@pytest.fixture
def lake(store: CountingStore, clock: ManualClock) -> Lake:
    return with_stream(store, clock)


def test_a_restore_that_another_restore_has_undone_is_none(lake: Lake) -> None:
    order(lake, 1)
    lake.table("orders").restore(version=0)
    order(lake, 2)
    lake.table("orders").restore(version=1)
    assert unread(lake) == [("insert", 1, 1)]
    order(lake, 3)
    assert unread(lake) == [("insert", 1, 1), ("insert", 5, 3)]


def test_where_a_stream_begins(lake: Lake, clock: ManualClock) -> None:
    order(lake, 1)
    clock.advance(3600)
    order(lake, 2)
    lake.create_stream("all_of_it", "orders", version=0)
    lake.create_stream("lately", "orders", offset="30 minutes ago")
    lake.create_stream("whole", "orders", initial_rows=True)
    lake.table("orders").delete("id = 1")
    assert ids(unread(lake, "all_of_it")) == [1, 2, 1]
    assert ids(unread(lake, "lately")) == [2, 1]
    assert unread(lake, "whole") == [("insert", 3, 2)]
    consume(lake, "whole")
    order(lake, 3)
    assert unread(lake, "whole") == [("insert", 4, 3)]
    with pytest.raises(VersionNotFound):
        lake.create_stream("late", "orders", version=9)
    with pytest.raises(Invalid, match="initial_rows: "):
        lake.create_stream("late", "orders", 1, initial_rows=True)
    with pytest.raises(Invalid, match="give one of them"):
        lake.create_stream("late", "orders", 1, offset="1 hour ago")


def test_initial_rows_are_without_what_comes_again_later(lake: Lake) -> None:
    """A transaction that was decided and not carried out yet: its rows are in a later version."""
    lake.create_stream("whole", "orders", initial_rows=True)
    order(lake, 1)
    hooked = Lake(lake.store, lake.clock)
    tx = hooked.transaction(["big", "orders"])
    tx.table("orders").append([{"id": 2, "amount": 0}])
    tx.table("big").append([{"id": 2, "amount": 0}])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("alluvia.operations.transactions.lake_commit.carry_out_claim", lambda *_: None)
        tx.commit()
    fresh = Lake(lake.store, lake.clock)
    with pytest.MonkeyPatch.context() as patched:  # which keeps the transaction's rows out of the log
        patched.setattr("alluvia.commit.warm_table.WarmTable.carry_out", lambda *_: False)
        seen = fresh.stream("whole").to_arrow()["id"].to_pylist()
        assert seen == [1]
        consume(fresh, "whole")
    fresh.table("orders").append([{"id": 9, "amount": 0}])
    seen += ids(unread(fresh, "whole"))
    assert sorted(seen) == [1, 2, 9]


def test_a_stream_that_fell_behind_says_how_to_go_on(lake: Lake, clock: ManualClock) -> None:
    order(lake, 1)
    lake.table("orders").delete("true")
    committed = lake.table("orders").history()[-2].timestamp
    assert lake.stream("new_orders").info().stale_after == committed + timedelta(days=7)
    clock.advance(8 * 24 * 3600)
    order(lake, 2)
    lake.table("orders").vacuum()
    with pytest.raises(VersionExpired) as raised:
        unread(lake)
    oldest = int(str(raised.value).split("those of version ")[1].split(".")[0])
    assert f"lake.move_stream('new_orders', {oldest - 1})" in str(raised.value)
    with pytest.raises(VersionExpired, match="stream new_orders has fallen behind"):
        consume(lake)
    assert lake.move_stream("new_orders", oldest - 1).position == oldest - 1
    assert ids(unread(lake)) == [2]


def test_moving_a_stream(lake: Lake, clock: ManualClock) -> None:
    order(lake, 1)
    clock.advance(60)
    order(lake, 2)
    assert lake.move_stream("new_orders").versions_behind == 0
    assert unread(lake) == []
    assert lake.move_stream("new_orders", -1).position == -1
    assert ids(unread(lake)) == [1, 2]
    moment = datetime.fromtimestamp(clock.now_ms() / 1000 - 30, UTC)
    assert lake.move_stream("new_orders", timestamp=moment).position == 1
    for wrong in (-2, 3, True):
        with pytest.raises(Invalid, match="version: expected a version of orders up to 2, or -1"):
            lake.move_stream("new_orders", wrong)
    tx = lake.transaction()
    tx.table("big").append(tx.stream("new_orders").to_arrow(["id", "amount"]))
    Lake(lake.store, lake.clock).move_stream("new_orders", 0)
    with pytest.raises(Conflict, match="read or moved"):
        tx.commit()


def test_a_source_that_is_gone_or_another_table(lake: Lake) -> None:
    order(lake, 1)
    lake.drop_table("orders")
    with pytest.raises(TableNotFound, match="stream new_orders has lost its table"):
        unread(lake)
    with pytest.raises(TableNotFound, match="stream new_orders has lost its table"):
        consume(lake)
    assert lake.streams()[0].versions_behind is None
    lake.undrop("orders")
    assert unread(lake) == [("insert", 1, 1)]
    lake.drop_table("orders")
    lake.create_table("orders", COLUMNS)
    for use in (unread, consume, lambda lake: lake.move_stream("new_orders", 0)):
        with pytest.raises(Invalid, match="follows the table orders, which has been dropped or replaced"):
            use(lake)
    assert lake.streams()[0].source_version is None


@pytest.mark.parametrize("feed", ["true", "false"])
def test_an_undrop_gives_no_row_again(lake: Lake, feed: str) -> None:
    orders = lake.table("orders")
    orders.evolve(properties={"delta.enableChangeDataFeed": feed})
    lake.create_stream("appended", "orders", appends_only=True)
    order(lake, 1, 2)
    consume(lake)
    consume(lake, "appended")
    dropped = lake.drop_table("orders").version
    lake.create_table("orders", COLUMNS)
    order(lake, 7)
    lake.drop_table("orders")
    back = lake.undrop("orders", dropped).version
    for name in ("new_orders", "appended"):
        assert unread(lake, name) == []
        assert unread(lake, name, max_versions=1) == []
    order(lake, 3)
    assert unread(lake, "new_orders", max_versions=1) == []
    for name in ("new_orders", "appended"):
        assert unread(lake, name) == [("insert", back + 1, 3)]
        consume(lake, name, max_versions=1)
        assert lake.stream(name).info().position == back
        consume(lake, name)
    assert arrived(lake) == [1, 1, 2, 2, 3, 3]


def test_a_lake_that_is_restored_gives_a_stream_of_appended_rows_none(lake: Lake, clock: ManualClock) -> None:
    lake.create_stream("appended", "orders", appends_only=True)
    order(lake, 1)
    consume(lake, "appended")
    clock.advance(60)
    orders = lake.table("orders")
    orders.update({"amount": "0"})
    lake.drop_table("orders")
    lake.restore(offset="30 seconds ago")
    assert lake.table("orders").to_arrow()["amount"].to_pylist() == [10]
    assert unread(lake, "appended") == []
