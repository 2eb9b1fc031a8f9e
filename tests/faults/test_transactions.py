"""Each store call of a transaction over two tables fails in turn, or its process dies or sleeps there: all or nothing.

Whoever comes next is not kept waiting for longer than it takes to give a transaction up.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Conflict, TableExists, TableNotFound
from alluvia.store import MemoryStore
from tests.faults.attempts import CALLS_MAX, attempts, check_log, copied, events, tried
from tests.faults.store import MODES
from tests.transactions import APPLY_OF_A, NAMES, HookedStore, amounts, append_both, filled, stopped, transfer

BEFORE = (200, 200)
CLAIM_SECONDS_MAX = 6.0
"""How long a claim may stand in the way: the polls, with their chance."""
DAY = 24 * 3600
ACTS: dict[str, tuple[Callable[[Lake], None], tuple[int, int]]] = {
    "transfer": (transfer, (190, 210)),
    "appends": (append_both, (201, 201)),
}


def made(clock: ManualClock) -> MemoryStore:
    store = MemoryStore("faults", clock)
    filled(Lake(store, clock))
    return store


def use_all(lake: Lake) -> float:
    """Change each table alone, and return how long it took."""
    began_us = lake.clock.now_us()
    for name in NAMES:
        lake.table(name).update({"amount": "amount"}, "id = 'y'")
    return (lake.clock.now_us() - began_us) / 1e6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("act", ACTS)
def test_a_transaction_whose_nth_call_fails(act: str, mode: str) -> None:
    run, after = ACTS[act]
    done = 0
    for store, clock in attempts(mode, made):
        finished = tried(run, Lake(store, clock))
        cold = Lake(store.inner, clock)
        found = amounts(cold)
        assert found == after if finished else found in (BEFORE, after), store.at
        assert use_all(cold) < CLAIM_SECONDS_MAX, store.at
        assert amounts(Lake(store.inner, clock)) == found, store.at
        transfer(Lake(store.inner, clock), 1)
        assert amounts(Lake(store.inner, clock)) == (found[0] - 1, found[1] + 1), store.at
        for name in NAMES:
            check_log(Lake(store.inner, clock), name)
        done += 1
    assert done > (16 if mode == "before" else 7)


@pytest.mark.parametrize("mode", MODES)
def test_a_warm_process_goes_on_after_its_nth_call_failed(mode: str) -> None:
    for store, clock in attempts(mode, made):
        lake = Lake(store, clock)
        tried(transfer, lake)
        store.healed = True
        if mode == "crash":
            lake = Lake(store.inner, clock)
        found = amounts(lake)
        assert found in (BEFORE, (190, 210)), store.at
        transfer(lake, 1)
        assert amounts(lake) == (found[0] - 1, found[1] + 1), store.at


def create_and_drop(lake: Lake) -> None:
    """Create `c` with a row, drop `b`, and append to `a`."""
    with lake.transaction(NAMES) as tx:
        tx.create_table("c", {"n": "long"}).append([{"n": 1}])
        tx.drop_table("b")
        tx.table("a").append([{"id": "new", "amount": 1}])


def there(lake: Lake) -> tuple[list[str], int]:
    """Return the tables, and how many rows `a` has."""
    return lake.tables(), lake.table("a").count()


@pytest.mark.parametrize("mode", MODES)
def test_a_create_and_a_drop_whose_nth_call_fails(mode: str) -> None:
    wanted = (["a", "c"], 3)
    for store, clock in attempts(mode, made):
        finished = tried(create_and_drop, Lake(store, clock))
        found = there(Lake(store.inner, clock))
        assert found == wanted if finished else found in ((["a", "b"], 2), wanted), store.at
        again = Lake(store.inner, clock)
        assert {each.name for each in again.dropped()} <= {"b"}, store.at
        if found != wanted:
            create_and_drop(again)
        assert there(Lake(store.inner, clock)) == wanted, store.at
        assert Lake(store.inner, clock).table("c").count() == 1, store.at
        again.undrop("b")
        again.table("c").append([{"n": 2}])
        assert there(Lake(store.inner, clock)) == (["a", "b", "c"], 3), store.at
        assert Lake(store.inner, clock).table("b").count() == 2, store.at


def test_who_comes_alone_after_a_create_and_a_drop_that_died() -> None:
    """A table that was created is there, or can be created; one that was dropped is not, or can be dropped."""
    for store, clock in attempts("crash", made):
        tried(create_and_drop, Lake(store, clock))
        happened = there(Lake(store.inner, clock)) == (["a", "c"], 3)
        if happened:
            with pytest.raises(TableExists):
                Lake(store.inner, clock).create_table("c", {"n": "long"})
            with pytest.raises(TableNotFound):
                Lake(store.inner, clock).drop_table("b")
            Lake(store.inner, clock).create_table("b", {"n": "long"})
        else:
            Lake(store.inner, clock).create_table("c", {"n": "long"})
            Lake(store.inner, clock).drop_table("b")
            assert Lake(store.inner, clock).tables() == ["a", "c"], store.at
        assert Lake(store.inner, clock).table("c").count() == happened, store.at


def ingest_both(lake: Lake) -> None:
    """Ingest an event, and append a row to `a`."""
    with lake.transaction() as tx:
        tx.table("events").ingest(events(1, 2))
        if tx.table("a").count() == 2:
            tx.table("a").append([{"id": "new", "amount": 1}])


@pytest.mark.parametrize("mode", MODES)
def test_an_ingestion_among_others_whose_nth_call_fails(mode: str) -> None:
    """Sent again alone or in a transaction, an event is one row."""

    def with_events(clock: ManualClock) -> MemoryStore:
        store = made(clock)
        Lake(store, clock).create_events("events")
        return store

    for store, clock in attempts(mode, with_events):
        finished = tried(ingest_both, Lake(store, clock))
        cold = Lake(store.inner, clock)
        found = cold.table("events").count(), cold.table("a").count()
        assert found == (2, 3) if finished else found in ((0, 2), (2, 3)), store.at
        again = Lake(store.inner, clock).table("events").ingest(events(2, 3))
        assert again.duplicates == (found == (2, 3)), store.at
        ingest_both(Lake(store.inner, clock))
        cold = Lake(store.inner, clock)
        ids = sorted(cold.table("events").to_arrow()["event_id"].to_pylist())
        assert (ids, cold.table("a").count()) == (["e1", "e2", "e3"], 3), store.at


def test_a_reader_whose_nth_call_fails_sees_all_or_nothing_at_the_next() -> None:
    def half(clock: ManualClock) -> MemoryStore:
        store = made(clock)
        stopped(Lake(store, clock), APPLY_OF_A)
        return store

    for store, clock in attempts("before", half):
        lake = Lake(store, clock)
        tried(amounts, lake)
        store.healed = True
        assert amounts(lake) == (190, 210), store.at


def _days_with_vacuum(lake: Lake, clock: ManualClock) -> None:
    clock.advance(3 * DAY)
    for name in NAMES:
        lake.table(name).vacuum(timedelta(hours=1))


def _others(lake: Lake, clock: ManualClock) -> None:
    transfer(lake, 1)


def _minutes(lake: Lake, clock: ManualClock) -> None:
    clock.advance(300)
    use_all(lake)


SLEEPS: dict[str, Callable[[Lake, ManualClock], None]] = {
    "for another's transaction": _others,
    "for minutes": _minutes,
    "for days, with clean-up": _days_with_vacuum,
}


@pytest.mark.parametrize("sleep", SLEEPS)
@pytest.mark.parametrize("act", ACTS)
def test_a_transaction_that_sleeps_before_its_nth_call(act: str, sleep: str) -> None:
    """Meanwhile others finish what they do. It has happened or not, and says so rightly."""
    run, after = ACTS[act]
    template_clock = ManualClock()
    template = made(template_clock)
    moved = sleep == "for another's transaction"
    happened, not_happened = ((here - moved, there + moved) for here, there in (after, BEFORE))
    outcomes = set()
    for at in range(1, CALLS_MAX):
        clock = ManualClock(template_clock.now_us(), seed=at)
        store = copied(template, clock)
        sleeper = _Sleeper(at, partial(SLEEPS[sleep], Lake(store, clock), clock))
        try:
            finished = tried(run, Lake(HookedStore(store, sleeper), clock))
        except Conflict:
            outcomes.add("conflict")
            assert amounts(Lake(store, clock)) == not_happened, at
        else:
            if sleeper.calls < at:
                break
            outcomes.add("finished" if finished else "unknown")
            found = amounts(Lake(store, clock))
            assert found == happened if finished else found in (happened, not_happened), at
        assert use_all(Lake(store, clock)) < CLAIM_SECONDS_MAX, at
        found = amounts(Lake(store, clock))
        transfer(Lake(store, clock), 5)
        assert amounts(Lake(store, clock)) == (found[0] - 5, found[1] + 5), at
    else:
        raise AssertionError("the transaction never completes")
    assert "finished" in outcomes


class _Sleeper:
    """A hook that has something else happen before request number `at`."""

    def __init__(self, at: int, meanwhile: Callable[[], None]) -> None:
        self.at = at
        self.calls = 0
        self._meanwhile = meanwhile

    def __call__(self, kind: str, key: str) -> None:
        self.calls += 1
        if self.calls == self.at:
            self._meanwhile()
