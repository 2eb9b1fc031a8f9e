"""What a transaction uses after others have changed what it read: all as it was before that, and no conflict."""

from __future__ import annotations

import pytest

from alluvia.api.lake import Lake
from alluvia.api.lake_transaction import LakeTransaction
from alluvia.clock import ManualClock
from alluvia.errors import Conflict, TableNotFound, TransactionExpired
from alluvia.operations.catalog import lake_snapshot
from alluvia.store import CountingStore
from tests.transactions import APPLY_OF_B, DECISION, again, append_both, stopped, two_tables

SCHEMA = {"id": "string", "amount": "long"}


def total(tx: LakeTransaction | Lake, name: str) -> int:
    return sum(tx.table(name).to_arrow()["amount"].to_pylist())


def add(lake: Lake, name: str, amount: int = 1) -> None:
    again(lake).table(name).append([{"id": "more", "amount": amount}])


def move(lake: Lake, *names: str) -> None:
    """Change several tables in one transaction, so that each rests on what is there."""
    with lake.transaction(names) as tx:
        for name in names:
            tx.table(name).update({"amount": "amount + 1"}, "id = 'x'")


@pytest.fixture
def lake(clock: ManualClock) -> Lake:
    """Tables a, b and c."""
    lake = two_tables(clock)
    lake.create_table("c", SCHEMA).append([{"id": "x", "amount": 0}])
    return lake


@pytest.fixture
def begun(lake: Lake, clock: ManualClock) -> LakeTransaction:
    """A transaction that has read a."""
    clock.advance(1)
    tx = again(lake).transaction(["a"])
    assert total(tx, "a") == 200
    return tx


@pytest.mark.parametrize("warm", [False, True])
def test_tables_are_as_they_were_before_what_was_read_changed(
    lake: Lake, clock: ManualClock, begun: LakeTransaction, warm: bool
) -> None:
    if warm:
        begun._lake.table("b").count()
    add(lake, "b")
    clock.advance(1)
    add(lake, "a")
    clock.advance(1)
    for name in ("b", "c", "b"):
        add(lake, name)
    assert [total(begun, name) for name in ("b", "c", "a")] == [201, 0, 200]
    assert begun.sql("SELECT sum(b.amount) + any_value(c.amount) AS n FROM b, c").to_pylist() == [{"n": 201}]
    begun.commit()


def test_a_lake_of_more_tables_than_are_looked_up_never_conflicts_either(
    lake: Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_snapshot, "TABLES_MAX", 1)
    with again(lake).transaction() as tx:
        assert total(tx, "a") == 200
        move(again(lake), "a", "b")
        clock.advance(1)
        add(lake, "c")
        assert [total(tx, name) for name in ("c", "b", "a")] == [0, 200, 200]


def test_writers_whose_clocks_agree_are_told_apart_where_the_store_counts_seconds(
    lake: Lake, begun: LakeTransaction
) -> None:
    """The clock stands still: commits of one table still have times of their own, one after another."""
    for name in ("b", "a"):
        add(lake, name)
    add(lake, "b")
    assert total(begun, "b") == 201


@pytest.mark.parametrize("before", range(APPLY_OF_B + 1))
def test_a_transaction_that_stopped_half_way_is_in_all_tables_or_in_none(
    lake: Lake, begun: LakeTransaction, before: int
) -> None:
    stopped(lake, before)
    add(lake, "a", 0)
    assert (total(begun, "b"), total(begun, "a")) == (200, 200)


@pytest.mark.parametrize("before", [DECISION + 1, APPLY_OF_B, None])
def test_what_follows_a_change_by_way_of_another_table_is_left_out(
    lake: Lake, clock: ManualClock, begun: LakeTransaction, before: int | None
) -> None:
    """The store's clock is put back, so that only the logs tell. The second may not be carried out everywhere yet."""
    begun._lake.table("c").count()
    move(again(lake), "a", "c")
    clock.advance(-60)
    if before is None:
        move(again(lake), "b", "c")
    else:
        stopped(lake, before, lambda dying: move(dying, "b", "c"))
    assert total(again(lake), "c") == 2
    assert (total(begun, "b"), total(begun, "a")) == (200, 200)


