"""What the library uses of its process, replaced for a simulation: thread pools, locks, and DuckDB's opening times.

The code under test is the real one. Only these stand in for something, so that a run is the same each time and
thousands of runs are affordable: pools work one item after another in the actor's own thread; a handle's lock lets
other actors run; merges and upserts share one DuckDB database, and Arrow has one thread (`light_engines`); conditions
that were read once are kept.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from tests.light_engines import light_engines
from tests.no_pandas import NoPandas
from tests.simulation.scheduler import Scheduler, SerialExecutor, SimulatedLock

KEPT_MAX = 120
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
    modules = list(_modules())
    with pytest.MonkeyPatch.context() as patch, light_engines():
        patch.setattr(sys, "meta_path", [NoPandas(), *sys.meta_path])
        for module in modules:
            if hasattr(module, "ThreadPoolExecutor"):
                patch.setattr(module, "ThreadPoolExecutor", SerialExecutor)
        log = sys.modules["alluvia.log.log"]
        patch.setattr(log, "RLock", lambda: SimulatedLock(current_scheduler()))
        for name, keep in (("condition", _kept), ("assignments", _kept_values)):
            read = getattr(sys.modules[f"alluvia.expressions.{name}"], name)
            kept = keep(read)
            for module in modules:
                if getattr(module, name, None) is read:
                    patch.setattr(module, name, kept)
        yield


def _modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(alluvia.__path__, "alluvia."):
        if not found.name.startswith(("alluvia.cli", "alluvia.serverless.warm_lake", "alluvia.serverless.rounds")):
            yield importlib.import_module(found.name)


def _kept(read: Callable[..., Any]) -> Callable[..., Any]:
    @lru_cache(maxsize=KEPT_MAX)
    def by_text(text: str, schema: bytes) -> Any:
        return read(text, pa.ipc.read_schema(pa.BufferReader(schema)))

    return lambda text, schema: by_text(text, bytes(schema.serialize()))


def _kept_values(read: Callable[..., Any]) -> Callable[..., Any]:
    @lru_cache(maxsize=KEPT_MAX)
    def by_text(given: tuple[tuple[str, str], ...], schema: bytes) -> Any:
        return read(dict(given), pa.ipc.read_schema(pa.BufferReader(schema)))

    return lambda given, schema: by_text(tuple(given.items()), bytes(schema.serialize()))
