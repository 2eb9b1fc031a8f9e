"""The limits of a query."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What a query may take; None sets no limit (DuckDB's own is 80% of the memory, and every core)."""

    timeout_seconds: float | None = None
    memory_bytes: int | None = None
    threads: int | None = None
    spill_bytes: int | None = None
