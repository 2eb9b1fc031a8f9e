"""How the writers of one table take turns, each by what it has seen itself: nobody tells them of each other. Pure.

Whoever has just committed knows the newest version and would win the next race too, while the others still read what it
wrote. So a process that had to wait lately gives way before its next commit, for about as long as it waited, and one
that loses again and again waits less each time. In a closed loop of eight writers the longest wait is then about three
times the median (`tests/simulation/test_turns.py`); with waits that only grow, one writer may wait for ever.
"""

from __future__ import annotations

RETRY_SECONDS = 0.02
RETRY_SECONDS_MAX = 0.2
IMPATIENCE = 1.5
"""The power of the number of lost races by which a wait becomes shorter."""
COURTESY = 4
"""How many times its own usual wait a process gives way at most."""
SEEN_MS_MAX = 2000
"""After so long without a lost race a process takes itself to be alone."""
_INERTIA = 0.8


class Turns:
    """What one process has seen of the races for a table's versions. Hold the log's lock to use it."""

    def __init__(self) -> None:
        self._usual_seconds = 0.0
        self._waited_seconds = 0.0
        self._lost_ms: int | None = None

    def before_commit(self, now_ms: int, chance: float) -> float:
        """Return how many seconds to give way before the first try of a commit; `chance` is from [0, 1)."""
        if self._lost_ms is None or not 0 <= now_ms - self._lost_ms <= SEEN_MS_MAX:
            return 0.0
        return COURTESY * self._usual_seconds * chance

    def after_loss(self, losses: int, chance: float) -> float:
        """Return how many seconds to wait before the next try, after this commit has lost some races."""
        limit: float = min(RETRY_SECONDS_MAX, RETRY_SECONDS * 2.0 ** min(losses, 10)) / losses**IMPATIENCE
        self._waited_seconds += limit * chance
        return limit * chance

    def committed(self, losses: int, now_ms: int) -> None:
        """Take note that a commit of this process came through after so many lost races."""
        self._usual_seconds = _INERTIA * self._usual_seconds + (1 - _INERTIA) * self._waited_seconds
        self._waited_seconds = 0.0
        if losses:
            self._lost_ms = now_ms
