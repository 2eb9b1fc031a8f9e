"""The limits of a query."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


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

    def deadline(self) -> float | None:
        """Return when a query that starts now must be done, by `time.monotonic()`; None: whenever it is."""
        return None if self.timeout_seconds is None else time.monotonic() + self.timeout_seconds

    @property
    def held_bytes_max(self) -> int:
        """Return how many bytes of rows a query's process may hold before it is killed; see `processes.Watch`."""
        return machine_bytes() * 4 // 5 if self.memory_bytes is None else self.memory_bytes
