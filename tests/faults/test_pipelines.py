"""The Nth store call of a pipeline's run fails, for N = 1, 2, …: all tables of the step are as before, or as after."""

from __future__ import annotations

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.pipelines.declarations.declaration import QUARANTINE, Declaration, Expectation
from alluvia.pipelines.execution import LocalExecution
from alluvia.pipelines.running import TableRun, run_table
from alluvia.store import MemoryStore
from tests.faults.attempts import attempts, check_log, tried
from tests.faults.store import MODES

STEP = Declaration("copy", "SELECT id FROM t", expectations=(Expectation("known", "id > 0", QUARANTINE),))
BEFORE = [("aside", -1), ("kept", 1)]
AFTER = [("aside", -2), ("aside", -1), ("kept", 1), ("kept", 2)]


def behind(clock: ManualClock) -> MemoryStore:
    """Return a store with a table of a pipeline, and that of its failed rows, which are a version behind."""
    store = MemoryStore("faults", clock)
    lake = Lake(store, clock)
    lake.create_table("t", {"id": "long"}).append([{"id": 1}, {"id": -1}])
    run(lake)
    lake["t"].append([{"id": 2}, {"id": -2}])
    return store


def run(lake: Lake) -> TableRun:
    return run_table(lake.catalog, LocalExecution(lake.evaluation()), STEP)


def rows(lake: Lake) -> list[tuple[str, int]]:
    query = "SELECT 'kept' AS place, id FROM copy UNION ALL SELECT 'aside', id FROM copy_quarantine ORDER BY ALL"
    return [tuple(row.values()) for row in lake.sql(query).to_pylist()]


@pytest.mark.parametrize("mode", ["crash", *(pytest.param(mode, marks=pytest.mark.slow) for mode in MODES[:2])])
def test_the_tables_of_one_step_are_one_transaction(mode: str) -> None:
    done = 0
    for store, clock in attempts(mode, behind):
        finished = tried(run, Lake(store, clock))
        again = Lake(store.inner, clock)
        assert rows(again) == AFTER if finished else rows(again) in (BEFORE, AFTER), store.at
        run(again)
        assert rows(Lake(store.inner, clock)) == AFTER, store.at
        for name in ("copy", "copy_quarantine"):
            check_log(Lake(store.inner, clock), name)
        done += 1
    assert done > 4
