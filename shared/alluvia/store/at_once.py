"""How many requests are under way at once: the one policy on threads for whatever asks a store for much."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from alluvia.scratch import scratch_root
from alluvia.store.metering import metered_here

T = TypeVar("T")
R = TypeVar("R")
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
            found = coming.result()
            coming = pool.submit(work, item)
            yield found
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
