"""Small parts of objects that never change, read with few requests and kept in memory.

Parts of one object that lie close together are read with one GET.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from alluvia.errors import AlluviaError
from alluvia.store.base import ByteRange, Store
from alluvia.store.caches.kept_bytes import KeptBytes
from alluvia.store.numbers import number_of

GAP_BYTES = 64 << 10
"""To read so much too much costs less than another request."""
SPAN_BYTES = 4 << 20
CACHE_BYTES = 32 << 20


class RangeCache:
    """Parts of objects for the queries of this process, up to `limit_bytes`. Safe for use from several threads."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._parts: KeptBytes[tuple[int, ByteRange]] = KeptBytes(limit_bytes)

    def get(self, store: Store, ranges: Iterable[ByteRange]) -> dict[ByteRange, bytes]:
        """Return parts of objects, each with its end. What cannot be read, or is too short, is left out."""
        wanted, number = list(dict.fromkeys(ranges)), number_of(store)
        found = {part: data for part in wanted if (data := self._parts.get((number, part))) is not None}
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
                    self._parts.keep((number, part), found[part])
        return found


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
