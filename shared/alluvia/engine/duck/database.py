"""A DuckDB database of our own: its connection, its memory limit and its temporary folder.

DuckDB's own limit leaves out the allocator's waste and some buffers. In its block allocator nothing is wasted: then a
process takes less than `ENGINE_BYTES` more than the limit.

A connection starts open, so that it can get views. Then `confine` locks it permanently: it can read exactly the given
files, and cannot change settings, load extensions or see Python's variables. It has no extension that reaches a network
and no credentials: what is not on this machine comes by `alluvia.store.caches.engine_files`.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from alluvia.engine.duck.arrow_values import DuckType, since_2
from alluvia.engine.duck.literals import quote_text
from alluvia.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

ENGINE_BYTES = 128_000_000
"""What DuckDB takes outside its limit: its own code, and buffers of files that it reads and spills."""
DUCKDB_SHARE = 0.7
DUCKDB_BYTES_MIN = 64_000_000
"""DuckDB sorts with less than this only a little."""
DUCKDB_BYTES_A_THREAD = 100_000_000
ROWS_SHARE = 1 / 20
ROWS_BYTES_MIN = 1_000_000


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """How many bytes DuckDB may take, and how many a batch of rows may, of which there are four at a time."""

    duckdb: int
    rows: int

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of a DuckDB database that keeps to its share."""
        threads = min(os.cpu_count() or 1, max(1, self.duckdb // DUCKDB_BYTES_A_THREAD))
        size = f"{self.duckdb}B"
        return {
            "memory_limit": size,
            "block_allocator_memory": size,
            "enable_external_file_cache": "false",
            "threads": str(threads),
        }


def memory_shares(memory_mb: int, held: int) -> MemoryShares:
    """Divide a limit in MB for a process that holds some bytes. There is a least share, even beyond the limit."""
    free = memory_mb * 1_000_000 - held - ENGINE_BYTES
    return MemoryShares(
        max(DUCKDB_BYTES_MIN, int(free * DUCKDB_SHARE)),
        max(ROWS_BYTES_MIN, int(free * ROWS_SHARE)),
    )


def resident_bytes() -> int:
    """Return how much memory this process holds; the most that it has held where the system tells no more."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * {"darwin": 1}.get(sys.platform, 1024)
    return pages * resource.getpagesize()


def scratch_database(
    folder: Path | None = None, *, on_disk: bool = False, settings: Mapping[str, str] | None = None
) -> DuckDBPyConnection:
    """Open an empty database in UTC that installs nothing and sees no variable of Python's.

    It spills into `folder`; without one it does not. `on_disk` keeps its tables there too. `settings` are DuckDB's.
    """
    from alluvia.engine.duck.native import (
        duckdb,  # loaded late: it would lengthen the cold start of functions that seldom need it
    )

    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
        "temp_directory": "" if folder is None else str(folder / "spill"),
        **(settings or {}),
    }
    connection = duckdb.connect(str(folder / "scratch.duckdb") if folder and on_disk else ":memory:", config=config)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


PLANNER_MEMORY = "256MB"
EXPRESSION_DEPTH_MAX = 250

_CLOSED = {
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}

_lock = threading.Lock()
_shared: dict[str, duckdb.DuckDBPyConnection] = {}


def connect(options: Mapping[str, str]) -> duckdb.DuckDBPyConnection:
    """Open an empty database in memory, in UTC, with errors as JSON. `options` are DuckDB's, as text."""
    from alluvia.engine.duck.native import duckdb  # loaded late: planning alone does not need it

    of_its_line = {"error_on_division_by_zero": "false"} if since_2() else {}  # null, as it is in 1.5
    connection = duckdb.connect(":memory:", config={**_CLOSED, **of_its_line, **options})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET GLOBAL errors_as_json = true")
    return connection


def confine(connection: duckdb.DuckDBPyConnection, paths: Sequence[str] = ()) -> None:
    """Shut the connection's database: from now on it opens these files and nothing else."""
    if paths:
        connection.execute(f"SET allowed_paths = [{', '.join(map(quote_text, paths))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def planner() -> duckdb.DuckDBPyConnection:
    """Return a cursor on a database that parses and computes constants, and has no tables, files or network."""
    return _cursor(
        "planner", {"memory_limit": PLANNER_MEMORY}, f"SET GLOBAL max_expression_depth = {EXPRESSION_DEPTH_MAX}"
    )


def evaluator() -> duckdb.DuckDBPyConnection:
    """Return a cursor on a database that computes expressions, and has no tables, files or network.

    What is registered with a cursor, and its transaction, are its own.
    """
    return _cursor("evaluator", {})


def _cursor(name: str, options: Mapping[str, str], *settings: str) -> duckdb.DuckDBPyConnection:
    """Return a cursor on a confined database that all of the process share: opening one takes 9 ms."""
    with _lock:
        if name not in _shared:
            connection = connect({"threads": "1", "temp_directory": "", **options})
            for setting in settings:
                connection.execute(setting)
            confine(connection)
            _shared[name] = connection
        return _shared[name].cursor()


class Database(Protocol):
    """A database of this process, or one of another."""

    def execute(self, query: str, parameters: Sequence[Any] = ..., /) -> Any:
        """Run a statement; `fetchall` of what it returns gives its rows."""

    def later(self, sql: str, /) -> None:
        """Run a statement that returns nothing, such as CREATE VIEW, at the latest before the next."""

    def register(self, view_name: str, python_object: pa.Table, /) -> Any:
        """Give the database an Arrow table under a name."""

    def unregister(self, view_name: str, /) -> Any:
        """Take it back."""

    def columns(self, source: str, /) -> list[tuple[str, DuckType]] | None:
        """Return the columns of a relation, which is SQL; None where DuckDB finds that a name in it means nothing."""


class OwnDatabase:
    """A database of this process, by its connection."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self._connection = connection
        self.execute = connection.execute
        self.register = connection.register
        self.unregister = connection.unregister

    def later(self, sql: str) -> None:
        """Run a statement that returns nothing."""
        self._connection.execute(sql)

    def columns(self, source: str) -> list[tuple[str, DuckType]] | None:
        """Return the columns of a relation; None where it does not bind."""
        from alluvia.engine.duck.native import duckdb

        try:
            rows = self._connection.execute(f"DESCRIBE FROM {source}").fetchall()
        except duckdb.BinderException:
            return None
        types = {kind: self._connection.type(kind) for kind in {row[1] for row in rows}}
        return [(name, types[kind]) for name, kind, *_ in rows]
