"""Limits for reading a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

from alluvia.lazy_dataclasses import dataclass
from alluvia.processes.pool import Watch

BYTES_MAX = 16 << 20
NAMES_MAX = 2000
"""Columns of a file and nested fields, together."""


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits for reading a file; None: no limit."""

    bytes_max: int = BYTES_MAX
    """Of the file, inflated, and of its rows, as Arrow counts them."""
    names_max: int = NAMES_MAX
    """Names of columns, and of fields in them."""
    seconds: float | None = None
    memory_bytes: int | None = None
    """What the process that reads it may hold."""
    cancelled: Callable[[], bool] | None = None
    """True once the sender has disconnected."""
    until: float | None = None
    """When the file must be read, by `time.monotonic()`: where it is read several times, they share the time."""

    def begun(self) -> FileLimits:
        """Return limits whose time runs from now on; if it runs, the same ones."""
        if self.seconds is None or self.until is not None:
            return self
        return replace(self, until=time.monotonic() + self.seconds)

    def watch(self) -> Watch:
        """Return what a process that reads the file is held to."""
        return Watch(self.until, self.memory_bytes, self.cancelled)


UNLIMITED = FileLimits(bytes_max=sys.maxsize)
"""For files of the user who runs the process."""
