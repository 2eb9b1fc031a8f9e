"""The limits of a query, and an estimate of the cost of its reads.

The estimate is that of a query that finds no copies of files in the cache. It leaves out the requests for the tables'
logs, and the invocation of the function.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import ceil
from pathlib import Path

from alluvia.access.rights import Rights
from alluvia.delta.deletion_vectors.descriptors import stored_vector
from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.reading.relations import Files, Inputs
from alluvia.prices import GET_DOLLARS, LAMBDA_GB_SECOND_DOLLARS
from alluvia.query.process.fetching import SMALL_BYTES
from alluvia.store.requests import Meter

STEP_BYTES = 8 << 20
"""DuckDB takes a large file in pieces of about this size: the columns of a row group."""
FUNCTION_GB = 3.5
"""The memory of the query function in the stack."""
READ_BYTES_A_SECOND = 75_000_000
"""What Lambda's network brings a function for long, and less than DuckDB decodes."""


def file_requests(size: int) -> int:
    """Return how many requests a data file of `size` bytes takes: one, or one for the footer and the pieces."""
    return 1 if size <= SMALL_BYTES else 1 + ceil(size / STEP_BYTES)


def requests_of(files: Sequence[AddFile]) -> int:
    """Return how many requests data files take, and the files that have their deletion vectors."""
    vectors = (stored_vector(file.deletion_vector) for file in files if file.deletion_vector)
    return sum(file_requests(file.size) for file in files) + len({vector.path for vector in vectors if vector})


def dollars(requests: int, size: int) -> float:
    """Return the price of requests to S3, and of a function's time while it reads `size` bytes."""
    return requests * GET_DOLLARS + size / READ_BYTES_A_SECOND * FUNCTION_GB * LAMBDA_GB_SECOND_DOLLARS


FILE_CACHE_BYTES = 256 << 20
READ = Meter()
"""The files and bytes that queries of this process were given to read."""


def machine_bytes() -> int:
    """Return how much memory this process may use: the machine's, or less in a container."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no such file, or "max"
        size = min(size, int(Path("/sys/fs/cgroup/memory.max").read_text("ascii")))
    return size


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What a query may take; None sets no limit (DuckDB's own is 80% of the memory, and every core)."""

    timeout_seconds: float | None = None
    memory_bytes: int | None = None
    threads: int | None = None
    spill_bytes: int | None = None
    file_cache_bytes: int = FILE_CACHE_BYTES
    """How much of the disk copies of small data files may take, those of other queries included; 0: there are none."""
    asked_bytes: int | None = None
    """The most bytes of files that one SELECT may read, as its sender says (`max_bytes`)."""
    allowed_bytes: int | None = None
    """The most bytes of files that one SELECT may read, as the settings say."""
    until: float | None = None
    """When queries that share the time must be done; None: each has all of it."""
    cancelled: Callable[[], bool] | None = None
    """True once the caller has disconnected, so that its query is ended."""

    def begun(self) -> QueryLimits:
        """Return limits whose time runs from now on, for several queries together; if it runs, the same ones."""
        return replace(self, until=self.deadline())

    def deadline(self) -> float | None:
        """Return when a query that starts now must be done, by `time.monotonic()`; None: whenever it is."""
        if self.until is not None:
            return self.until
        return None if self.timeout_seconds is None else time.monotonic() + self.timeout_seconds

    def check(self) -> None:
        """Raise `QueryTooCostly` if the time that queries share is up."""
        if self.until is not None and time.monotonic() > self.until:
            raise self.too_slow()

    def too_slow(self) -> QueryTooCostly:
        """Return the error for a query that takes too long."""
        return QueryTooCostly(
            f"the query took longer than the {self.timeout_seconds:g} seconds allowed: "
            "narrow it by time or another column of the WHERE clause, or select fewer columns"
        )

    def engine_options(self, spill: Path) -> dict[str, str]:
        """Return DuckDB's options for a query that spills into a folder."""
        options = {"temp_directory": str(spill)}
        if self.memory_bytes is not None:
            options["memory_limit"] = f"{self.memory_bytes}B"
        if self.spill_bytes is not None:
            options["max_temp_directory_size"] = f"{self.spill_bytes}B"
        if self.threads is not None:
            options["threads"] = str(self.threads)
        return options

    @property
    def held_bytes_max(self) -> int:
        """Return how many bytes of rows a query's process may hold before it is killed; see `processes.Watch`."""
        return machine_bytes() * 4 // 5 if self.memory_bytes is None else self.memory_bytes


class PlannedReads:
    """What a query is about to read in all, checked each time before it reads more."""

    def __init__(self, limits: QueryLimits, rights: Rights | None) -> None:
        self._limits, self._rights = limits, rights
        self._sizes: list[tuple[str, int]] = []
        self.snapshots: list[Snapshot] = []
        """The versions of tables that are read."""

    def add(self, inputs: Inputs) -> None:
        """Add files that are to be read. Raises what `check_bytes` does."""
        read = [each for each in inputs.values() if isinstance(each, Files)]
        self.snapshots += [each.snapshot for each in read]
        self._add([(each.snapshot.name, [file.size for file in each.files]) for each in read])

    def add_sizes(self, snapshot: Snapshot, sizes: Sequence[int]) -> None:
        """Add files of a table that are to be read, by their bytes. Raises what `check_bytes` does."""
        self.snapshots.append(snapshot)
        self._add([(snapshot.name, sizes)])

    def _add(self, read: Sequence[tuple[str, Sequence[int]]]) -> None:
        self._sizes += [(table, sum(sizes)) for table, sizes in read]
        check_bytes(self._limits, self._rights, self._sizes)
        READ.add("files", sum(len(sizes) for _, sizes in read))
        READ.add("bytes", sum(sum(sizes) for _, sizes in read))

    def add_changes(self, table: str, size: int) -> None:
        """Add the bytes of files that the changes of a table are read from. Raises what `check_bytes` does."""
        self._sizes.append((table, size))
        check_bytes(self._limits, self._rights, self._sizes)
        READ.add("bytes", size)


def check_bytes(limits: QueryLimits, rights: Rights | None, sizes: Sequence[tuple[str, int]]) -> None:
    """Raise `QueryTooCostly` where the files that a query is about to read exceed a limit, naming it.

    `sizes` are the bytes to read, by table. How many they are is not said where a caller may not see all of a table,
    and such a caller may not find it out by limits of its own: raises `Forbidden`.
    """
    if rights is not None and limits.asked_bytes is not None:
        rights.check_sees_all("max_bytes", [table for table, _ in sizes])
    planned = sum(size for _, size in sizes)
    for most, of in (
        (limits.asked_bytes, "by max_bytes"),
        (limits.allowed_bytes, "by the setting ALLUVIA_QUERY_BYTES"),
        (None if rights is None else rights.query_bytes, "to this caller"),
    ):
        if most is not None and planned > most:
            in_part = rights is not None and any(rights.restriction(table) for table, _ in sizes)
            raise QueryTooCostly(
                f"the query would read {'' if in_part else f'{planned} bytes, '}more than the {most} bytes "
                f"allowed {of}: narrow it by time or another column of the WHERE clause"
            )
