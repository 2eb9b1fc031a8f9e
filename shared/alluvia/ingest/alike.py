"""Lines of JSON that are alike, as columns instead of objects. Pure.

Most bodies hold many events with the same keys in the same order, as one program wrote them. pyarrow reads such lines
several times as fast as Python objects can be made of them, and `alike_reading` proves what it reads. Any other line,
and any block of lines that pyarrow refuses, is read by `jsontext`, which alone says what an event is.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, overload

import orjson
import pyarrow as pa

from alluvia.ingest.alike_reading import SPACE, Alike, read_alike
from alluvia.ingest.values import RawEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from alluvia.ingest.values import Origin

BLOCK = 2048
"""Lines that are read together: what that takes stays in the processor's cache, and is used again."""
MANY = 256
"""Fewer lines are not worth it."""
_LEAST = 128
"""Of so few lines all are left to `jsontext` if pyarrow refuses one."""
_AROUND = 64
"""So many lines around one that pyarrow refuses are left to `jsontext`."""
_REFUSED = re.compile(r"in row (\d+)$")
_MISSES_MAX = 2  # blocks of lines that are not alike: then no more of them are looked at
_HEAD_BYTES = 1 << 16  # which tell how long lines are


class AlikeBlock(Sequence[RawEvent]):
    """Consecutive events, most of them alike; `odd` are the others, by their places among all.

    `alike` holds those at `places`. All lines of a text, those of no event too, came at `positions` of their body.
    `origin` is as that of a `RawEvent`.
    """

    def __init__(
        self,
        alike: Alike,
        places: Sequence[int],
        positions: Sequence[int],
        odd: Mapping[int, RawEvent],
        origin: Origin | None = None,
    ) -> None:
        self.alike = alike.columns
        self.places = places
        self.odd = odd
        self.origin = origin
        self._source = alike
        self._positions = positions

    @property
    def text_bytes(self) -> int:
        """Return about how many bytes their JSON has, as sent."""
        return len(self._source.text)

    def moved(self, by: int) -> AlikeBlock:
        """Return the events at later positions."""
        odd = {at: event._replace(position=event.position + by) for at, event in self.odd.items()}
        return AlikeBlock(self._source, self.places, _moved(self._positions, by), odd, self.origin)

    def of_request(self, origin: Origin) -> AlikeBlock:
        """Return the same events, for a group that has other requests."""
        odd = {at: _of_request(event, origin) for at, event in self.odd.items()}
        return AlikeBlock(self._source, self.places, self._positions, odd, self.origin or origin)

    @cached_property
    def _lines(self) -> list[tuple[int, bytes]]:
        """The lines that are alike, with their numbers."""
        lines = enumerate(lines_of(self._source.text))
        return [(number, line) for number, line in lines if number not in self._source.others]

    def __len__(self) -> int:
        return len(self.places) + len(self.odd)

    @overload
    def __getitem__(self, index: int) -> RawEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[RawEvent]: ...
    def __getitem__(self, index: int | slice) -> RawEvent | list[RawEvent]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        if at in self.odd:
            return self.odd[at]
        at = bisect_left(self.places, at)
        number, line = self._lines[at]
        return RawEvent(self._positions[number], orjson.loads(line), line, self.origin)


