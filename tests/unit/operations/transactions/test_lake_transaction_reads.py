"""Reads of a transaction over several tables: one moment of the lake, checked when it commits."""

from __future__ import annotations

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import ConcurrentAppend, Conflict, TableNotFound
from alluvia.operations.append.append import append
from alluvia.operations.catalog import lake_snapshot
from alluvia.operations.transactions.lake_commit import SNAPSHOT
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia.store import CountingStore
from tests.unit.operations.transactions.tables import NUMBERS, amounts, two


def test_what_names_no_table_sees_all_as_they_were_at_the_first_use_and_never_conflicts(
    lake: Lake, other: Lake, clock: ManualClock
) -> None:
    two(lake)
    lake.create_table("c", NUMBERS).append([{"n": 1}])
    counting = CountingStore(lake.store)
    with Lake(counting, lake.clock).transaction() as tx:
        assert amounts(tx, "a") == [1, 2]
        with other.transaction() as both:
            both.table("a").append([{"n": 3}])
            both.table("b").append([{"n": 3}])
        other.table("a").delete("true")
        other.drop_table("c")
        clock.advance(1)
        other.create_table("d", NUMBERS)
        assert (amounts(tx, "b"), amounts(tx, "a")) == ([1, 2], [1, 2])
        with pytest.raises(TableNotFound, match="table 'd' did not exist yet"):
            tx.table("d")
        assert amounts(tx, "c") == [1]
    assert counting.requests["put"] == 0


def test_looking_at_a_lake_costs_one_get_for_each_table_that_is_known(lake: Lake) -> None:
    two(lake)
    lake.create_table("c", NUMBERS)
    counting = CountingStore(lake.store)
    warm = Lake(counting, lake.clock)
    for name in warm.tables():
        warm.table(name).count()
    counting.requests.clear()
    with warm.transaction() as tx:
        for name in ("a", "b", "c"):
            tx.table(name)
        assert dict(counting.requests) == {"list": 1, "get": 3}


def test_a_lake_of_many_tables_is_not_looked_at_as_a_whole(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    two(lake)
    monkeypatch.setattr(lake_snapshot, "TABLES_MAX", 1)
    with lake.transaction() as tx:
        assert amounts(tx, "a") == [1, 2]
        other.table("b").append([{"n": 3}])
        assert amounts(tx, "b") == [1, 2, 3]


def test_a_table_that_was_not_named_is_read_at_the_same_moment_as_the_others(lake: Lake, other: Lake) -> None:
    two(lake)
    lake.create_table("c", NUMBERS).append([{"n": 1}])
    with lake.transaction(["a"]) as tx:
        tx.table("a").scan(where="n = 1").read_all()
        tx.table("a").append([{"n": 9}])
        with other.transaction() as both:
            both.table("a").append([{"n": 3}])
            both.table("b").append([{"n": 3}])
        assert amounts(tx, "b") == [1, 2, 3]
        assert amounts(tx, "a") == [1, 2, 3, 9]
        tx.rollback()
    with lake.transaction(["a", "c"]) as tx:
        before = amounts(tx, "a")
        other.table("a").delete("true")
        assert (amounts(tx, "c"), amounts(tx, "a")) == ([1], before)


def test_a_query_has_read_what_its_conditions_could_match(lake: Lake, other: Lake) -> None:
    two(lake)
    lake.table("a").append([{"n": 50}])
    for changed, conflicts in (("n = 50", False), ("n = 1", True)):
        tx = lake.transaction()
        assert tx.sql("SELECT count(*) AS c FROM a WHERE n < 10").to_pylist() == [{"c": 2}]
        tx.table("b").append([{"n": 3}])
        other.table("a").delete(changed)
        if conflicts:
            with pytest.raises(Conflict):
                tx.commit()
        else:
            tx.commit()
    assert amounts(other, "b") == [1, 2, 3]


def test_a_transaction_lists_the_tables_as_they_will_be(lake: Lake) -> None:
    two(lake)
    with lake.transaction() as tx:
        tx.create_table("c", {"n": "long"})
        tx.drop_table("a")
        assert tx.sql("SHOW TABLES").to_pylist() == [{"name": "b"}, {"name": "c"}]
        tx.rollback()


@pytest.mark.parametrize(("isolation", "conflicts"), [("write_serializable", True), ("snapshot", False)])
def test_what_was_read_of_a_changed_table_counts_unless_nothing_does(
    lake: Lake, other: Lake, isolation: str, conflicts: bool
) -> None:
    two(lake)
    tx = lake.transaction(isolation=isolation)
    highest = max(amounts(tx, "a")) + len(amounts(tx, "b"))
    tx.table("a").append([{"n": highest + 1}])
    other.table("b").append([{"n": 9}])
    other.table("a").append([{"n": 9}])
    if conflicts:
        with pytest.raises(Conflict):
            tx.commit()
    else:
        tx.commit()
    assert amounts(other, "a") == ([1, 2, 9] if conflicts else [1, 2, 5, 9])


def test_a_check_looks_at_the_winners_of_a_lost_race_and_only_then(lake: Lake, other: Lake) -> None:
    two(lake)
    looks: list[int] = []

    def check() -> None:
        looks.append(lake.table("a").version)
        if len(looks) == 2:
            raise ConcurrentAppend("not with these")

    def commit(*, after: bool) -> None:
        staged = StagedTables(lake.catalog, ["a"])
        handle = staged.handle("a")
        handle.checks.append(check)
        append(handle, pa.table({"n": [5]}))
        if after:
            other.table("a").append([{"n": 6}])
        staged.commit(SNAPSHOT)

    commit(after=False)
    assert looks == []
    commit(after=True)
    assert looks == [3]
    with pytest.raises(ConcurrentAppend, match="not with these"):
        commit(after=True)
    assert amounts(other, "a") == [1, 2, 5, 5, 6, 6]
