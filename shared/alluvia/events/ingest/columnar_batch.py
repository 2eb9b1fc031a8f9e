"""Events of one body in blocks: most of a block's have the same keys, and are columns instead of objects. Pure.

Most bodies hold many events with the same keys in the same order, as one program wrote them. `columnar_parser` reads
such lines several times as fast as Python objects can be made of them. Any other line is read by `jsontext`, which
alone says what an event is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, overload

import orjson

from alluvia.events.ingest.columnar_parser import Kinds, ParsedLines, lines_at, lines_of, parse_columns
from alluvia.events.ingest.values import RawEvent, all_but

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from alluvia.events.ingest.json_columns import JsonColumns
    from alluvia.events.ingest.values import Origin

BLOCK = 8192
"""Lines that are read together: each block has a cost of its own, and larger ones leave the processor's cache."""
BLOCK_BYTES_MIN = 1 << 16
"""For lines that are short, or often blank, so that more are read together."""
MANY = 256
"""Fewer lines are not worth it."""
_MISSES_MAX = 2  # blocks of lines that differ: then no more of them are tried
_HEAD_BYTES = 1 << 16  # of a block, which tell how long its lines are
_BLOCK_BYTES_MAX = 1 << 22


class ColumnarBatch(Sequence[RawEvent]):
    """Consecutive events. `columns` holds those at `places`; `odd` are the others, by their places.

    They are the `lines` with some numbers of the text, and came at `positions` of their body. `origin` is as that of a
    `RawEvent`.
    """

    def __init__(
        self,
        columns: JsonColumns,
        odd: Mapping[int, RawEvent],
        text: memoryview,
        lines: Sequence[int],
        positions: Sequence[int],
        origin: Origin | None = None,
    ) -> None:
        self.columns = columns
        self.odd = odd
        self.places = all_but(odd, len(lines))
        self.origin = origin
        self._text = text
        self._numbers = lines
        self._positions = positions

    @property
    def text_bytes(self) -> int:
        """Return about how many bytes their JSON has, as sent."""
        return len(self._text)

    def moved(self, by: int) -> ColumnarBatch:
        """Return the events at later positions."""
        odd = {at: event._replace(position=event.position + by) for at, event in self.odd.items()}
        positions = _moved(self._positions, by)
        return ColumnarBatch(self.columns, odd, self._text, self._numbers, positions, self.origin)

    def of_request(self, origin: Origin) -> ColumnarBatch:
        """Return the same events, for a group that has other requests."""
        odd = {at: _of_request(event, origin) for at, event in self.odd.items()}
        own = self.origin or origin
        return ColumnarBatch(self.columns, odd, self._text, self._numbers, self._positions, own)

    def odd_and(self, rows: Sequence[int]) -> Mapping[int, RawEvent]:
        """Return the odd events, and those of some rows of `columns`, by their places among all, in order."""
        numbers = {self._numbers[at]: at for at in (self.places[row] for row in rows)}
        lines = lines_at(numbers, self._text)
        others = {at: self._event(at, lines[number]) for number, at in numbers.items()}
        return dict(sorted({**others, **self.odd}.items()))

    def _event(self, at: int, line: bytes) -> RawEvent:
        return RawEvent(self._positions[at], orjson.loads(line), line, self.origin)

    @cached_property
    def _lines(self) -> list[bytes]:
        return lines_of(self._text.tobytes())

    def __len__(self) -> int:
        return len(self._numbers)

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
        return self._event(at, self._lines[self._numbers[at]])


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
            part.text_bytes if isinstance(part, ColumnarBatch) else sum(len(event.raw or b"") for event in part)
            for part in self.parts
        )


def moved(events: Sequence[RawEvent], by: int) -> Sequence[RawEvent]:
    """Return events at later positions, as those of one part of a file are."""
    if isinstance(events, EventParts):
        return EventParts([moved(part, by) for part in events.parts])
    if isinstance(events, ColumnarBatch):
        return events.moved(by)
    return [event._replace(position=event.position + by) for event in events]


def grouped(requests: Iterable[tuple[Sequence[RawEvent], Origin]]) -> Sequence[RawEvent]:
    """Return the events of several requests as those of one; each keeps its origin."""
    parts: list[Sequence[RawEvent]] = []
    for events, origin in requests:
        for part in events.parts if isinstance(events, EventParts) else [events]:
            if isinstance(part, ColumnarBatch):
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


class LineBlock(NamedTuple):
    """Some lines of a text: as columns, or one by one."""

    text: memoryview
    lines: ParsedLines | list[bytes]

    @property
    def size(self) -> int:
        """Return how many lines it has, without blank ones."""
        return len(self.lines) if isinstance(self.lines, list) else self.lines.size


def blocks_of(text: bytes, longest: int) -> Iterator[LineBlock]:
    """Cut a text into blocks, in order. Blank lines are left out. Those of over `longest` bytes are in no columns."""
    view = memoryview(text)  # what is kept of it takes no fresh memory
    misses = start = 0
    known: Kinds | None = None
    while start < len(text):
        head = text[start : start + _HEAD_BYTES]
        block_bytes = min(len(head) * BLOCK // (head.count(b"\n") + 1) + 1, _BLOCK_BYTES_MAX)
        end = text.find(b"\n", start + max(block_bytes, BLOCK_BYTES_MIN)) + 1 or len(text)
        block = text[start:end]
        parsed = parse_columns(block, longest, known) if misses < _MISSES_MAX else None
        if parsed is None:
            misses += 1
        else:
            known = parsed.kinds
        yield LineBlock(view[start:end], parsed or lines_of(block))
        start = end


def batch_of(text: memoryview, parsed: ParsedLines, positions: Sequence[int], odd: Sequence[RawEvent]) -> ColumnarBatch:
    """Return the events of lines at some positions; `odd` are those of the odd lines that are events."""
    by_position = {event.position: event for event in odd}
    rejected = [at for at in parsed.odd if positions[at] not in by_position]
    lines = all_but(rejected, parsed.size)
    kept = [at for at in parsed.odd if positions[at] in by_position]
    events = {at - bisect_left(rejected, at): by_position[positions[at]] for at in kept}
    if rejected:
        positions = [positions[at] for at in lines]
    return ColumnarBatch(parsed.columns, events, text, lines, positions)
