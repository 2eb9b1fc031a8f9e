"""What the library uses of its process, replaced for a simulation: thread pools, locks, and DuckDB's opening times.

The code under test is the real one. Only these stand in for something, so that a run is the same each time and
thousands of runs are affordable: pools work one item after another in the actor's own thread; a handle's lock lets
other actors run; merges and upserts share one DuckDB database (an empty catalogue each) instead of opening their own;
conditions that were read once are kept; Arrow has one thread.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import alluvia
from tests.no_pandas import NoPandas
from tests.simulation.scheduler import Scheduler, SerialExecutor, SimulatedLock

_connect = duckdb.connect
CATALOGUES_MAX = 24
KEPT_MAX = 120
"""Each holds a database in memory of some megabytes."""
_numbers = count()
_database: list[duckdb.DuckDBPyConnection] = []
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
    with pytest.MonkeyPatch.context() as patch, _one_thread():
        patch.setattr(sys, "meta_path", [NoPandas(), *sys.meta_path])
        for module in modules:
            if hasattr(module, "ThreadPoolExecutor"):
                patch.setattr(module, "ThreadPoolExecutor", SerialExecutor)
        log = sys.modules["alluvia.log.log"]
        patch.setattr(log, "RLock", lambda: SimulatedLock(current_scheduler()))
        patch.setattr(duckdb, "connect", _pooled)
        for name, keep in (("condition", _kept), ("assignments", _kept_values)):
            read = getattr(sys.modules[f"alluvia.expressions.{name}"], name)
            kept = keep(read)
            for module in modules:
                if getattr(module, name, None) is read:
                    patch.setattr(module, name, kept)
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    """Have Arrow work in the threads that ask it to."""
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        yield
    finally:
        pa.set_cpu_count(threads)


def _modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(alluvia.__path__, "alluvia."):
        if not found.name.startswith(("alluvia.cli", "alluvia.serverless.warm_lake", "alluvia.serverless.rounds")):
            yield importlib.import_module(found.name)


_SCRATCH = {
    *("autoinstall_known_extensions", "autoload_known_extensions"),
    *("python_enable_replacements", "temp_directory"),
}


def _pooled(*arguments: Any, **named: Any) -> duckdb.DuckDBPyConnection:
    """Open a cursor on the shared database with an empty catalogue of its own, for a merge or an upsert.

    Others get a database of their own.
    """
    if arguments != (":memory:",) or named.get("config", {}).keys() != _SCRATCH:
        return _connect(*arguments, **named)
    if not _database:
        _database.append(_connect(config={"threads": 1, "autoinstall_known_extensions": "false"}))
    cursor = _database[0].cursor()
    number = next(_numbers)
    cursor.execute(f"ATTACH ':memory:' AS shared{number}")
    cursor.execute(f"USE shared{number}")
    if number >= CATALOGUES_MAX:
        _database[0].execute(f"DETACH DATABASE IF EXISTS shared{number - CATALOGUES_MAX}")
    return cursor


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
