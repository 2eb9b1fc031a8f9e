"""Decisions about transactions that come late, twice or from another: all happens, or nothing."""

from __future__ import annotations

import pytest

from alluvia.api.lake import Lake
from alluvia.api.lake_transaction import LakeTransaction
from alluvia.clock import ManualClock
from alluvia.errors import AnswerLost, CommitUnknown, Conflict, Invalid, TransactionExpired, Unavailable
from alluvia.store import PutResult
from tests.transactions import (
    APPLY_OF_A,
    APPLY_OF_B,
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
from tests.unit.operations.transactions.hooks import first_at


def test_a_decision_that_comes_half_a_day_late_is_an_abort() -> None:
    """An earlier abort may have been deleted by then."""
    clock = ManualClock()
    lake = two_tables(clock)
    sleepy = HookedStore(lake.store, first_at("transactions/", lambda: clock.advance(13 * 3600)))
    with pytest.raises(CommitUnknown):
        transfer(Lake(sleepy, clock))
    assert amounts(again(lake)) == (200, 200)
    transfer(again(lake))
    assert amounts(again(lake)) == (190, 210)


def test_a_transaction_over_one_that_happened_changes_what_that_left() -> None:
    """What has been decided, but is not in the log, is part of what a transaction begins with."""
    lake = two_tables()
    stopped(lake, APPLY_OF_A)
    transfer(again(lake))
    assert amounts(again(lake)) == (180, 220)
    history = again(lake).table("a").history()
    assert [entry.operation for entry in history][:3] == ["UPDATE", "CLAIM", "UPDATE"]


def reading_before_it_is_decided(lake: Lake, tables: tuple[str, ...]) -> LakeTransaction:
    """Begin a transaction that has read `a`, and make a transfer that is decided after that."""
    begun: list[LakeTransaction] = []
    reader = again(lake)

    def read() -> None:
        tx = reader.transaction(tables)
        assert tx.table("a").to_arrow()["amount"].to_pylist() == [100, 100]
        begun.append(tx)

    transfer(Lake(HookedStore(lake.store, first_at("transactions/", read, "put_if_absent")), lake.clock))
    return begun[0]


def test_what_is_decided_after_a_table_was_read_is_not_in_one_that_is_read_later() -> None:
    """One that was not decided when the tables were read, and is when another is, is in both or in none."""
    tx = reading_before_it_is_decided(two_tables(), ("a",))
    assert [sum(tx.table(name).to_arrow()["amount"].to_pylist()) for name in NAMES] == [200, 200]


@pytest.mark.parametrize("warm", [False, True])
def test_what_was_not_decided_when_the_lake_was_looked_at_does_not_count_later(warm: bool) -> None:
    lake = two_tables()
    if warm:
        lake.table("b").count()
    tx = reading_before_it_is_decided(lake, ())
    assert amounts(again(lake)) == (190, 210)
    assert tx.sql("SELECT (SELECT sum(amount) FROM a) AS a, (SELECT sum(amount) FROM b) AS b").to_pylist() == [
        {"a": 200, "b": 200}
    ]


@pytest.mark.parametrize("first", NAMES)
@pytest.mark.parametrize("part", [f"{name}/_delta_log/{what}" for name in NAMES for what in ("_last", f"{2:020}.json")])
def test_what_commits_while_the_lake_is_looked_at_is_in_all_tables_or_in_none(part: str, first: str) -> None:
    lake = two_tables()
    other = again(lake)
    store = HookedStore(lake.store, first_at(part, lambda: transfer(other)))
    with Lake(store, lake.clock).transaction() as tx:
        found = [sum(tx.table(name).to_arrow()["amount"].to_pylist()) for name in sorted(NAMES, key=first.__ne__)]
    assert sum(found) == 400
    assert amounts(again(lake)) == (190, 210)


def test_what_follows_a_transaction_that_does_not_count_does_not_count_either() -> None:
    """It was decided after the lake was looked at, and read what the other wrote to a table of both."""
    lake = two_tables()
    lake.create_table("c", {"id": "string", "amount": "long"}).append([{"id": "x", "amount": 0}])
    tx = reading_before_it_is_decided(lake, ())  # of `a`, while a transfer to `b` is under way
    with again(lake).transaction(["b", "c"]) as on:
        on.table("b").update({"amount": "amount - 10"}, "id = 'x'")
        on.table("c").update({"amount": "amount + 10"}, "id = 'x'")
    assert [sum(tx.table(name).to_arrow()["amount"].to_pylist()) for name in ("c", "b")] == [0, 200]


def test_a_decision_that_vacuum_has_deleted_since_the_lake_was_looked_at_still_counts() -> None:
    clock = ManualClock()
    lake = two_tables(clock)
    stopped(lake, APPLY_OF_B)
    clock.advance(60 * 3600)
    tx = again(lake).transaction()
    assert sum(tx.table("a").to_arrow()["amount"].to_pylist()) == 190
    other = again(lake)
    other.table("b").append([{"id": "z", "amount": 0}])  # which carries it out
    other.table("a").vacuum()
    assert not list(lake.store.list("a/_alluvia/transactions/"))
    assert sum(tx.table("b").to_arrow()["amount"].to_pylist()) == 210


def test_what_was_read_is_followed_into_the_files_of_an_optimize_also_when_another_table_comes_in() -> None:
    lake = two_tables()
    lake.table("a").append([{"id": "z", "amount": 1}])
    with pytest.raises(Conflict), lake.transaction() as tx:  # noqa: PT012 - the block is what is tested
        assert tx.table("a").to_arrow(where="id = 'x'").num_rows == 1
        again(lake).table("a").optimize()
        assert tx.table("b").count() == 2
        tx.table("b").append([{"id": "because of x", "amount": 0}])
        again(lake).table("a").delete("true")
    assert lake.table("b").count() == 2


def test_what_an_update_that_inserts_has_read_is_not_blind_when_another_carries_it_out() -> None:
    lake = two_tables()

    def insert(one: Lake) -> None:
        with one.transaction(NAMES) as tx:
            for name in NAMES:
                tx.table(name).upsert([{"id": "n", "amount": 1}], on=["id"])

    stopped(lake, APPLY_OF_A, insert)
    again(lake).table("a").delete("id = 'y'")
    last = lake.table("a").version
    commits = lake.table("a")._handle.log.read_commits(range(last - 1, last + 1))
    assert [commit.info["operation"] for commit in commits] == ["MERGE", "DELETE"]
    assert commits[0].info["isBlindAppend"] is False


def test_a_lost_answer_to_a_claim_commits_nothing_and_says_so() -> None:
    """Nothing of it can happen any more, so that the caller may start again."""
    lake = two_tables()

    def fail(kind: str, key: str) -> None:
        if "b/_delta_log" in key and kind == "put_if_absent":
            raise AnswerLost("lost")
        if "b/_delta_log/00000000000000000002.json" in key and kind == "get":
            raise Unavailable("down")

    with pytest.raises(Unavailable) as found:
        transfer(Lake(HookedStore(lake.store, fail), lake.clock))
    assert not isinstance(found.value, CommitUnknown)
    assert amounts(again(lake)) == (200, 200)
    transfer(again(lake))
    assert amounts(again(lake)) == (190, 210)


@pytest.mark.parametrize("error", [Unavailable("down"), Invalid("the store refuses"), AnswerLost("lost")])
def test_what_has_been_decided_has_happened_whatever_goes_wrong_then(error: Exception) -> None:
    lake = two_tables()
    decided: list[str] = []

    def fail(kind: str, key: str) -> None:
        if decided and kind == "put_if_absent":
            raise error
        if kind == "put_if_absent" and "transactions/" in key:
            decided.append(key)

    transfer(Lake(HookedStore(lake.store, fail), lake.clock))
    assert amounts(again(lake)) == (190, 210)


def test_a_single_writer_that_cannot_decide_for_another_has_committed_nothing() -> None:
    lake = two_tables()
    stopped(lake, DECISION)

    def fail(kind: str, key: str) -> None:
        if "transactions/" in key and kind == "put_if_absent":
            raise AnswerLost("lost")

    with pytest.raises(Unavailable, match="another transaction holds table a") as found:
        Lake(HookedStore(lake.store, fail), lake.clock).table("a").delete("true")
    assert not isinstance(found.value, CommitUnknown)
    assert amounts(again(lake)) == (200, 200)


def test_a_transaction_that_took_too_long_before_it_commits_has_not_happened() -> None:
    clock = ManualClock()
    lake = two_tables(clock)
    with pytest.raises(TransactionExpired, match="older than 60 minutes"), lake.transaction() as tx:  # noqa: PT012
        clock.advance(13 * 3600)
        for name in NAMES:
            tx.table(name).append([{"id": "late", "amount": 1}])
    assert amounts(again(lake)) == (200, 200)
    append_both(again(lake))
    assert amounts(again(lake)) == (201, 201)


def test_an_owner_that_slept_for_days_does_not_say_what_it_does_not_know() -> None:
    """Vacuum has carried the transaction out and deleted the decision when its writer wakes up."""
    clock = ManualClock()
    lake = two_tables(clock)

    def sleep() -> None:
        clock.advance(60 * 3600)
        for name in NAMES:
            again(lake).table(name).vacuum()

    class AnsweredLate(HookedStore):
        def put_if_absent(self, key: str, data: bytes) -> PutResult:
            done = super().put_if_absent(key, data)
            if "transactions/" in key:
                sleep()
            return done

    store = AnsweredLate(lake.store, lambda kind, key: None)
    with pytest.raises(CommitUnknown):
        transfer(Lake(store, clock))
    assert amounts(again(lake)) == (190, 210)


def test_a_decision_that_vacuum_deletes_between_two_looks_is_no_abort() -> None:
    """A reader that has seen a claim, and not what carried it out, looks once more before it takes it for undecided."""
    clock = ManualClock()
    lake = two_tables(clock)
    stopped(lake, APPLY_OF_B)
    clock.advance(3 * 24 * 3600)

    def vacuum() -> None:
        again(lake).table("a").vacuum()

    for kind in ("get", "head"):
        store = HookedStore(lake.store, first_at("transactions/", vacuum, kind))
        reader = Lake(store, clock)
        reader.table("a").snapshot()
        assert amounts(reader) == (190, 210), kind
    assert not list(lake.store.list("a/_alluvia/transactions/"))
