"""DuckDB and Arrow made cheap for tests that run an operation thousands of times, each on a few rows.

Opening a database takes 11 ms, and Arrow's threads cost more than they save. So merges and upserts share one database
(an empty catalogue each) instead of opening their own, and Arrow has one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import duckdb
import pyarrow as pa
import pytest

_connect = duckdb.connect
CATALOGUES_MAX = 24
"""Each holds a database in memory of some megabytes."""
_numbers = count()
_database: list[duckdb.DuckDBPyConnection] = []
_SCRATCH = {
    *("autoinstall_known_extensions", "autoload_known_extensions"),
    *("python_enable_replacements", "temp_directory"),
}


@contextmanager
def light_engines() -> Iterator[None]:
    """Have operations share a database, and Arrow work in the threads that ask it to."""
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(duckdb, "connect", _pooled)
            yield
    finally:
        pa.set_cpu_count(threads)


@pytest.fixture(scope="module", autouse=True)
def light() -> Iterator[None]:
    """For a `conftest.py`: light engines for every test below it."""
    with light_engines():
        yield


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
