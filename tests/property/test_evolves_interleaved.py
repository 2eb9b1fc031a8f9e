"""Columns added by several writers at once, in every order of their requests that seeds give."""

from __future__ import annotations

from contextlib import suppress

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.store import MemoryStore
from tests.examples import seeds_from
from tests.property.interleaving import Scheduler, TakingTurns

WRITERS = 3


@pytest.mark.parametrize("seed", seeds_from(0, 20))
def test_every_column_comes_once_and_no_row_is_lost(seed: int) -> None:
    clock, scheduler = ManualClock(seed=seed), Scheduler(seed)
    store = MemoryStore("m", clock)
    lake = Lake(store, clock)
    lake.create_table("t", {"x": "long"})

    def table(task: int) -> Table:
        return Lake(TakingTurns(store, clock, scheduler, task), clock).table("t")

    def evolve(task: int) -> None:
        mine = table(task)
        mine.evolve({f"own{task}": "long"})
        with suppress(Invalid):  # another has added it before this began
            mine.evolve({"shared": "string"})
        mine.append([{"x": task, f"own{task}": task}])

    def append(task: int) -> None:
        table(task).append([{"x": task, "shared": "a", "new": 1.5}], evolve=True)

    errors = scheduler.run([*[evolve] * WRITERS, append])
    assert not errors, f"seed {seed}: {errors}"
    names = lake.table("t").snapshot().schema.names
    assert sorted(names) == ["new", *(f"own{task}" for task in range(WRITERS)), "shared", "x"]
    assert sorted(lake.table("t").scan(["x"]).read_all()["x"].to_pylist()) == [*range(WRITERS + 1)]
