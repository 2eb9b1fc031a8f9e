"""Lines of JSON that are alike, as columns instead of objects. Pure.

Most bodies hold many events with the same keys in the same order, as one program wrote them. pyarrow reads such lines
several times as fast as Python objects can be made of them. It is not as strict as `jsontext`, so nothing that it reads
is trusted: each line is written again, key by key, from the columns that were read of it. Only a line that comes out
byte for byte is kept as columns. It is then the very text that the values have: it has no other key, no key twice, no
space, no escape, no digit that was rounded. Any other line, and any block of lines that pyarrow refuses, is read by
`jsontext`, which alone says what an event is.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, overload

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.ingest.values import RawEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
_SAMPLES = 8
_SPACE = b" \t\r\n"
_BOUNDS = Struct("=ii")
_LINE_END = "\n"
_HEAD_BYTES = 1 << 16  # which tell how long lines are
_FEW = 16
_COMPARED_BYTES = 1 << 16
_TEXT_BYTES_MAX = (1 << 31) - 1
_KINDS = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}


class AlikeColumns:
    """Objects with the same keys, as a column for each: texts, integers (64 bits), or true and false, with nulls."""

    def __init__(self, columns: Mapping[str, pa.Array]) -> None:
        self.columns = columns
        self._json: dict[str, pa.Array] = {}

    def texts(self, names: Sequence[str], end: str = "") -> pa.Array:
        """Return for each object the compact JSON text of its fields of those names, in that order, and an end."""
        literals: list[str] = []
        columns: list[pa.Array] = []
        quote = ""
        for name in names:
            column = self.columns[name]
            plain = pa.types.is_string(column.type) and not column.null_count
            before = f"{quote}," if literals else "{"
            quote = '"' if plain else ""
            literals.append(f'{before}"{name}":{quote}')
            columns.append(column if plain else self._json_of(name, column))
        first, *others = columns
        rest = [each for pair in zip(literals[1:], others, strict=True) for each in pair]
        return pc.binary_join_element_wise(literals[0], first, *rest, f"{quote}}}{end}", "")

    def _json_of(self, name: str, column: pa.Array) -> pa.Array:
        if name not in self._json:
            is_text = pa.types.is_string(column.type)
            found = pc.binary_join_element_wise('"', column, '"', "") if is_text else column.cast(pa.string())
            self._json[name] = pc.fill_null(found, "null")
        return self._json[name]

    def where(self, mask: pa.BooleanArray) -> AlikeColumns:
        """Return the objects for which a mask holds."""
        return AlikeColumns({name: column.filter(mask) for name, column in self.columns.items()})


class AlikeBlock(Sequence[RawEvent]):
    """Consecutive events, most of them alike; `odd` are the others, by their places among all.

    `alike` holds those at `places`. They came at `positions` of their body, as lines of a text.
    """

    def __init__(
        self,
        alike: Alike,
        places: Sequence[int],
        positions: Sequence[int],
        odd: Mapping[int, RawEvent],
    ) -> None:
        self.alike = alike.columns
        self.places = places
        self.odd = odd
        self._source = alike
        self._positions = positions

    @property
    def text_bytes(self) -> int:
        """Return about how many bytes their JSON has, as sent."""
        return len(self._source.text)

    def moved(self, by: int) -> AlikeBlock:
        """Return the events at later positions."""
        odd = {at: event._replace(position=event.position + by) for at, event in self.odd.items()}
        return AlikeBlock(self._source, self.places, _moved(self._positions, by), odd)

    @cached_property
    def _lines(self) -> list[bytes]:
        lines = lines_of(self._source.text)
        return [line for place, line in enumerate(lines) if place not in self._source.others]

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
        return RawEvent(self._positions[at], orjson.loads(self._lines[at]), self._lines[at])


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


def _moved(positions: Sequence[int], by: int) -> Sequence[int]:
    if isinstance(positions, range) and positions.step == 1:
        return range(positions.start + by, positions.stop + by)
    return [at + by for at in positions]


class Alike(NamedTuple):
    """Those of the `size` lines of a text that are alike, as columns.

    `others` are the other lines, by their places, without the space around them. None of them is blank.
    """

    text: pa.Buffer
    columns: AlikeColumns
    size: int
    others: Mapping[int, bytes]


def lines_of(text: pa.Buffer) -> list[bytes]:
    """Return the lines of a text, without the space around them, some of which may be blank."""
    return [line.strip(_SPACE) for line in text.to_pybytes().split(b"\n")]


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


def read_alike(text: pa.Buffer, longest: int = sys.maxsize) -> Alike | None:
    """Read lines that seem alike. None if they do not, if most of them are not, or if some are blank.

    Raises pyarrow.ArrowInvalid for one that is not JSON, not UTF-8, or has a value of another type than the others.
    """
    if len(text) > _TEXT_BYTES_MAX:
        return None
    from pyarrow import json  # only for many lines: a cold start does without

    sent = text.to_pybytes()
    kinds = _kinds(sent)
    if kinds is None:
        return None
    whole = _one_text(text)
    options = json.ParseOptions(explicit_schema=pa.schema(list(kinds.items())), unexpected_field_behavior="ignore")
    found = json.read_json(
        pa.BufferReader(text), json.ReadOptions(use_threads=False, block_size=len(text) + 1), options
    )
    if not len(found):
        return None
    every = AlikeColumns({name: found[name].chunk(0) for name in kinds})
    written = every.texts(list(kinds), _LINE_END)
    others = _few_others(written, sent) if len(text) <= longest else None
    if others is None:
        others = _others(written, pc.split_pattern(whole, "\n").flatten(), longest)
    if others is None or len(others) * 2 > len(found) or not all(others.values()):
        return None
    if others:
        every = every.where(pa.array([place not in others for place in range(len(found))], pa.bool_()))
    return Alike(text, every, len(found), others)


def _one_text(text: pa.Buffer) -> pa.Array:
    """Return an array of one text. Raises pyarrow.ArrowInvalid if it is not UTF-8."""
    bounds = pa.py_buffer(_BOUNDS.pack(0, len(text)))
    return pa.Array.from_buffers(pa.binary(), 1, [None, bounds, text]).cast(pa.string())


def _few_others(written: pa.Array, sent: bytes) -> dict[int, bytes] | None:
    """Return the lines that are not what was written of them, by their places; None if there are more than a few.

    All that was written lies one after another, as all lines do, so they are compared many at a time.
    """
    ends = memoryview(written.buffers()[1]).cast("i")
    ours, theirs = written.buffers()[2], pa.py_buffer(sent)
    found: dict[int, bytes] = {}
    at = start = 0  # of a line, where it was written and where it was sent
    while True:
        same = _common(ours, at, theirs, start)
        if start + same == len(sent) and at + same + 1 == len(ours):
            return found
        place = bisect_right(ends, at + same) - 1
        if place == len(written) or len(found) == _FEW:
            return None
        begin = start + ends[place] - at
        end = sent.find(b"\n", begin)
        found[place] = sent[begin : len(sent) if end < 0 else end].strip(_SPACE)
        if end < 0 or place + 1 == len(written):
            return found if end < 0 and place + 1 == len(written) else None
        at, start = ends[place + 1], end + 1


def _common(one: pa.Buffer, at: int, other: pa.Buffer, start: int) -> int:
    """Return how many bytes are the same from some place of one buffer and another on."""
    most = min(len(one) - at, len(other) - start)
    same, step = 0, _COMPARED_BYTES
    while same < most and step:
        size = min(step, most - same)
        if one.slice(at + same, size).equals(other.slice(start + same, size)):
            same += size
        else:
            step = size // 2
    return same


def _others(written: pa.Array, sent: pa.Array, longest: int) -> dict[int, bytes] | None:
    """Return the lines that are not what was written of them, or too long; None if their numbers differ."""
    if len(written) != len(sent):
        return None
    same = pc.equal(written, pc.binary_join_element_wise(sent, _LINE_END, ""))
    different = pc.invert(pc.and_(same, pc.less_equal(pc.binary_length(sent), longest)))
    lines = sent.filter(different).cast(pa.binary()).to_pylist()
    places = pc.indices_nonzero(different).to_pylist()
    return {place: line.strip(_SPACE) for place, line in zip(places, lines, strict=True)}


def block_of(alike: Alike, positions: Sequence[int], odd: Sequence[RawEvent]) -> AlikeBlock:
    """Return the events of lines at some positions; `odd` are those of the lines that are not alike."""
    if not alike.others:
        return AlikeBlock(alike, range(len(positions)), positions, {})
    by_position = {event.position: event for event in odd}
    kept: list[int] = []
    places: list[int] = []
    others: dict[int, RawEvent] = {}
    size = 0
    for at, position in enumerate(positions):
        if at not in alike.others:
            kept.append(position)
            places.append(size)
        elif (event := by_position.get(position)) is not None:
            others[size] = event
        else:
            continue
        size += 1
    return AlikeBlock(alike, places, kept, others)


def _kinds(sent: bytes) -> dict[str, pa.DataType] | None:
    """Return the type of each key, in order, that some of the lines have; None if these differ, or are not simple."""
    kinds: dict[str, set[type]] = {}
    for number in range(_SAMPLES):
        start = sent.find(b"\n", len(sent) * number // _SAMPLES) + 1 if number else 0
        end = sent.find(b"\n", start)
        try:
            value = orjson.loads(sent[start : len(sent) if end < 0 else end])
        except orjson.JSONDecodeError:  # pyarrow refuses it too
            continue
        if not isinstance(value, dict) or not value or (kinds and list(value) != list(kinds)):
            return None
        for name, each in value.items():
            kinds.setdefault(name, set()).add(type(each))
    found = {}
    for name, seen in kinds.items():
        known = seen - {type(None)} or {str}
        if len(known) > 1 or not known <= _KINDS.keys() or orjson.dumps(name) != b'"%b"' % name.encode():
            return None
        found[name] = _KINDS[known.pop()]
    return found or None
