"""Transactions over several tables: their isolation, and claims that they meet in the tables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from alluvia.api.lake import Lake
from alluvia.api.lake_transaction import LakeTransaction
from alluvia.clock import SystemClock
from alluvia.errors import Conflict, Invalid
from alluvia.store import CountingStore
from tests.transactions import (
    APPLY_OF_A,
    APPLY_OF_B,
    CLAIM_OF_B,
    DECISION,
    NAMES,
    HookedStore,
    again,
    amounts,
    append_both,
    stopped,
    transfer,
    two_tables,
)
from tests.unit.operations.transactions.hooks import Change, first_at, ids

ISOLATIONS = ("serializable", "snapshot")


def test_an_exception_leaves_nothing_visible() -> None:
    lake = two_tables()
    before = [lake.table(name).version for name in NAMES]
    with pytest.raises(RuntimeError, match="oh"), lake.transaction() as tx:  # noqa: PT012 - the block is what is tested
        tx.table("a").append([{"id": "z", "amount": 1}])
        tx.table("b").delete("true")
        assert tx.table("b").count() == 0
        raise RuntimeError("oh")
    assert [lake.table(name).version for name in NAMES] == before
    assert amounts(lake) == (200, 200)
    with pytest.raises(Invalid, match="over"):
        tx.table("a")


def test_a_transaction_reads_its_cut_and_its_own_changes() -> None:
    lake = two_tables()
    with lake.transaction(NAMES, isolation="snapshot") as tx:
        again(lake).table("b").append([{"id": "z", "amount": 1}])
        tx.table("a").append([{"id": "n", "amount": 5}])
        tx.table("a").update({"amount": "amount + 1"}, "id = 'n'")
        tx.table("a").delete("id = 'y'")
        query = "SELECT (SELECT sum(amount) FROM a) AS a, (SELECT count(*) FROM b) AS b"
        assert tx.sql(query).to_pylist() == [{"a": 106, "b": 2}]
        assert again(lake).table("a").count() == 2
    assert sorted(lake.table("a").to_arrow()["amount"].to_pylist()) == [6, 100]
    assert lake.table("b").count() == 3


def test_increments_by_threads_are_exact() -> None:
    lake = two_tables(SystemClock())

    def count_up(_: int) -> None:
        while True:
            try:
                with lake.transaction(NAMES) as tx:
                    for name in NAMES:
                        old = tx.sql(f"SELECT amount FROM {name} WHERE id = 'x'").to_pylist()[0]["amount"]
                        tx.table(name).update({"amount": str(old + 1)}, "id = 'x'")
            except Conflict:
                continue
            return

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(count_up, range(9)))
    assert amounts(lake) == (209, 209)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_write_skew(isolation: str) -> None:
    """Of two who each take from one account as long as the other has enough, one is refused; not under snapshot."""
    lake = two_tables()

    def begin(mine: str, theirs: str) -> LakeTransaction:
        tx = again(lake).transaction(NAMES, isolation=isolation)
        assert tx.table(theirs).to_arrow(where="id = 'x'")["amount"].to_pylist() == [100]
        tx.table(mine).update({"amount": "0"}, "id = 'x'")
        return tx

    one, other = begin("a", "b"), begin("b", "a")
    one.commit()
    if isolation == "snapshot":
        other.commit()
        assert amounts(lake) == (100, 100)
        return
    with pytest.raises(Conflict):
        other.commit()
    assert amounts(lake) == (100, 200)


@pytest.mark.parametrize("change", ["update", "delete", "upsert"])
def test_a_change_that_found_no_row_has_read_the_table(change: str) -> None:
    """Two who each add a row to one table, unless the other has theirs: only one of them may."""
    lake = two_tables()

    def begin(mine: str, theirs: str) -> LakeTransaction:
        tx = again(lake).transaction(NAMES)
        table = tx.table(theirs)
        if change == "update":
            done = table.update({"amount": "0"}, "id = 'n'")
        elif change == "delete":
            done = table.delete("id = 'n'")
        else:
            done = table.upsert([{"id": "n", "amount": 1}], on=["id"], unmatched="ignore")
        assert done.rows_updated == 0
        tx.table(mine).append([{"id": "n", "amount": 1}])
        return tx

    one, other = begin("a", "b"), begin("b", "a")
    one.commit()
    with pytest.raises(Conflict):
        other.commit()


def test_appends_rebase_over_whatever_others_do() -> None:
    lake = two_tables()
    with lake.transaction(NAMES) as tx:
        for name in NAMES:
            tx.table(name).append([{"id": "mine", "amount": 0}])
        other = again(lake)
        other.table("a").update({"amount": "1"}, "id = 'x'")
        other.table("b").append([{"id": "theirs", "amount": 0}])
        other.table("b").optimize()
    assert ids(lake, "a") == ["mine", "x", "y"]
    assert ids(lake, "b") == ["mine", "theirs", "x", "y"]


def test_a_transaction_writes_data_files_as_it_goes() -> None:
    """So that it may be larger than memory."""
    lake = two_tables()

    def files() -> int:
        return sum(info.key.endswith(".parquet") for info in lake.store.list("a/"))

    before = files()
    with lake.transaction(["a"]) as tx:
        for number in range(3):
            tx.table("a").append([{"id": str(number), "amount": 1}])
            assert files() == before + number + 1
        assert again(lake).table("a").count() == 2
    assert lake.table("a").count() == 5


@pytest.mark.parametrize("act", [transfer, append_both])
@pytest.mark.parametrize("before", range(APPLY_OF_B + 1))
def test_a_dead_transaction_has_happened_in_both_tables_or_in_none(before: int, act: Change) -> None:
    lake = two_tables()
    plain = two_tables()
    act(plain)
    wanted = amounts(plain) if before > DECISION else (200, 200)
    stopped(lake, before, act)
    assert amounts(again(lake)) == wanted
    with again(lake).transaction() as tx:
        found = [sum(tx.table(name).to_arrow()["amount"].to_pylist()) for name in NAMES]
        assert tuple(found) == wanted
    began_us = lake.clock.now_us()
    for name in NAMES:
        again(lake).table(name).update({"amount": "amount + 1"}, "id = 'y'")
    assert (lake.clock.now_us() - began_us) / 1e6 < 5
    assert amounts(again(lake)) == (wanted[0] + 1, wanted[1] + 1)
    for name in NAMES:
        assert not any(each.startswith("alluvia.claim.") for each in lake.table(name).snapshot().state.domains)


@pytest.mark.parametrize("before", range(APPLY_OF_B + 1))
def test_appends_pass_a_claim_that_only_appends(before: int) -> None:
    """They do not wait for its decision, and do not ask for it."""
    lake = two_tables()
    stopped(lake, before, append_both)
    counting = CountingStore(lake.store)
    writer = Lake(counting, lake.clock)
    tables = [writer.table(name) for name in NAMES]
    for table in tables:
        table.snapshot()
    counting.reset()
    began_us = lake.clock.now_us()
    for table in tables:
        table.append([{"id": "plain", "amount": 1}])
    assert counting.requests == {"put": 4}
    assert lake.clock.now_us() == began_us
    assert ids(again(lake), "a").count("new") == ids(again(lake), "b").count("new") == (before > DECISION)


def test_who_carries_out_an_append_does_not_wait_for_another() -> None:
    lake = two_tables()
    stopped(lake, CLAIM_OF_B, append_both)
    began_us = lake.clock.now_us()
    append_both(again(lake), "second")
    assert lake.clock.now_us() == began_us
    assert ids(again(lake), "a") == ids(again(lake), "b") == ["second", "x", "y"]


@pytest.mark.parametrize(("before", "seen"), [(DECISION, 200), (APPLY_OF_A, 190), (APPLY_OF_B, 190)])
def test_a_read_only_transaction_writes_nothing_and_never_conflicts(before: int, seen: int) -> None:
    lake = two_tables()
    stopped(lake, before)
    counting = CountingStore(lake.store)
    with Lake(counting, lake.clock).transaction(NAMES) as tx:
        assert sum(tx.table("a").to_arrow()["amount"].to_pylist()) == seen
        again(lake).table("a").append([{"id": "z", "amount": 7}])
        again(lake).table("b").delete("true")
        assert sum(tx.table("b").to_arrow()["amount"].to_pylist()) == 400 - seen
        assert tx.sql("SELECT sum(amount) AS s FROM a").to_pylist() == [{"s": seen}]
    assert counting.requests["put"] == 0


def test_a_query_in_a_transaction_takes_all_its_tables_at_one_moment() -> None:
    """Others may commit between two of its requests."""
    lake = two_tables()
    other = again(lake)
    store = HookedStore(lake.store, first_at("b/_delta_log/_last_checkpoint", lambda: transfer(other)))
    with Lake(store, lake.clock).transaction() as tx:
        found = tx.sql("SELECT (SELECT sum(amount) FROM a) AS a, (SELECT sum(amount) FROM b) AS b").to_pylist()[0]
    assert found["a"] + found["b"] == 400
    assert amounts(lake) == (190, 210)


def test_a_cut_follows_a_transaction_that_it_meets_in_one_table_into_the_other() -> None:
    """It commits between the second look at one table and that at the other."""
    lake = two_tables()
    other = again(lake)
    store = HookedStore(lake.store, first_at("b/_delta_log/00000000000000000002.json", lambda: transfer(other)))
    reader = Lake(store, lake.clock)
    for name in NAMES:
        reader.table(name)._handle.at_hand()
    assert amounts(reader) == (190, 210)


def test_what_is_read_of_a_table_that_is_appended_to_must_still_be_so() -> None:
    lake = two_tables()
    with pytest.raises(Conflict), lake.transaction(NAMES) as tx:  # noqa: PT012 - the block is what is tested
        assert not tx.table("a").to_arrow(where="id = 'new'").num_rows
        for name in NAMES:
            tx.table(name).append([{"id": "new", "amount": 1}])
        again(lake).table("a").append([{"id": "new", "amount": 1}])
    assert ids(lake, "a") == ["new", "x", "y"]
    assert ids(lake, "b") == ["x", "y"]
