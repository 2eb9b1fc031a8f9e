"""Lines of JSON that are alike, as columns instead of objects. Pure.

Most bodies hold many events with the same keys in the same order, as one program wrote them. pyarrow reads such lines
several times as fast as Python objects can be made of them. It is not as strict as `jsontext`, so nothing that it reads
is trusted: each line is written again, key by key, from the columns that were read of it. Only a line that comes out
byte for byte is kept as columns. It is then the very text that the values have: it has no other key, no key twice, no
space, no escape, no digit that was rounded. Any other line, and any block of lines that pyarrow refuses, is read by
`jsontext`, which alone says what an event is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, overload

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from alluvia.ingest.values import RawEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BLOCK = 2048
"""Lines that are read together: what that takes stays in the processor's cache, and is used again."""
MANY = 256
"""Fewer lines are not worth it."""
_SAMPLES = 8
_KINDS = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}


class AlikeColumns:
    """Objects with the same keys, as a column for each: texts, integers (64 bits), or true and false, with nulls."""

    def __init__(self, columns: Mapping[str, pa.Array]) -> None:
        self.columns = columns
        self._json: dict[str, pa.Array] = {}

    def texts(self, names: Sequence[str]) -> pa.Array:
        """Return for each object the compact JSON text of its fields of those names, in that order."""
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
        return pc.binary_join_element_wise(literals[0], first, *rest, f"{quote}}}", "")

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

    `alike` holds those at `places`, which came as `lines` at `positions` of their body.
    """

    def __init__(
        self,
        alike: AlikeColumns,
        places: Sequence[int],
        positions: Sequence[int],
        lines: Sequence[bytes],
        odd: Mapping[int, RawEvent],
    ) -> None:
        self.alike = alike
        self.places = places
        self.odd = odd
        self._positions = positions
        self._lines = lines

    @property
    def text_bytes(self) -> int:
        """Return how many bytes their JSON has, as sent."""
        return sum(map(len, self._lines)) + sum(len(event.raw or b"") for event in self.odd.values())

    def moved(self, by: int) -> AlikeBlock:
        """Return the events at later positions."""
        odd = {at: event._replace(position=event.position + by) for at, event in self.odd.items()}
        return AlikeBlock(self.alike, self.places, [at + by for at in self._positions], self._lines, odd)

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
        """Return how many bytes their JSON has, as sent."""
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


class Alike(NamedTuple):
    """Those of some lines that are alike, as columns, and the places of the others."""

    columns: AlikeColumns
    mask: pa.BooleanArray

    @property
    def others(self) -> list[int]:
        """Return the places of the lines that are not in the columns."""
        return pc.indices_nonzero(pc.invert(self.mask)).to_pylist() if self.mask.false_count else []


def read_alike(lines: Sequence[bytes]) -> Alike | None:
    """Read lines that seem alike, without line breaks in them. None if they do not, or most of them are not."""
    kinds = _kinds(lines)
    if kinds is None:
        return None
    from pyarrow import json  # only for many lines: a cold start does without

    text = b"\n".join(lines)
    options = json.ParseOptions(explicit_schema=pa.schema(list(kinds.items())), unexpected_field_behavior="ignore")
    try:
        sent = pa.array(lines, pa.string())
        found = json.read_json(
            pa.BufferReader(text), json.ReadOptions(use_threads=False, block_size=len(text) + 1), options
        )
    except pa.ArrowInvalid:
        return None
    if len(found) != len(lines):
        return None
    every = AlikeColumns({name: found[name].chunk(0) for name in kinds})
    same = pc.equal(every.texts(list(kinds)), sent)
    if same.true_count * 2 < len(lines):
        return None
    return Alike(every.where(same) if same.false_count else every, same)


def block_of(alike: Alike, positions: Sequence[int], lines: Sequence[bytes], odd: Sequence[RawEvent]) -> AlikeBlock:
    """Return the events of lines at some positions; `odd` are those of the lines that are not alike."""
    if not alike.mask.false_count:
        return AlikeBlock(alike.columns, range(len(lines)), positions, lines, {})
    by_position = {event.position: event for event in odd}
    kept: list[int] = []
    places: list[int] = []
    others: dict[int, RawEvent] = {}
    size = 0
    for at, same in enumerate(alike.mask.to_pylist()):
        if same:
            kept.append(at)
            places.append(size)
        elif (event := by_position.get(positions[at])) is not None:
            others[size] = event
        else:
            continue
        size += 1
    return AlikeBlock(alike.columns, places, [positions[at] for at in kept], [lines[at] for at in kept], others)


def _kinds(lines: Sequence[bytes]) -> dict[str, pa.DataType] | None:
    """Return the type of each key, in order, that some of the lines have; None if these differ, or are not simple."""
    kinds: dict[str, set[type]] = {}
    for line in lines[:: max(1, len(lines) // _SAMPLES)]:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            return None
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
    return found
