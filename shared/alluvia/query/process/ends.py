"""Our errors for the end of a query's process, and for data files that it cannot read."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from alluvia.engine.duck.failures import (
    ENGINE_FAILED,
    QueryStopped,
    QueryTooCostly,
    UnreadableFile,
    UnservedFile,
    out_of_memory,
)
from alluvia.errors import AlluviaError, Corrupt, Invalid, Unavailable
from alluvia.processes.pool import Cancelled, OutOfMemory, OutOfTime, ProcessDied
from alluvia.query.limits import QueryLimits
from alluvia.store import Store

HEADS_MAX = 64
"""How many files are looked for if DuckDB could not open one and does not say which."""


@contextmanager
def within(limits: QueryLimits) -> Iterator[None]:
    """Raise our errors if a query's process ends, by itself or at one of the limits."""
    try:
        yield
    except OutOfTime:
        raise limits.too_slow() from None
    except Cancelled:
        raise QueryStopped("the query was cancelled") from None
    except OutOfMemory:
        raise QueryTooCostly(out_of_memory(limits.memory_bytes)) from None
    except ProcessDied as error:
        if error.status >= 0:
            raise
        if error.status == -signal.SIGKILL:  # not by us: the system was out of memory
            raise QueryTooCostly(out_of_memory(limits.memory_bytes)) from error
        if error.status == -signal.SIGXCPU:
            raise QueryTooCostly("the query takes too long to parse: shorten it") from error
        raise Invalid(ENGINE_FAILED) from error


def unlike(table: str) -> Corrupt:
    """Return the error for data files that lack a column of their table."""
    return Corrupt(f"the data files of {table} do not match the table's schema")


def unserved(error: UnservedFile, path: str) -> AlluviaError:
    """Return our error for a data file that the process could not get from the store."""
    if error.why == "missing":
        return Corrupt(f"data file {path} is missing")
    if error.why == "changed":
        return Corrupt(f"{path}, a file of an external table, has changed: refresh the table")
    if error.why == "short":  # our own reader does not need the size in the log
        return UnreadableFile(path, Corrupt(f"the data file {path} is shorter than the log says"))
    return Unavailable(f"the data file {path} could not be read from the store: try again")


def missing_file(store: Store, keys: Mapping[str, str], message: str) -> str | None:
    """Return the URL of a file that the store lacks, among those that a message of DuckDB's may mean.

    `keys` are the keys of files by their URLs. One HEAD for each file that is looked for.
    """

    def is_missing(key: str) -> bool:
        try:
            return store.head(key) is None
        except AlluviaError:  # then it is unknown
            return False

    named = [url for url in keys if url in message] or list(keys)[:HEADS_MAX]
    return next((url for url in named if is_missing(keys[url])), None)
