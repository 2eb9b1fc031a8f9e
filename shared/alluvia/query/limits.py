"""The limits of a query."""

from __future__ import annotations

import time
from dataclasses import dataclass


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