@pytest.mark.parametrize("direct", [True, False])
def test_what_was_read_has_what_it_follows_whatever_the_clocks_say(
    lake: Lake, clock: ManualClock, direct: bool
) -> None:
    """The store's clock is put back by a minute before a is changed."""
    clock.advance(60)
    move(again(lake), *(["a", "b"] if direct else ["b", "c"]))
    if not direct:
        move(again(lake), "a", "c")
    clock.advance(-60)
    tx = again(lake).transaction(["a"])
    assert total(tx, "a") == 201
    add(lake, "a")
    assert total(tx, "b") == 201


def test_what_happened_before_is_read_though_it_is_carried_out_later(lake: Lake, clock: ManualClock) -> None:
    stopped(lake, APPLY_OF_B, lambda dying: move(dying, "b", "c"))
    tx = again(lake).transaction(["a"])
    assert total(tx, "a") == 200
    clock.advance(1)
    add(lake, "a")
    clock.advance(1)
    add(lake, "c", 10)  # which carries it out
    assert total(tx, "c") == 1
    assert total(tx, "b") == 201


def test_appends_that_overlap_do_not_follow_one_another(lake: Lake, begun: LakeTransaction) -> None:
    stopped(lake, APPLY_OF_B, append_both)  # b still holds its claim
    with again(lake).transaction(["b", "c"]) as tx:
        for name in ("b", "c"):
            tx.table(name).append([{"id": "other", "amount": 10}])
    add(lake, "a", 0)
    assert total(begun, "b") in (200, 210)
    assert total(begun, "c") == total(begun, "b") - 200


@pytest.mark.parametrize("dropped", ["a", "b"])
def test_a_table_that_was_dropped_is_read_as_it_was(
    lake: Lake, clock: ManualClock, begun: LakeTransaction, dropped: str
) -> None:
    add(lake, "a")
    clock.advance(1)
    again(lake).drop_table(dropped)
    assert (total(begun, "b"), total(begun, "a")) == (200, 200)


def test_a_table_that_was_created_later_is_not_there(lake: Lake, clock: ManualClock, begun: LakeTransaction) -> None:
    add(lake, "a")
    clock.advance(1)
    again(lake).create_table("d", SCHEMA)
    with pytest.raises(TableNotFound, match="table 'd' did not exist yet when the transaction read other tables"):
        begun.table("d")
    assert total(begun, "a") == 200


def test_what_an_erasure_has_taken_is_not_read_as_it_was(
    lake: Lake, clock: ManualClock, begun: LakeTransaction
) -> None:
    """It writes old commits again, so that the store's clock says that they came later."""
    clock.advance(1)
    add(lake, "a")
    clock.advance(1)
    again(lake).table("b").erase("id = 'y'")
    with pytest.raises(TransactionExpired, match="version 1 of b has expired"):
        begun.table("b")


def test_who_has_written_conflicts_when_it_commits(lake: Lake, begun: LakeTransaction) -> None:
    begun.table("a").append([{"id": "new", "amount": total(begun, "a")}])
    add(lake, "a")
    assert total(begun, "b") == 200
    with pytest.raises(Conflict):
        begun.commit()
    assert total(again(lake), "a") == 201


def test_a_table_that_was_read_as_it_was_is_appended_to_as_it_is(lake: Lake, clock: ManualClock) -> None:
    with again(lake).transaction(["a"], isolation="snapshot") as tx:
        assert total(tx, "a") == 200
        for name in ("a", "b"):
            clock.advance(1)
            add(lake, name)
        tx.table("b").append([{"id": "new", "amount": total(tx, "b")}])
    assert total(again(lake), "b") == 401


def test_it_takes_an_hour_at_most(lake: Lake, clock: ManualClock, begun: LakeTransaction) -> None:
    clock.advance(2 * 3600)
    add(lake, "a")
    with pytest.raises(TransactionExpired):
        begun.table("b")


def test_a_late_table_costs_a_listing_of_it_and_of_each_that_changed(lake: Lake) -> None:
    counting = CountingStore(lake.store)
    warm = Lake(counting, lake.clock)
    for name in ("a", "b", "c"):
        warm.table(name).count()
    with warm.transaction(["a", "c"]) as tx:
        assert total(tx, "a") == 200
        add(lake, "a")
        counting.requests.clear()
        tx.table("b")
        assert dict(counting.requests) == {"get": 4, "list": 2}
