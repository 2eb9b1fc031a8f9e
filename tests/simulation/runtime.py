"""What the library uses of its process, replaced for a simulation: thread pools, locks, and DuckDB's opening times.

The code under test is the real one. Only these stand in for something, so that a run is the same each time and
thousands of runs are affordable: pools work one item after another in the actor's own thread; a handle's lock and the
locks of groups let other actors run; DuckDB and Arrow are made cheap (`light_engines`).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from alluvia.log.actions import Metadata
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
        log = sys.modules["alluvia.log.log"]
        patch.setattr(log, "RLock", lambda: SimulatedLock(current_scheduler()))
        grouping = sys.modules["alluvia.operations.grouping"]
        patch.setattr(grouping, "Lock", lambda: SimulatedGate(current_scheduler()))
        laws = importlib.import_module("alluvia.operations.fold_laws")
        patch.setattr(laws, "check_merge_query", _once(laws.check_merge_query))
        yield


def _once(check: Callable[[Metadata, pa.Table | None], None]) -> Callable[[Metadata, pa.Table | None], None]:
    """Try each merge query of a new table once: the samples are the same each time, and take half a second."""
    passed = set()

    def checked(metadata: Metadata, own: pa.Table | None) -> None:
        asked = (metadata.schema_string, *metadata.partition_columns, *sorted(metadata.configuration.items()))
        if own is not None or asked not in passed:
            check(metadata, own)
        if own is None:
            passed.add(asked)

    return checked
