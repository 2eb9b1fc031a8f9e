"""Share a limit of memory between what a process holds already, DuckDB, and rows on their way into files.

DuckDB's own limit leaves out the allocator's waste and some buffers. In its block allocator nothing is wasted: then a
process takes less than `ENGINE_BYTES` more than the limit.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from alluvia.lazy_dataclasses import dataclass

ENGINE_BYTES = 96_000_000
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
