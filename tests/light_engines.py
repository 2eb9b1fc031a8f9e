"""DuckDB and Arrow made cheap for tests that run operations thousands of times, each on a few rows.

Opening a database takes 11 ms, and Arrow's threads cost more than they save. So merges, upserts and queries share one
database (an empty catalogue each) instead of opening their own, queries have no process of their own, Arrow has one
thread, conditions that a thread has read once are kept, temporary files stay in memory, and Parquet files are not
compressed: a compressor for each column of a few rows takes an eighth of the time.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, lru_cache
from itertools import count
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.engine.duck.database import connect
from alluvia.engine.duck.native import duckdb
from alluvia.processes.child import Reply
from alluvia.processes.pool import Pool, Watch
from alluvia.query.process import ahead, processes, worker

_connect = duckdb.connect
_open_writer = pq.ParquetWriter.__init__
CATALOGUES_MAX = 24
KEPT_MAX = 120
"""Conditions, and assignments. Each holds a database in memory of some megabytes."""
MEMORY = "/dev/shm"
_numbers = count()
_database: list[duckdb.DuckDBPyConnection] = []
_SCRATCH = {
    *("autoinstall_known_extensions", "autoload_known_extensions"),
    *("python_enable_replacements", "temp_directory"),
}


@contextmanager
def light_engines(*, one_at_a_time: bool = False) -> Iterator[None]:
    """Have operations share a database, keep conditions and write temporary files to memory; give Arrow one thread.

    With `one_at_a_time`, no two threads work at once, so what one has read serves all.
    """
    thread = (lambda: 0) if one_at_a_time else get_ident
    modules = library_modules()
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(duckdb, "connect", _pooled)
            patch.setattr(pq.ParquetWriter, "__init__", _uncompressed)
            patch.setattr(tempfile, "tempdir", MEMORY if os.access(MEMORY, os.W_OK) else tempfile.gettempdir())
            for name, keep in (("condition", _kept), ("assignments", _kept_values)):
                read = getattr(sys.modules[f"alluvia.engine.conditions.{name}"], name)
                kept = keep(read, thread)
                for module in modules:
                    if getattr(module, name, None) is read:
                        patch.setattr(module, name, kept)
            patch.setattr(ahead, "connect", _queried)
            for name, light in (("confine", _unconfined), ("_cpu_limit", nullcontext)):
                patch.setattr(worker, name, light)
            patch.setattr(processes, "POOL", Pool(_NoProcess))
            yield
    finally:
        pa.set_cpu_count(threads)


@pytest.fixture(scope="module", autouse=True)
def light() -> Iterator[None]:
    """For a `conftest.py`: light engines for every test below it."""
    with light_engines():
        yield


class _Catalogue:
    """A connection to a catalogue of the shared database, and so are its cursors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._own = _database[0].cursor()
        self._own.execute(f"USE {name}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._own.close()

    def cursor(self) -> _Catalogue:
        return _Catalogue(self._name)


def _pooled(*arguments: Any, **named: Any) -> duckdb.DuckDBPyConnection | _Catalogue:
    """Open a cursor on the shared database with an empty catalogue of its own, for a merge or an upsert.

    Others get a database of their own.
    """
    if arguments != (":memory:",) or named.get("config", {}).keys() != _SCRATCH:
        return _connect(*arguments, **named)
    return _catalogue()


def _uncompressed(writer: pq.ParquetWriter, *arguments: Any, compression: str = "snappy", **named: Any) -> None:
    codec = "none" if compression == "zstd" else compression
    _open_writer(writer, *arguments, compression=codec, **named)


def _queried(_: Mapping[str, str]) -> _Catalogue:
    return _catalogue()


def _unconfined(_: _Catalogue, __: Sequence[str]) -> None:
    """Leave a query's database open: it is that of all queries."""


def _catalogue() -> _Catalogue:
    if not _database:
        _database.append(connect({"threads": "1"}))
    number = next(_numbers)
    _database[0].execute(f"ATTACH ':memory:' AS shared{number}")
    if number >= CATALOGUES_MAX:
        _database[0].execute(f"DETACH DATABASE IF EXISTS shared{number - CATALOGUES_MAX}")
    return _Catalogue(f"shared{number}")


class _NoProcess(processes.QueryWorker):
    """What stands in for a query's process: the same requests and replies, answered by this one."""

    def __init__(self) -> None:
        self._failure, self.refusal = processes.failure, None
        self._pipe: Any = SimpleNamespace(recv_bytes=None)
        self._replies: deque[bytes] = deque()
        self._database = worker.QueryDatabase(self._give)

    alive = True

    def end_work(self) -> None:
        self._database = worker.QueryDatabase(self._give)

    def is_ready(self, seconds: float = 0.0) -> bool:
        return True

    def settle(self) -> bool:
        return True

    def send(self, name: str, rows: pa.Buffer | None = None, /, **request: Any) -> None:
        given = {} if rows is None else {"rows": bytes(rows)}
        reply = worker._answer(self._database, name, orjson.loads(orjson.dumps(request)) | given)
        self._give(reply, reply.pop("body", None))

    def buffer(self, watch: Watch) -> pa.Buffer:
        return pa.py_buffer(self._replies.popleft())

    def _awaited(self, watch: Watch, receive: object) -> Any:
        return self._replies.popleft()

    def kill(self) -> None:
        self._replies.clear()
        self.end_work()

    def held_bytes(self) -> int:
        return 0

    def _give(self, reply: Reply, data: bytes | pa.Buffer | None = None) -> None:
        self._replies.append(orjson.dumps(reply, default=str))
        if data is not None:
            self._replies.append(bytes(data))


@cache
def library_modules() -> list[Any]:
    """Import all of the library but what has a process of its own."""
    left_out = ("alluvia.cli", "alluvia.serverless.warm_lake", "alluvia.serverless.rounds")
    names = (found.name for found in pkgutil.walk_packages(alluvia.__path__, "alluvia."))
    return [importlib.import_module(name) for name in names if not name.startswith(left_out)]


def _kept(read: Callable[..., Any], thread: Callable[[], int]) -> Callable[..., Any]:
    @lru_cache(maxsize=KEPT_MAX)
    def by_text(text: str, schema: bytes, _thread: int) -> Any:
        return read(text, pa.ipc.read_schema(pa.BufferReader(schema)))

    return lambda text, schema: by_text(text, bytes(schema.serialize()), thread())


def _kept_values(read: Callable[..., Any], thread: Callable[[], int]) -> Callable[..., Any]:
    @lru_cache(maxsize=KEPT_MAX)
    def by_text(given: tuple[tuple[str, str], ...], schema: bytes, _thread: int) -> Any:
        return read(dict(given), pa.ipc.read_schema(pa.BufferReader(schema)))

    return lambda given, schema: by_text(tuple(given.items()), bytes(schema.serialize()), thread())
