"""Whether writers of a table meet. Pure."""

from __future__ import annotations

CROWD_MS = 10_000
"""For how long a process that met other writers offers its rows at once."""


class Crowd:
    """Whether other writers commit to a table at the same time, as far as this process has seen."""

    def __init__(self) -> None:
        self._until_ms = 0

    def met(self, now_ms: int) -> None:
        """Take note of others."""
        self._until_ms = now_ms + CROWD_MS

    def gone(self) -> None:
        """Take note that there are no others."""
        self._until_ms = 0

    def is_there(self, now_ms: int) -> bool:
        """Whether others were seen lately."""
        return now_ms < self._until_ms
