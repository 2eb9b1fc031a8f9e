"""Requests to stores: how many run at once, how many there were, and how much time is left for them.

`each`, `one_ahead` and `fetched_ahead` are the one policy on threads for operations that need many objects.

`Meter` counts each attempt, also one that fails: S3 charges for most of them. Kinds are those of S3's prices: get,
head, put, list and delete. Requests to stores on this machine are not counted.

A function that runs one invocation at a time sets the time that is left (`ending`) for its process, whose threads share
it. Where it is not set, as in a server, requests have the time that the client gives them.
"""

from __future__ import annotations

import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import ParamSpec, TypeVar

from alluvia.errors import NoTimeLeft
from alluvia.scratch import scratch_root

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


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


@contextmanager
def ending_earlier(seconds: float) -> Iterator[None]:
    """Have all requests of the process end some seconds earlier during the block, so that others have time after it."""
    if not _left:
        yield
        return
    last = _left[0]
    with ending(lambda: last() - seconds):
        yield


def seconds_left() -> float | None:
    """Return how many seconds requests still have; None where nothing limits them."""
    return _left[-1]() if _left else None


def within(seconds: int) -> int:
    """Return the seconds that a request may take: those given, no more than are left, and at least one."""
    left = seconds_left()
    if left is None or left >= seconds:
        return seconds
    return next((step for step in STEPS if step <= left), STEPS[-1])


def check_left() -> None:
    """Raise `NoTimeLeft` where a request would have too little time."""
    left = seconds_left()
    if left is not None and left < SECONDS_MIN:
        raise NoTimeLeft("the lake's storage was too slow, and the request ran out of time: try again")


REQUESTS_AT_ONCE = 16
AHEAD_OBJECTS = 8
AHEAD_BYTES = 256 << 20
"""So much of the disk may hold objects that have been fetched and not yet been used."""


def each(work: Callable[[T], R], items: Iterable[T], *, parallel: bool, at_once: int = REQUESTS_AT_ONCE) -> list[R]:
    """Return what the work makes of each item, in order; the first error in that order stops what has not begun."""
    waiting = list(items)
    if not parallel or len(waiting) < 2:
        return [work(item) for item in waiting]
    with ThreadPoolExecutor(min(at_once, len(waiting))) as pool:
        return list(pool.map(metered_here(work), waiting))


def one_ahead(work: Callable[[T], R], items: Iterable[T], *, parallel: bool) -> Iterator[R]:
    """Yield what the work makes of each item, in order; while one is used, the work on the next is under way."""
    waiting = list(items)
    if not parallel or len(waiting) < 2:
        yield from map(work, waiting)
        return
    pool, work = ThreadPoolExecutor(1), metered_here(work)
    try:
        coming = pool.submit(work, waiting[0])
        for item in waiting[1:]:
            result = coming.result()
            coming = pool.submit(work, item)
            yield result
        yield coming.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def fetched_ahead(
    fetch: Callable[[str, Path], T], objects: Iterable[tuple[str, int]], *, parallel: bool
) -> Iterator[T]:
    """Yield what `fetch` makes of each key and a path for a copy, in order; requesting the next deletes the copy.

    `objects` are keys with about their sizes in bytes. The next ones are fetched in the meantime, within the limits.
    """
    pending = deque((key, size, f"{number}") for number, (key, size) in enumerate(objects))
    ahead: deque[tuple[int, Path, Future[T]]] = deque()
    with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
        if not parallel or len(pending) < 2:
            for key, _, name in pending:
                copy = Path(folder, name)
                yield fetch(key, copy)
                copy.unlink(missing_ok=True)
            return
        pool, fetch = ThreadPoolExecutor(AHEAD_OBJECTS), metered_here(fetch)
        try:
            while pending or ahead:
                while pending and _may_fetch([size for size, _, _ in ahead], pending[0][1]):
                    key, size, name = pending.popleft()
                    copy = Path(folder, name)
                    ahead.append((size, copy, pool.submit(fetch, key, copy)))
                _, copy, fetched = ahead.popleft()
                yield fetched.result()
                copy.unlink(missing_ok=True)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _may_fetch(ahead: Sequence[int], size: int) -> bool:
    return not ahead or (len(ahead) < AHEAD_OBJECTS and sum(ahead) + size <= AHEAD_BYTES)
