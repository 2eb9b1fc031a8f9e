"""DuckDB connections that can do only what a query needs.

A connection starts open, so that it can get views. Then `confine` locks it permanently: it can read exactly the given
files, and cannot change settings, load extensions or see Python's variables. It has no extension that reaches a network
and no credentials: what is not on this machine comes by `alluvia.store.caches.engine_files`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from alluvia.engine.duck.quoting import quote_text

if TYPE_CHECKING:
    import duckdb

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
    import duckdb  # loaded late: what only plans queries does without

    connection = duckdb.connect(":memory:", config={**_CLOSED, **options})
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
