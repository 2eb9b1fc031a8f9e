"""Small parts of objects that never change, read with few requests and kept in memory.

Parts of one object that lie close together are read with one GET.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from threading import Lock
from weakref import WeakKeyDictionary

from alluvia.errors import AlluviaError
from alluvia.store.base import ByteRange, Store

GAP_BYTES = 64 << 10
"""To read so much too much costs less than another request."""
SPAN_BYTES = 4 << 20
CACHE_BYTES = 32 << 20


class RangeCache:
    """Parts of objects for the queries of this process, up to `limit_bytes`. Safe for use from several threads."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._lock = Lock()
        self._stores: WeakKeyDictionary[Store, int] = WeakKeyDictionary()
        self._numbers = count()
        self._parts: dict[tuple[int, ByteRange], bytes] = {}  # in the order of their last use
        self._held_bytes = 0

    def get(self, store: Store, ranges: Iterable[ByteRange]) -> dict[ByteRange, bytes]:
        """Return parts of objects, each with its end. What cannot be read, or is too short, is left out."""
        wanted = list(dict.fromkeys(ranges))
        with self._lock:
            number = self._stores.setdefault(store, next(self._numbers))
            found = {part: self._parts[number, part] for part in wanted if (number, part) in self._parts}
        spans = [*_spans(part for part in wanted if part not in found)]

        def read(span: Sequence[ByteRange]) -> bytes:
            try:
                return store.get(span[0].key, span[0].start, max(part.end or 0 for part in span))
            except AlluviaError:
                return b""

        for span, data in zip(spans, store.map(read, spans), strict=True):
            for part in span:
                start, end = part.start - span[0].start, (part.end or 0) - span[0].start
                if len(data) >= end:
                    found[part] = data[start:end]
        self._keep(number, found)
        return found

    def _keep(self, number: int, found: dict[ByteRange, bytes]) -> None:
        with self._lock:
            for part, data in found.items():
                self._held_bytes += len(data) - len(self._parts.pop((number, part), b""))
                self._parts[number, part] = data
            while self._held_bytes > self._limit_bytes:
                self._held_bytes -= len(self._parts.pop(next(iter(self._parts))))


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
