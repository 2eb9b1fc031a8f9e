"""Write an object that must be written once, such as a commit, and back off when other writers were first. I/O.

A writer that has just committed knows the newest version and would win the next race too, while the others still read
its commit. So a process that saw others commit while it waited pauses before its next commit, for a part of the time
that as many commits take, and a writer that loses repeatedly waits less each time. In a closed loop of eight writers,
the longest wait is then about four times the median (`tests/simulation/test_backoff.py`). If waits only grew, one
writer could wait forever. All waits are multiples of the time of a request, so they suit near and distant stores.

An unclear answer of the store proves nothing, and a taken key may have been taken by this very write. Only the object
under the key decides. Source: icechunk, design-docs/017-conditional-put-lost-response.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from alluvia.clock import Clock
from alluvia.errors import AnswerLost, CommitUnknown, Invalid, Unavailable
from alluvia.store import PutResult, Store

RETRY = 4.0
RETRY_MAX = 16.0
"""The longest wait after the first lost race, and the longest of all, in requests."""
IMPATIENCE = 1.5
"""The power of the number of lost races by which a wait becomes shorter."""
COURTESY = 0.7
"""How many requests' time a process pauses for each commit that it saw others make."""
COURTESY_SECONDS_MAX = 2.0
REQUEST_SECONDS = 0.02
"""The assumed time of a request before one was timed."""
_REQUEST_SECONDS_MAX = 0.5
_INERTIA = 0.8


class Backoff:
    """How long to wait for other writers, by the races for versions that this process has seen. Hold the log's lock."""

    def __init__(self) -> None:
        self._request_seconds = REQUEST_SECONDS
        self._others = 0
        self._committed_ms = 0

    def before_commit(self, now_ms: int, chance: float) -> float:
        """Return how many seconds to pause before the first try of a commit; `chance` is from [0, 1).

        The time since the last commit of this process counts: the others had it.
        """
        seconds = min(COURTESY_SECONDS_MAX, COURTESY * self._others * self._request_seconds) * (0.5 + chance)
        return max(0.0, seconds - max(0, now_ms - self._committed_ms) / 1000)

    def after_loss(self, losses: int, chance: float) -> float:
        """Return how many seconds to wait before the next try, after this commit has lost some races."""
        requests: float = min(RETRY_MAX, RETRY * 2.0 ** min(losses - 1, 10)) / losses**IMPATIENCE
        return self._request_seconds * requests * chance

    def committed(self, others: int, began_ms: int, now_ms: int) -> None:
        """Take note of a commit of this process: how many of others came first, and when its last request began."""
        seconds = min(_REQUEST_SECONDS_MAX, max(0, now_ms - began_ms) / 1000)
        self._request_seconds = _INERTIA * self._request_seconds + (1 - _INERTIA) * seconds
        self._others = others
        self._committed_ms = now_ms


T = TypeVar("T")
WRITE_TRIES = 6


def put_once(
    store: Store,
    clock: Clock,
    key: str,
    data: bytes,
    *,
    what: str,
    read: Callable[[], T | None],
    is_ours: Callable[[T], bool],
) -> T | None:
    """Put an object. None if it is ours now; what another has put there if the key is taken.

    `read` returns what stands under the key, None for nothing. Raises `CommitUnknown`, naming `what` was to be written,
    when the outcome could not be learnt, so that the caller deletes nothing; `Unavailable` or `Invalid` if nothing
    happened.
    """
    sent_unclear = False
    for attempt in range(WRITE_TRIES):
        if attempt:
            clock.sleep(0.1 * 2**attempt * (0.5 + clock.uniform()))
        try:
            if store.put_if_absent(key, data) is PutResult.CREATED:
                return None
        except AnswerLost:
            sent_unclear = True
        except (Unavailable, Invalid) as error:
            if sent_unclear:
                raise unknown(what) from error
            raise
        try:
            stored = read()
        except (Unavailable, Invalid) as error:
            raise unknown(what) from error
        if stored is not None:
            return None if is_ours(stored) else stored
    raise unknown(what)


def unknown(what: str) -> CommitUnknown:
    """Return the error for a write whose outcome is unknown."""
    msg = f"it is unknown whether {what} was written: the store stopped answering; nothing was deleted"
    return CommitUnknown(msg)
