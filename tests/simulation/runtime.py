"""What the library uses of its process, replaced for a simulation: thread pools, locks, and DuckDB's opening times.

The code under test is the real one. Only these stand in for something, so that a run is the same each time and
thousands of runs are affordable: pools work one item after another in the actor's own thread; a handle's lock and the
locks of groups let other actors run; DuckDB and Arrow are made cheap (`light_engines`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.light_engines import library_modules, light_engines
from tests.no_pandas import NoPandas
from tests.simulation.scheduler import Scheduler, SerialExecutor, SimulatedGate, SimulatedLock

_scheduler: list[Scheduler] = []


def current_scheduler() -> Scheduler:
    """Return the run that is on."""
    return _scheduler[-1]


@contextmanager
def running(scheduler: Scheduler) -> Iterator[None]:
    """Have new handles belong to a run."""
    _scheduler.append(scheduler)
    try:
        yield
    finally:
        _scheduler.pop()


@contextmanager
def simulated() -> Iterator[None]:
    """Replace what a simulation replaces, and put it back."""
    with pytest.MonkeyPatch.context() as patch, light_engines(one_at_a_time=True):
        patch.setattr(sys, "meta_path", [NoPandas(), *sys.meta_path])
        for module in library_modules():
            if hasattr(module, "ThreadPoolExecutor"):
                patch.setattr(module, "ThreadPoolExecutor", SerialExecutor)
        log = sys.modules["alluvia.delta.log.log"]
        patch.setattr(log, "RLock", lambda: SimulatedLock(current_scheduler()))
        grouping = sys.modules["alluvia.operations.catalog.request_batching"]
        patch.setattr(grouping, "Lock", lambda: SimulatedGate(current_scheduler()))
        yield
