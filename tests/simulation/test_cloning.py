"""Clones under races, crashes and long sleeps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.examples import examples
from tests.simulation.cloning import CloneRun
from tests.simulation.runtime import simulated

PORTIONS = 4
PORTION_SEEDS = examples(3)


@pytest.fixture(scope="module", autouse=True)
def _simulated() -> Iterator[None]:
    with simulated():
        yield


def test_some_runs_with_clones_hold() -> None:
    assert sum(CloneRun(seed).run() for seed in range(4)) > 5


@pytest.mark.slow
@pytest.mark.parametrize("portion", range(PORTIONS))
def test_runs_with_clones_hold(portion: int) -> None:
    for seed in range(1000 + portion * PORTION_SEEDS, 1000 + (portion + 1) * PORTION_SEEDS):
        CloneRun(seed).run()
