"""From a file's lines to rows and rejects, by the code that ingestion uses. Pure.

The identity of an event without an id of its own is its file and its place there, as in a request it is the
Idempotency-Key and the position: so two equal lines are two events, and a task that is tried again, or a job that is
run again, finds the same ids.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.ingest.identity import own_reject_id, reject_id
from alluvia.ingest.jsontext import decode_all, describe
from alluvia.ingest.rows import to_rows
from alluvia.ingest.values import NO_FIELDS, TOO_MANY_BYTES, Fields, Limits, RawEvent, Reject, raw_events
from alluvia_spark.lines import Block

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"


class Normalised(NamedTuple):
    """The events of a block: as rows, as they were read for each row, and the lines that could not become rows."""

    rows: pa.Table
    events: list[RawEvent]
    rejects: list[Reject]


def file_id(name: str) -> str:
    """Return what identifies a file in the ids of its events: of fixed length, and the same for the same URI."""
    return f"file-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def normalise(
    block: Block, schema: pa.Schema, *, arrival_us: int, key: str, limits: Limits, fields: Fields = NO_FIELDS
) -> Normalised:
    """Return the events of a block as rows, and its other lines as rejects with their identities."""
    events, broken = read_events(block, limits)
    rows = to_rows(events, schema, arrival_us=arrival_us, idempotency_key=key, new_id=_no_id, fields=fields)
    rejects = [*(_identified(reject, key) for reject in broken), *rows.rejects]
    taken = [events[index] for index in rows.taken]
    return Normalised(rows.table, taken, sorted(rejects, key=lambda reject: reject.position))


def read_events(block: Block, limits: Limits) -> tuple[list[RawEvent], list[Reject]]:
    """Parse the lines of a block; the position of each is its place in the file, in bytes. Blank lines are nothing."""
    if block.cut_bytes:
        return [], [_too_long(block.offset, len(block.data) + block.cut_bytes, block.data, None, limits)]
    places, lines = _lines(block)
    values = decode_all(lines)
    if set(map(type, values)) <= {dict} and max(map(len, lines), default=0) <= limits.event_bytes:
        return raw_events(places, values, lines), []
    events: list[RawEvent] = []
    rejects: list[Reject] = []
    for place, line, value in zip(places, lines, values, strict=True):
        if isinstance(value, Invalid):
            rejects.append(Reject(place, str(value), line))
        elif not isinstance(value, dict):
            rejects.append(Reject(place, f"expected a JSON object, got {describe(value)}", line))
        elif len(line) > limits.event_bytes:
            rejects.append(_too_long(place, len(line), line, own_reject_id(value), limits))
        else:
            events.append(RawEvent(place, value, line))
    return events, rejects


def _lines(block: Block) -> tuple[list[int], list[bytes]]:
    text = block.data.removeprefix(_BOM) if block.offset == 0 else block.data
    start = block.offset + len(block.data) - len(text)
    whole = text.split(b"\n")
    places = list(accumulate((len(line) + 1 for line in whole), initial=start))[:-1]
    lines = [line.strip(_SPACE) for line in whole]
    if all(lines):
        return places, lines
    found = [(place, line) for place, line in zip(places, lines, strict=True) if line]
    return [place for place, _ in found], [line for _, line in found]


def _too_long(place: int, size_bytes: int, raw: bytes, event_id: str | None, limits: Limits) -> Reject:
    reason = TOO_MANY_BYTES.format(what="event", size=size_bytes, limit=limits.event_bytes)
    return Reject(place, reason, raw, event_id)


def _identified(reject: Reject, key: str) -> Reject:
    return replace(reject, event_id=reject.event_id or reject_id(key, reject.position, reject.raw))


def _no_id() -> str:
    raise AssertionError("an event without an id has its file and place for one")
