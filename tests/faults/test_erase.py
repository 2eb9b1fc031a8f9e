"""The Nth store call of an erasure fails, for N = 1, 2, …: no row is lost, and a repeat leaves nothing."""

from __future__ import annotations

from functools import partial

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import CommitUnknown, Unavailable
from alluvia.store import MemoryStore
from tests.erased import traces
from tests.faults.attempts import KINDS, attempts, check_log
from tests.faults.store import MODES, Died

VICTIM = "mallory@example.org"
WHERE = f"id = '{VICTIM}'"


def with_traces(clock: ManualClock, kind: str) -> MemoryStore:
    """Return a store with a table whose log, old files and newest files hold the victim."""
    store = MemoryStore("faults", clock)
    table = Lake(store, clock).create_table("t", {"id": "string", "n": "long"}, sort_by=["id"], properties=KINDS[kind])
    table.append([{"id": "a", "n": 1}, {"id": VICTIM, "n": 2}])
    table.append([{"id": VICTIM, "n": 3}])
    table.checkpoint()
    table.delete(f"{WHERE} AND n = 3")
    table.append([{"id": "b", "n": 4}])
    return store


def test_an_erasure_that_dies_after_its_nth_write() -> None:
    _hold("copies", "crash")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "mode"),
    [*(("second checkpoints", mode) for mode in MODES), ("copies", "after"), ("vectors", "crash")],
)
def test_an_erasure_whose_nth_call_fails(kind: str, mode: str) -> None:
    _hold(kind, mode)


def _hold(kind: str, mode: str) -> None:
    done = 0
    for store, clock in attempts(mode, partial(with_traces, kind=kind)):
        finished = True
        try:
            Lake(store, clock).table("t").erase(WHERE)
        except (Unavailable, CommitUnknown, Died):
            finished = False
        if finished:
            assert traces(store.inner, VICTIM) == [], store.at
        again = Lake(store.inner, clock)
        rows = sorted(row["id"] for row in again.table("t").to_arrow().to_pylist())
        assert rows in (["a", "b"], ["a", "b", VICTIM]), store.at
        assert again.table("t").erase(WHERE, prove=True).ok, store.at
        assert traces(store.inner, VICTIM) == [], store.at
        reopened = Lake(store.inner, clock)
        assert sorted(row["id"] for row in reopened.table("t").to_arrow().to_pylist()) == ["a", "b"], store.at
        assert reopened.table("t").verify().ok, store.at
        check_log(reopened, "t")
        done += 1
    assert done > (40 if mode == "before" else 8)
