"""The deadline of requests to the store: the end of an invocation.

A function that runs at one invocation at a time sets it for its process, whose threads share it. Where none is set, as
in a server, requests have the time that the client gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from alluvia.errors import Unavailable

SECONDS_MIN = 0.5
"""With less time left, nothing is sent: its answer would come too late, and a write would be of unknown outcome."""
STEPS = (600, 300, 120, 60, 30, 20, 10, 5, 2, 1)
"""How many seconds a request may have: few different ones, since each has a client with connections of its own."""
_left: list[Callable[[], float]] = []


@contextmanager
def ending(left_seconds: Callable[[], float]) -> Iterator[None]:
    """Have all requests of the process end by when a function says that no seconds are left."""
    _left.append(left_seconds)
    try:
        yield
    finally:
        _left.remove(left_seconds)


def seconds_left() -> float | None:
    """Return how many seconds requests still have; None where nothing limits them."""
    return _left[-1]() if _left else None


def within(seconds: int) -> int:
    """Return how many seconds a request may have that would have so many: no more than are left, and at least one."""
    left = seconds_left()
    if left is None or left >= seconds:
        return seconds
    return next((step for step in STEPS if step <= left), STEPS[-1])


def check_left() -> None:
    """Raise `Unavailable` where a request would have too little time."""
    left = seconds_left()
    if left is not None and left < SECONDS_MIN:
        raise Unavailable("the lake's storage was too slow, and the request ran out of time: try again")
