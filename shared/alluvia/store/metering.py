"""Requests to remote stores, counted where they are sent, for whoever has them sent.

Each attempt counts, also one that fails: S3 charges for most of them. Kinds are those of S3's prices: get, head, put,
list and delete. Nothing is counted of stores on this machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from threading import Lock
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Meter:
    """Counts by kind, such as requests. Safe for use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[str] = Counter()

    def add(self, kind: str, count: int) -> None:
        """Count some."""
        with self._lock:
            self._counts[kind] += count

    def counts(self) -> Counter[str]:
        """Return how many there were, by kind."""
        with self._lock:
            return Counter(self._counts)


TOTAL = Meter()
"""All requests of this process, and of those that ran its queries."""
_current: ContextVar[Meter | None] = ContextVar("meter", default=None)


def note_requests(kind: str, count: int = 1) -> None:
    """Count requests that are sent now."""
    TOTAL.add(kind, count)
    meter = _current.get()
    if meter is not None:
        meter.add(kind, count)


@contextmanager
def metered() -> Iterator[Meter]:
    """Count the requests of the block, and of work in other threads that is `metered_here`."""
    meter = Meter()
    token = _current.set(meter)
    try:
        yield meter
    finally:
        _current.reset(token)


def metered_here(work: Callable[P, R]) -> Callable[P, R]:
    """Return the same work, whose requests count here in whatever thread it is done."""
    meter = _current.get()
    if meter is None:
        return work

    @wraps(work)
    def counted(*args: P.args, **kwargs: P.kwargs) -> R:
        token = _current.set(meter)
        try:
            return work(*args, **kwargs)
        finally:
            _current.reset(token)

    return counted
