"""Small parts of objects that never change, read with few requests and kept in memory.

Parts of one object that lie close together are read with one GET.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from threading import Lock, Timer
from typing import Generic, TypeVar

from alluvia.errors import AlluviaError
from alluvia.store.base import ByteRange, Store
from alluvia.store.numbers import number_of

K = TypeVar("K", bound=Hashable)
KEPT_SECONDS = 3600.0
"""Bytes go after this time, also in an idle process, because `erase` and `vacuum` may have deleted their object."""


class KeptBytes(Generic[K]):
    """Bytes by key, up to `limit_bytes`: those used least recently make room. Safe for use from several threads."""

    def __init__(self, limit_bytes: int, now: Callable[[], float] = time.time) -> None:
        """`now` gives the time in seconds since the Unix epoch."""
        self._limit_bytes = limit_bytes
        self._now = now
        self._lock = Lock()
        self._parts: dict[K, tuple[bytes, float]] = {}  # in the order of their last use, with the time they came
        self._timer: tuple[int, Timer] | None = None
        self.held_bytes = 0

    def get(self, key: K) -> bytes | None:
        """Return what is kept, and use it."""
        with self._lock:
            data, since = self._parts.pop(key, (None, 0.0))
            if data is None:
                return None
            if since <= self._now() - KEPT_SECONDS:
                self.held_bytes -= len(data)
                return None
            self._parts[key] = (data, since)
            return data

    def keep(self, key: K, data: bytes) -> None:
        """Keep some bytes, unless they are more than all of it."""
        if len(data) > self._limit_bytes:
            return
        with self._lock:
            self._drop(key)
            self._parts[key] = (data, self._now())
            self.held_bytes += len(data)
            while self.held_bytes > self._limit_bytes:
                self._drop(next(iter(self._parts)))
            self._watch_age()

    def _drop(self, key: K) -> None:
        self.held_bytes -= len(self._parts.pop(key, (b"", 0.0))[0])

    def _drop_old(self) -> None:
        until = self._now() - KEPT_SECONDS
        for key in [key for key, (_, since) in self._parts.items() if since <= until]:
            self._drop(key)

    def _watch_age(self) -> None:
        if not self._parts or (self._timer is not None and self._timer[0] == os.getpid()):  # a fork has no timer
            return
        oldest = min(since for _, since in self._parts.values())
        timer = Timer(max(1.0, oldest + KEPT_SECONDS - self._now()), self._look_at_age)
        timer.daemon = True
        timer.start()
        self._timer = (os.getpid(), timer)

    def _look_at_age(self) -> None:
        with self._lock:
            self._timer = None
            self._drop_old()
            self._watch_age()


GAP_BYTES = 64 << 10
"""Reading this many bytes too much costs less than another request."""
SPAN_BYTES = 4 << 20
CACHE_BYTES = 32 << 20


class RangeCache:
    """Parts of objects for the queries of this process, up to `limit_bytes`. Safe for use from several threads."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._parts: KeptBytes[tuple[int, ByteRange]] = KeptBytes(limit_bytes)

    def get(self, store: Store, ranges: Iterable[ByteRange]) -> dict[ByteRange, bytes]:
        """Return parts of objects, each with its end. What cannot be read, or is too short, is left out."""
        wanted, number = list(dict.fromkeys(ranges)), number_of(store)
        known = {part: data for part in wanted if (data := self._parts.get((number, part))) is not None}
        spans = [*_spans(part for part in wanted if part not in known)]

        def read(span: Sequence[ByteRange]) -> bytes:
            try:
                return store.get(span[0].key, span[0].start, max(part.end or 0 for part in span))
            except AlluviaError:
                return b""

        for span, data in zip(spans, store.map(read, spans), strict=True):
            for part in span:
                start, end = part.start - span[0].start, (part.end or 0) - span[0].start
                if len(data) >= end:
                    known[part] = data[start:end]
                    self._parts.keep((number, part), known[part])
        return known


def _spans(parts: Iterable[ByteRange]) -> Iterator[list[ByteRange]]:
    """Yield parts that are read together: of one object, close to one another, and not too much."""
    span: list[ByteRange] = []
    for part in sorted(parts, key=lambda part: (part.key, part.start)):
        if span and (
            part.key != span[0].key
            or part.start - (span[-1].end or 0) > GAP_BYTES
            or (part.end or 0) - span[0].start > SPAN_BYTES
        ):
            yield span
            span = []
        span.append(part)
    if span:
        yield span


RANGES = RangeCache()
"""The parts that this process keeps."""
