"""The Nth store call of a refresh fails, for N = 1, 2, …: the rollup is as before or as after, and a repeat works."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.rollups.change import PROGRESS
from alluvia.store import MemoryStore
from tests.faults.attempts import attempts, check_log, tried
from tests.faults.store import MODES

Make = Callable[[ManualClock], MemoryStore]
BEFORE = [("a", 1, 1), ("b", 1, 2)]
AFTER = {"folded": [("a", 2, 6), ("b", 1, 2), ("c", 1, 7)], "recomputed": [("a", 2, 6), ("c", 1, 7)]}


def folded(clock: ManualClock) -> MemoryStore:
    """Return a store with a rollup that is a version behind, which only appended."""
    store = MemoryStore("faults", clock)
    lake = Lake(store, clock)
    table = lake.create_table("t", {"id": "string", "n": "long"})
    table.append([{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    lake.create_rollup("totals", "SELECT id, count(*) AS c, sum(n) AS n FROM t GROUP BY id")
    table.append([{"id": "a", "n": 5}, {"id": "c", "n": 7}])
    return store


def recomputed(clock: ManualClock) -> MemoryStore:
    """Return a store with a rollup that is two versions behind, one of which deleted a row."""
    store = folded(clock)
    Lake(store, clock).table("t").delete("id = 'b'")
    return store


def rows(lake: Lake) -> list[tuple[str, int, int]]:
    return sorted(tuple(row.values()) for row in lake.table("totals").to_arrow().to_pylist())


@pytest.mark.parametrize("mode", [pytest.param("before", marks=pytest.mark.slow), *MODES[1:]])
@pytest.mark.parametrize("make", [folded, recomputed])
def test_a_refresh_whose_nth_call_fails(make: Make, mode: str) -> None:
    _hold(make, mode)


def _hold(make: Make, mode: str) -> None:
    after = AFTER[make.__name__]
    done = 0
    for store, clock in attempts(mode, make):
        before = Lake(store.inner, clock).table("totals").version
        finished = tried(lambda: Lake(store, clock).table("totals").refresh())  # noqa: B023
        again = Lake(store.inner, clock)
        assert rows(again) == after if finished else rows(again) in (BEFORE, after), store.at
        again.table("totals").refresh()
        reopened = Lake(store.inner, clock)
        assert rows(reopened) == after, store.at
        assert reopened.table("totals").version == before + 1, store.at
        assert reopened.table("totals").snapshot().state.txns[PROGRESS].version == reopened.table("t").version
        check_log(reopened, "totals")
        done += 1
    assert done > (5 if mode == "before" else 2)
