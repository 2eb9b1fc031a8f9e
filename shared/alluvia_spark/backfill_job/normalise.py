"""From a file's lines to rows and rejects, by the code that ingestion uses. Pure.

The identity of an event without an id of its own is its file and its place there, as in a request it is the
Idempotency-Key and the position: so two equal lines are two events, and a task that is tried again, or a job that is
run again, finds the same ids.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.ingest.columnar_batch import moved
from alluvia.events.ingest.envelope import has_many_lines, split_json, split_lines, split_ndjson, split_text
from alluvia.events.ingest.event_rows import to_rows
from alluvia.events.ingest.identity import reject_id
from alluvia.events.ingest.values import NO_FIELDS, TOO_MANY_BYTES, Fields, Limits, OddTime, RawEvent, Reject
from alluvia.files.event_files import NDJSON
from alluvia_spark.sources.file_lists import added_to_events, added_to_lines
from alluvia_spark.sources.files import BadFile
from alluvia_spark.sources.lines import Block

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_BLANK_LINES = re.compile(rb"(?:[ \t\r]*+\n)*+")
_LINE_ENDS = re.compile(rb"\n(?:[ \t\r]*+\n)*+")
"""The ends of lines, each with the blank lines after it."""
_BLANK_AFTER = re.compile(rb"\n(?:[ \t\r]*+\n)++")


class Normalised(NamedTuple):
    """The events of a block as rows, with the short hash of each one's content, and the lines that make no row.

    `taken` has for each row the place of its event among those that were `read`. `lines` is how many lines the block
    has that are not blank, counted apart from its rows and rejects. `odd_times` are by the numbers of rows.
    """

    rows: pa.Table
    contents: Sequence[bytes]
    read: Sequence[RawEvent]
    taken: Sequence[int]
    rejects: list[Reject]
    lines: int
    odd_times: Mapping[int, OddTime] = MappingProxyType({})

    def event(self, row: int) -> RawEvent:
        """Return the event that a row was made of."""
        return self.read[self.taken[row]]


def file_id(name: str) -> str:
    """Return what identifies a file in the ids of its events: of fixed length, and the same for the same URI."""
    return f"file-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def normalise(
    block: Block,
    schema: pa.Schema,
    *,
    arrival_us: int,
    key: str,
    limits: Limits,
    fields: Fields = NO_FIELDS,
    refusals: Callable[[pa.Table], Mapping[int, str]] = lambda _: {},
    folders: Mapping[str, object] = MappingProxyType({}),
) -> Normalised:
    """Return the events of a block as rows, and its other lines as rejects with their identities.

    `refusals` says why the table takes some rows not, by their numbers: these are rejects, too. `folders` are fields
    of every event that does not have them.
    """
    events, broken = read_events(block, limits, folders)
    convert = partial(to_rows, schema=schema, arrival_us=arrival_us, idempotency_key=key, new_id=_no_id, fields=fields)
    rows = convert(events)
    rejects, taken = [*(_identified(reject, key) for reject in broken), *rows.rejects], rows.taken
    if reasons := refusals(rows.table):
        rows = convert([events[at] for at in taken], refused=reasons)
        rejects += rows.rejects
        taken = [taken[at] for at in rows.taken]
    rejects.sort(key=lambda reject: reject.position)
    lines = len(events) + len(broken) if block.media_type else _count_lines(block)
    return Normalised(rows.table, rows.contents, events, taken, rejects, lines, rows.odd_times)


def bad_file(error: BadFile, schema: pa.Schema, key: str) -> Normalised:
    """Return the reject that stands for a file, or for what follows in it, with the file's URI."""
    raw = error.name.encode()
    reject = Reject(error.position, f"the file {error.why}", raw, reject_id(key, error.position, raw))
    return Normalised(schema.empty_table(), (), (), (), [reject], 1)


