"""Transactions over several tables: what they promise, and who meets one that stopped half-way."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from alluvia.api.lake import Lake
from alluvia.api.lake_transaction import LakeTransaction
from alluvia.clock import ManualClock, SystemClock
from alluvia.errors import AnswerLost, CommitUnknown, Conflict, Invalid, TransactionExpired, Unavailable, Unsupported
from alluvia.store import CountingStore, PutResult
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

ISOLATIONS = ("serializable", "snapshot")
Change = Callable[[Lake], None]


def ids(lake: Lake, name: str) -> list[str]:
    return sorted(lake.table(name).to_arrow()["id"].to_pylist())


def first_at(part: str, act: Callable[[], object], kind: str = "") -> Callable[[str, str], None]:
    """Return a hook that does something once, before the first request of a kind to a key that holds a text."""
    waiting = [act]

    def hook(asked: str, key: str) -> None:
        if waiting and part in key and kind in ("", asked):
            waiting.pop()()

    return hook


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


def test_vacuum_carries_out_what_was_decided_and_deletes_no_file_of_it() -> None:
    clock = ManualClock()
    lake = two_tables(clock)
    stopped(lake, APPLY_OF_A)
    clock.advance(30 * 24 * 3600)
    for name in NAMES:
        again(lake).table(name).vacuum(timedelta(0))
    assert amounts(again(lake)) == (190, 210)


def test_a_dead_claim_does_not_keep_files_for_ever() -> None:
    clock = ManualClock()
    lake = two_tables(clock)
    stopped(lake, DECISION)
    clock.advance(30 * 24 * 3600)
    removed = [len(again(lake).table(name).vacuum(timedelta(0)).orphans) for name in NAMES]
    assert removed == [1, 1]
    assert amounts(again(lake)) == (200, 200)
    transfer(again(lake))
    assert amounts(again(lake)) == (190, 210)


@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize("before", [DECISION, APPLY_OF_A, APPLY_OF_B])
def test_claims_are_kept_by_checkpoints_and_by_clean_up_of_the_log(policy: str, before: int) -> None:
    clock = ManualClock()
    lake = two_tables(clock, {"delta.checkpointPolicy": policy, "delta.logRetentionDuration": "interval 1 day"})
    stopped(lake, before)
    for name in NAMES:
        again(lake).table(name).checkpoint()
    clock.advance(2 * 24 * 3600)
    for name in NAMES:
        names = [info.key for info in lake.store.list(f"{name}/_delta_log/") if info.key.endswith(".json")]
        lake.store.delete([key for key in names if "_last" not in key and "checkpoint" not in key][:-1])
    wanted = (200, 200) if before == DECISION else (190, 210)
    assert amounts(again(lake)) == wanted
    for name in NAMES:
        again(lake).table(name).update({"amount": "amount + 1"}, "id = 'y'")
    assert amounts(again(lake)) == (wanted[0] + 1, wanted[1] + 1)


def test_older_versions_and_the_change_feed_show_what_the_log_holds() -> None:
    lake = two_tables(None, {"delta.enableChangeDataFeed": "true"})
    transfer(lake)
    table = lake.table("a")
    claim, last = 2, 3
    assert [entry.operation for entry in table.history()][:2] == ["UPDATE", "CLAIM"]
    assert sum(table.to_arrow(version=claim)["amount"].to_pylist()) == 200
    assert sum(table.to_arrow(version=last)["amount"].to_pylist()) == 190
    assert len(table.changes(claim, claim).read_all()) == 0
    changed = table.changes(claim).read_all().to_pylist()
    assert sorted((row["_change_type"], row["id"], row["amount"]) for row in changed) == [
        ("update_postimage", "x", 90),
        ("update_preimage", "x", 100),
    ]
    stamp = table.history()[0].timestamp
    assert sum(table.to_arrow(timestamp=stamp)["amount"].to_pylist()) == 190


def test_a_restore_to_a_claim_brings_no_claim_back() -> None:
    lake = two_tables()
    stopped(lake, APPLY_OF_A)
    lake = again(lake)
    lake.table("a").restore(version=2)
    lake.table("b").delete("id = 'y'")
    assert amounts(lake) == (200, 110)
    transfer(lake)
    assert amounts(again(lake)) == (190, 120)


@pytest.mark.parametrize("before", [DECISION, APPLY_OF_A])
def test_a_table_with_a_claim_can_be_dropped_and_brought_back(before: int) -> None:
    lake = two_tables()
    stopped(lake, before)
    lake = again(lake)
    lake.drop_table("a")
    moved = 10 * (before > DECISION)
    assert sum(lake.table("b").to_arrow()["amount"].to_pylist()) == 200 + moved
    lake.undrop("a")
    assert amounts(again(lake)) == (200 - moved, 200 + moved)
    lake.drop_table("a")
    lake.create_table("a", {"id": "string", "amount": "long"})
    append_both(again(lake))
    assert ids(again(lake), "a") == ["new"]


@pytest.mark.parametrize("change", ["delete", "update", "upsert"])
def test_a_change_sees_what_has_happened_before_it_says_that_there_is_nothing_to_do(change: str) -> None:
    lake = two_tables()
    stopped(lake, APPLY_OF_A, append_both)
    table = again(lake).table("a")
    if change == "delete":
        assert table.delete("id = 'new'").rows_deleted == 1
    elif change == "update":
        assert table.update({"amount": "7"}, "id = 'new'").rows_updated == 1
    else:
        assert table.upsert([{"id": "new", "amount": 7}], on=["id"], unmatched="ignore").rows_updated == 1


def test_tables_that_others_may_write_take_no_part() -> None:
    """Those writers would not see the claims."""
    lake = two_tables(None, {"alluvia.writers": "any"})
    with pytest.raises(Unsupported, match="create it with the property"):
        append_both(lake)
    assert amounts(again(lake)) == (200, 200)
    with lake.transaction(["a"]) as tx:
        tx.table("a").delete("true")
    assert lake.table("a").count() == 0


@pytest.mark.parametrize("act", [transfer, append_both])
def test_changes_and_live_rollups_show_what_has_happened_but_is_not_in_the_log(act: Change) -> None:
    lake = two_tables()
    lake.create_rollup("totals", "SELECT id, sum(amount) AS amount, count(*) AS n FROM a GROUP BY id")
    stopped(lake, APPLY_OF_A, act)
    query = "SELECT id, sum(amount) AS amount, count(*) AS n FROM a GROUP BY id ORDER BY id"
    reader = again(lake)
    live = reader.sql("SELECT * FROM totals_live ORDER BY id").to_pylist()
    assert live == reader.sql(query).to_pylist() != lake.sql("SELECT * FROM totals ORDER BY id").to_pylist()
    assert reader.sql("SELECT * FROM totals_live ORDER BY id").to_pylist() == live
    assert reader.table("a").version == 2, "queries write nothing"
    changed = reader.table("a").changes(3).read_all().select(["id", "amount", "_change_type"]).to_pylist()
    expected = {
        transfer: [("x", 100, "delete"), ("x", 90, "insert")],
        append_both: [("new", 1, "insert")],
    }[act]
    assert [tuple(row.values()) for row in changed] == expected
    assert reader.sql("SELECT * FROM totals_live ORDER BY id").to_pylist() == live
    assert reader.table("totals").refresh().source_version == 3
    assert reader.sql("SELECT * FROM totals ORDER BY id").to_pylist() == live


def test_who_may_not_write_reads_the_changes_that_are_in_the_log() -> None:
    lake = two_tables()
    stopped(lake, APPLY_OF_A)

    def refuse(kind: str, _: str) -> None:
        if kind == "put_if_absent":
            raise Unavailable("AccessDenied")

    reader = Lake(HookedStore(lake.store, refuse), lake.clock)
    assert reader.table("a").changes(1).read_all()["_commit_version"].to_pylist() == [1, 1]


@pytest.mark.parametrize("before", [APPLY_OF_A, APPLY_OF_B, 5])
def test_verify_finds_a_table_that_lost_its_part_of_a_transaction(before: int) -> None:
    lake = two_tables()
    if before < 5:
        stopped(lake, before)
    else:
        transfer(lake)
        append_both(lake)
    assert again(lake).table("a").verify().ok
    assert not again(lake).table("a").verify().findings
    claim, change = f"b/_delta_log/{2:020}.json", f"b/_delta_log/{3:020}.json"
    lost = [key for key in (claim, change) if key in {info.key for info in lake.store.list("b/_delta_log/")}]
    lake.store.delete(lost if before < 5 else [f"b/_delta_log/{at:020}.json" for at in range(2, 6)])
    found = [(each.kind, "table b" in each.message) for each in again(lake).table("a").verify().findings]
    assert found == [("transaction-incomplete", True)] * (1 if before < 5 else 2)
    lake.store.delete([info.key for info in lake.store.list("b/")])
    assert [each.kind for each in again(lake).table("a").verify().findings] == ["claim-unchecked"]


@pytest.mark.parametrize("refused", [("b/", "get"), ("b/", "list"), ("", "list")])
def test_a_table_that_may_not_be_read_stops_no_transaction_over_others(refused: tuple[str, str]) -> None:
    lake = two_tables()
    prefix, kind = refused

    def refuse(asked: str, key: str) -> None:
        if asked == kind and (key.startswith(prefix) if prefix else not key):
            raise Invalid("AccessDenied")

    with Lake(HookedStore(lake.store, refuse), lake.clock).transaction() as tx:
        tx.table("a").delete("id = 'x'")
        if prefix:
            with pytest.raises(Invalid, match="AccessDenied"):
                tx.table("b")
    assert (ids(lake, "a"), ids(lake, "b")) == (["y"], ["x", "y"])
