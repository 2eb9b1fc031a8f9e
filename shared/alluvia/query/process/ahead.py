"""Empty databases that a query's process opens ahead: opening one takes as long as many queries do."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from alluvia.engine.duck.database import connect
from alluvia.engine.queries.shown_names import VIEW_SCHEMA

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

AHEAD = 2
"""Two, so that the next one opens while a query that follows another at once is running. Each takes 3 MB."""


def empty_database(options: Mapping[str, str]) -> DuckDBPyConnection:
    """Open a database for a query, which keeps nothing of files in memory. `options` are DuckDB's."""
    connection = connect({**options, "enable_external_file_cache": "false"})
    connection.execute(f"CREATE SCHEMA {VIEW_SCHEMA}")
    return connection


class DatabasesAhead:
    """Databases with the same options, each for one query, opened in a thread. Not safe for several threads."""

    def __init__(self) -> None:
        self._options: Mapping[str, str] | None = None
        self._opened: SimpleQueue[DuckDBPyConnection | None] = SimpleQueue()
        self._due = 0
        self._last: Mapping[str, str] = {}

    def take(self, options: Mapping[str, str]) -> DuckDBPyConnection:
        """Return an empty database, for one query. Raises `duckdb.Error`."""
        self._last, last = options, self._last
        if self._options is None or (options != self._options and options == last):
            self._options, self._opened, self._due = options, SimpleQueue(), 0
        if options == self._options and self._due:
            self._due -= 1
            if (connection := self._opened.get()) is not None:
                return connection
        return empty_database(options)

    def refill(self) -> None:
        """Start to open the databases that are missing."""
        if self._options is not None and self._due < AHEAD:
            Thread(target=_open, args=(self._options, AHEAD - self._due, self._opened)).start()
            self._due = AHEAD


def _open(options: Mapping[str, str], count: int, opened: SimpleQueue[DuckDBPyConnection | None]) -> None:
    """Open databases; None stands for one that could not be opened."""
    for _ in range(count):
        connection = None
        with suppress(Exception):  # the waiting query then opens one itself, and reports its error
            connection = empty_database(options)
        opened.put(connection)