def read_events(
    block: Block, limits: Limits, folders: Mapping[str, object] = MappingProxyType({})
) -> tuple[Sequence[RawEvent], list[Reject]]:
    """Parse the events of a block. A line's position is its place in the file, in bytes; blank lines are nothing."""
    if block.media_type:
        events, rejects = _numbered(block, limits)
        return added_to_events(events, folders), rejects
    if block.cut_bytes:
        return [], [_too_long(block.offset, len(block.data) + block.cut_bytes, block.data, limits)]
    text = _text_of(block)
    start = block.offset + len(block.data) - len(text)
    text = text.rstrip(_SPACE)
    starts = _LineStarts(text, start)
    if not folders and has_many_lines(text):
        split = split_text(_Places(starts, range(len(text))), text, limits)
    else:
        lines = [line for line in map(_stripped, text.split(b"\n")) if line]
        places = _Places(starts, range(len(lines)))
        split = split_lines(places, added_to_lines(lines, folders) if folders else lines, limits)
    return split.events, split.rejects


def _numbered(block: Block, limits: Limits) -> tuple[Sequence[RawEvent], list[Reject]]:
    """Parse a block whose events are known by their numbers, as bulk ingestion does."""
    limits = replace(limits, body_bytes=sys.maxsize, inflated_bytes=sys.maxsize)
    if block.media_type == NDJSON and block.offset:
        split = split_ndjson(block.data, limits)
    elif block.media_type == NDJSON:
        split = split_json(block.data, block.media_type, limits)
    else:
        split = by_name("csv").read(SentBody({"content-type": block.media_type}, block.data, 0), limits)
    rejects = [replace(reject, position=reject.position + block.offset) for reject in split.rejects]
    return moved(split.events, block.offset), rejects


def _count_lines(block: Block) -> int:
    """Return how many lines of a text are not blank."""
    if block.cut_bytes:
        return 1
    text = _text_of(block).strip(_SPACE)
    blank = sum(match.group().count(b"\n") - 1 for match in _BLANK_AFTER.finditer(text))
    return text.count(b"\n") + 1 - blank if text else 0


def _text_of(block: Block) -> bytes:
    """Return a block's lines without the mark of their byte order."""
    return block.data.removeprefix(_BOM) if block.offset == 0 else block.data


class _LineStarts:
    """Where the lines of a text that are not blank begin; the text itself is at `start`.

    Most lines make rows, which need no place: so it counts lines only as far as it is asked for.
    """

    def __init__(self, text: bytes, start: int) -> None:
        self._text = text
        self._start = start
        blank = _BLANK_LINES.match(text)
        self._first = blank.end() if blank is not None else 0
        self._found = {0: start + self._first}
        self._ends = self._all_ends()
        self._next = 1

    def __getitem__(self, number: int) -> int:
        if number not in self._found and number < self._next:  # it has counted past this one
            self._found |= {at: self._start + end.end() for at, end in enumerate(self._all_ends(), 1)}
        elif number not in self._found:
            self._found[number] = self._start + next(islice(self._ends, number - self._next, None)).end()
            self._next = number + 1
        return self._found[number]

    def _all_ends(self) -> Iterator[re.Match[bytes]]:
        return _LINE_ENDS.finditer(self._text, self._first)


class _Places(Sequence[int]):
    """The places of some lines of a text."""

    def __init__(self, starts: _LineStarts, which: range) -> None:
        self._starts = starts
        self._which = which

    def __len__(self) -> int:
        return len(self._which)

    def __getitem__(self, at: Any) -> Any:
        places = self._which[at]
        return _Places(self._starts, places) if isinstance(places, range) else self._starts[places]


def _stripped(line: bytes) -> bytes:
    return line.strip(_SPACE)


def _too_long(place: int, size_bytes: int, raw: bytes, limits: Limits) -> Reject:
    return Reject(place, TOO_MANY_BYTES.format(what="event", size=size_bytes, limit=limits.event_bytes), raw)


def _identified(reject: Reject, key: str) -> Reject:
    return replace(reject, event_id=reject.event_id or reject_id(key, reject.position, reject.raw))


def _no_id() -> str:
    raise AssertionError("an event without an id has its file and place for one")
