"""Lines of JSON that are alike, as columns instead of objects. Pure.

Most bodies hold many events with the same keys in the same order, as one program wrote them. pyarrow reads such lines
several times as fast as Python objects can be made of them, and `alike_reading` proves what it reads. Any other line is
read by `jsontext`, which alone says what an event is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, overload

import orjson
import pyarrow as pa

from alluvia.events.columnar.alike_columns import AlikeColumns
from alluvia.events.columnar.alike_reading import SPACE, Alike, read_alike
from alluvia.events.ingest.values import RawEvent, all_but

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from alluvia.events.ingest.values import Origin

BLOCK = 2048
"""Lines that are read together: what that takes stays in the processor's cache, and is used again."""
BLOCK_BYTES_MIN = 1 << 16
"""For lines so short, or so many of them blank, that more are read together."""
MANY = 256
"""Fewer lines are not worth it."""
_MISSES_MAX = 2  # blocks of lines that are not alike: then no more of them are looked at
_HEAD_BYTES = 1 << 16  # of a block, which tell how long its lines are
_BLOCK_BYTES_MAX = 1 << 22


class AlikeBlock(Sequence[RawEvent]):
    """Consecutive events, most of them alike; `odd` are the others, by their places among all, in order.

    `alike` holds those at `places`, and something else in the place of those that are odd as well. All came at
    `positions` of their body, with `text_bytes` of JSON in all. `origin` is as that of a `RawEvent`.
    """

    def __init__(
        self,
        alike: AlikeColumns,
        places: Sequence[int],
        positions: Sequence[int],
        odd: Mapping[int, RawEvent],
        text_bytes: int,
        origin: Origin | None = None,
    ) -> None:
        self.alike = alike
        self.places = places
        self.odd = odd
        self.text_bytes = text_bytes
        self.origin = origin
        self._positions = positions

    def moved(self, by: int) -> AlikeBlock:
        """Return the events at later positions."""
        odd = {at: event._replace(position=event.position + by) for at, event in self.odd.items()}
        positions = _moved(self._positions, by)
        return AlikeBlock(self.alike, self.places, positions, odd, self.text_bytes, self.origin)

    def of_request(self, origin: Origin) -> AlikeBlock:
        """Return the same events, for a group that has other requests."""
        odd = {at: _of_request(event, origin) for at, event in self.odd.items()}
        return AlikeBlock(self.alike, self.places, self._positions, odd, self.text_bytes, self.origin or origin)

    def odd_and(self, indexes: Sequence[int]) -> Mapping[int, RawEvent]:
        """Return the odd events, and others that `alike` holds at some indexes, by their places among all, in order."""
        places = {at: index for index in indexes if (at := self.places[index]) not in self.odd}
        lines = zip(places, self.alike.lines_at([*places.values()]), strict=True) if places else ()
        return dict(sorted({**{at: self._event(at, line) for at, line in lines}, **self.odd}.items()))

    def _event(self, at: int, line: bytes) -> RawEvent:
        return RawEvent(self._positions[at], orjson.loads(line), line, self.origin)

    @cached_property
    def _lines(self) -> list[bytes]:
        lines: list[bytes] = self.alike.lines().cast(pa.binary()).to_pylist()
        return lines

    def __len__(self) -> int:
        return len(self._positions)

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
        return self._event(at, self._lines[bisect_left(self.places, at)])


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
    misses = start = 0
    while start < len(text):
        head = text[start : start + _HEAD_BYTES]
        block_bytes = min(len(head) * BLOCK // (head.count(b"\n") + 1) + 1, _BLOCK_BYTES_MAX)
        end = text.find(b"\n", start + max(block_bytes, BLOCK_BYTES_MIN))
        block = whole.slice(start, (len(text) if end < 0 else end) - start)
        start += len(block) + 1
        found = read_alike(block, longest) if misses < _MISSES_MAX else None
        if found is None:
            misses += 1
        yield found or list(filter(None, lines_of(block)))


def block_of(alike: Alike, positions: Sequence[int], odd: Sequence[RawEvent]) -> AlikeBlock:
    """Return the events of lines at some positions; `odd` are those of the lines that are not alike."""
    by_position = {event.position: event for event in odd}
    rejected = [at for at in alike.others if positions[at] not in by_position]
    if rejected:
        starts = [0, *(at + 1 for at in rejected)]
        kept = (positions[start:end] for start, end in zip(starts, [*rejected, alike.size], strict=True))
        positions = list(chain.from_iterable(kept))
        alike = alike.without(rejected)
    others = {at: by_position[positions[at]] for at in alike.others}
    return AlikeBlock(alike.columns, all_but(alike.skipped, alike.size), positions, others, len(alike.text))