class EventParts(Sequence[RawEvent]):
    """Events in consecutive parts: blocks, and lists of others."""

    def __init__(self, parts: Sequence[Sequence[RawEvent]]) -> None:
        self.parts = parts
        self._ends = list(accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> RawEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[RawEvent]: ...
    def __getitem__(self, index: int | slice) -> RawEvent | list[RawEvent]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        part = bisect_left(self._ends, at + 1)
        return self.parts[part][at - self._ends[part]]

    def __iter__(self) -> Iterator[RawEvent]:
        for part in self.parts:
            yield from part

    @property
    def text_bytes(self) -> int:
        """Return about how many bytes their JSON has, as sent."""
        return sum(
            part.text_bytes if isinstance(part, AlikeBlock) else sum(len(event.raw or b"") for event in part)
            for part in self.parts
        )


def moved(events: Sequence[RawEvent], by: int) -> Sequence[RawEvent]:
    """Return events at later positions, as those of one part of a file are."""
    if isinstance(events, EventParts):
        return EventParts([moved(part, by) for part in events.parts])
    if isinstance(events, AlikeBlock):
        return events.moved(by)
    return [event._replace(position=event.position + by) for event in events]


def grouped(requests: Iterable[tuple[Sequence[RawEvent], Origin]]) -> Sequence[RawEvent]:
    """Return the events of several requests as those of one; each keeps its origin."""
    parts: list[Sequence[RawEvent]] = []
    for events, origin in requests:
        for part in events.parts if isinstance(events, EventParts) else [events]:
            if isinstance(part, AlikeBlock):
                parts.append(part.of_request(origin))
                continue
            if not parts or not isinstance(parts[-1], list):
                parts.append([])
            parts[-1] += [_of_request(event, origin) for event in part]  # type: ignore[operator]
    return EventParts(parts) if len(parts) > 1 else next(iter(parts), [])


def _of_request(event: RawEvent, origin: Origin) -> RawEvent:
    return event if event.origin is not None else RawEvent(*event[:3], origin, *event[4:])


def _moved(positions: Sequence[int], by: int) -> Sequence[int]:
    if isinstance(positions, range) and positions.step == 1:
        return range(positions.start + by, positions.stop + by)
    return [at + by for at in positions]


def lines_of(text: pa.Buffer) -> list[bytes]:
    """Return the lines of a text, without the space around them, some of which may be blank."""
    return [line.strip(SPACE) for line in text.to_pybytes().split(b"\n")]


def alike_parts(text: bytes, longest: int) -> Iterator[Alike | list[bytes]]:
    """Cut a text into blocks, and yield in order the lines that are alike, and those of parts without any.

    Blank lines are left out. Those of more than `longest` bytes are alike to no other.
    """
    whole = pa.py_buffer(text)
    head = text[:_HEAD_BYTES]
    block_bytes = len(head) * BLOCK // (head.count(b"\n") + 1) + 1
    misses = start = 0
    while start < len(text):
        end = text.find(b"\n", start + block_bytes)
        block = whole.slice(start, (len(text) if end < 0 else end) - start)
        start += len(block) + 1
        missed = 0
        for part in _tried(block, longest) if misses < _MISSES_MAX else [list(filter(None, lines_of(block)))]:
            missed += sum(map(len, part)) if isinstance(part, list) else 0
            yield part
        misses += missed * 2 > len(block)


def _tried(text: pa.Buffer, longest: int) -> Iterator[Alike | list[bytes]]:
    """Yield a block, or parts of it if pyarrow refuses one of its lines: then the others may well be alike."""
    try:
        found = read_alike(text, longest)
        if found is None:
            lines = list(filter(None, lines_of(text)))
            bare = pa.py_buffer(b"\n".join(lines))
            found = read_alike(bare, longest) if len(bare) < len(text) else None
        yield found or lines
    except pa.ArrowInvalid as error:
        lines = list(filter(None, lines_of(text)))
        if len(lines) <= _LEAST:
            yield lines
            return
        named = _REFUSED.search(str(error))
        start = end = len(lines) // 2
        if named is not None:
            start = max(0, min(int(named[1]), len(lines) - 1) - _AROUND // 2)
            end = start + _AROUND
        if start:
            yield from _tried(pa.py_buffer(b"\n".join(lines[:start])), longest)
        if end > start:
            yield lines[start:end]
        if lines[end:]:
            yield from _tried(pa.py_buffer(b"\n".join(lines[end:])), longest)


def block_of(alike: Alike, positions: Sequence[int], odd: Sequence[RawEvent]) -> AlikeBlock:
    """Return the events of lines at some positions; `odd` are those of the lines that are not alike."""
    if not alike.others:
        return AlikeBlock(alike, range(len(positions)), positions, {})
    by_position = {event.position: event for event in odd}
    places: list[int] = []
    others: dict[int, RawEvent] = {}
    size = start = 0
    for end in [*sorted(alike.others), len(positions)]:
        places += range(size, size + end - start)
        size += end - start
        if end < len(positions) and (event := by_position.get(positions[end])) is not None:
            others[size] = event
            size += 1
        start = end + 1
    return AlikeBlock(alike, places, positions, others)
