"""When the next commit of offers is expected, so that those who wait for it need not look all the time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from alluvia.lazy_dataclasses import dataclass

COMMITS = 4
"""So many commits of offers tell how long it takes from one to the next."""
_REQUESTS_LEAST, _REQUESTS_MOST, _REQUESTS_USUAL = 3.0, 16.0, 4.0
"""How long that takes, as multiples of the time of a request: listing, reading offers, the file and the commit."""
_STALE = 3
"""After so many times without a commit, nobody knows when the next one comes."""
_NEARLY = 0.3


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When commits of offers come: the last known one at `last_ms`, and each so long after the one before."""

    last_ms: float
    each_ms: float

    @classmethod
    def of(cls, times_ms: Sequence[int], now_ms: int, request_ms: float) -> Rhythm:
        """Return the rhythm of commits by what they say of their times, the newest of which was just seen.

        Their writers' clocks may be wrong, so this is no more than a hint: the time between two is kept within what
        the requests may take, and none came in the future.
        """
        gaps = [after - before for before, after in pairwise(times_ms)]
        each = sum(gaps) / len(gaps) if gaps else _REQUESTS_USUAL * request_ms
        each = min(_REQUESTS_MOST * request_ms, max(_REQUESTS_LEAST * request_ms, each))
        last = times_ms[-1] + request_ms if times_ms else now_ms  # a commit tells when its request began
        return cls(min(now_ms, last), each)

    @property
    def due_ms(self) -> float:
        """When the next commit is expected."""
        return self.last_ms + self.each_ms

    def is_stale(self, now_ms: float) -> bool:
        """Whether so much time has passed that the next commit may come at any time."""
        return now_ms - self.due_ms > _STALE * self.each_ms

    def missed(self, now_ms: float) -> int:
        """Return how many commits there should be by now since the last known one, at least 1."""
        return max(1, int((now_ms - self.last_ms) / self.each_ms + _NEARLY))
