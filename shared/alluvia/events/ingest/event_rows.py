"""From events to the rows of a table: every event becomes one row, or one reject that names the fields. Pure.

Events in blocks become rows by block (`columnar_rows`), the others column by column (`event_columns`).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.events.ingest.columnar_batch import ColumnarBatch, EventParts
from alluvia.events.ingest.columnar_rows import BlockRows, block_rows, put_back, some
from alluvia.events.ingest.event_columns import Conversion
from alluvia.events.ingest.values import (
    NO_FIELDS,
    BodyReading,
    EventRows,
    Fields,
    OddTime,
    Origin,
    RawEvent,
    all_but,
    identifies_events,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_AT_ONCE = 2048
"""Events that are converted together: what that takes stays in the processor's cache, and is used again."""


def to_rows(
    events: Sequence[RawEvent],
    schema: pa.Schema,
    *,
    arrival_us: int,
    idempotency_key: str | None,
    new_id: Callable[[], str],
    fields: Fields = NO_FIELDS,
    refused: Mapping[int, str] | None = None,
    reading: BodyReading | None = None,
) -> EventRows:
    """Return the events as rows of `schema`, in their order, and the rejects.

    fields: those that the table's properties name. refused: why the table has refused events before, by their index.
    arrival_us, idempotency_key and reading are those of the request, for events without an origin of their own. Raises
    Invalid if the table has no `event_id` of type string, Unsupported for a column that JSON cannot fill.
    """
    if not identifies_events(schema):
        raise Invalid(
            "the table has no column event_id of type string, which ingestion needs: create it as an event table"
        )
    request = Origin(arrival_us, idempotency_key, reading)
    parts: list[EventRows | BlockRows] = []
    start = 0
    for part in _parts(events):
        reasons = {at - start: reason for at, reason in (refused or {}).items() if start <= at < start + len(part)}
        block = None
        if isinstance(part, ColumnarBatch) and not reasons and not (fields.id_path or fields.time_path):
            block = block_rows(part, schema, (part.origin or request).arrival_us, fields.promoted)
        parts.append(block or _of_events(part, schema, request, new_id, fields, reasons))
        start += len(part)
    return _joined(_with_odd(parts, lambda odd: _of_events(odd, schema, request, new_id, fields, {})))


def _parts(events: Sequence[RawEvent]) -> Iterator[Sequence[RawEvent]]:
    """Yield the events, at least one part of them, as many at a time as are converted together."""
    for part in events.parts if isinstance(events, EventParts) else [events]:
        if isinstance(part, ColumnarBatch):
            yield part
        else:
            yield from (part[start : start + _AT_ONCE] for start in range(0, len(part) or 1, _AT_ONCE))


def _of_events(
    events: Sequence[RawEvent],
    schema: pa.Schema,
    request: Origin,
    new_id: Callable[[], str],
    fields: Fields,
    reasons: Mapping[int, str],
) -> EventRows:
    events = list(events)
    batch = Conversion(events, schema, [event.origin or request for event in events], fields)
    for index, reason in reasons.items():
        batch.reasons[index].append(reason)
    arrays = batch.arrays(new_id)
    if not batch.keeps_leftovers:
        batch.refuse_leftovers()
    return batch.rows(arrays)


def _with_odd(
    parts: Sequence[EventRows | BlockRows], rows_of: Callable[[list[RawEvent]], EventRows]
) -> Iterator[EventRows]:
    """Yield the rows of all parts. The odd events of all blocks are few, and become rows together."""
    every = [event for part in parts if isinstance(part, BlockRows) for event in part.odd.values()]
    odd = rows_of(every) if every else None
    start = 0
    for part in parts:
        if isinstance(part, EventRows):
            yield part
        elif odd is None or not part.odd:
            yield EventRows(part.table, [], [], range(part.size), part.contents)
        else:
            end = start + len(part.odd)
            yield put_back(part, some(odd, start, end))
            start = end


def _joined(blocks: Iterable[EventRows]) -> EventRows:
    """Return the rows of consecutive events, each of which is either refused or taken."""
    parts = list(blocks)
    if len(parts) == 1:
        return parts[0]
    rejects = [reject for part in parts for reject in part.rejects]
    refused: list[int] = []
    odd_times: dict[int, OddTime] = {}
    start = rows = 0
    for part in parts:
        refused += [start + at for at in part.refused]
        odd_times |= {rows + row: odd for row, odd in part.odd_times.items()}
        start += len(part.refused) + len(part.taken)
        rows += len(part.table)
    taken = all_but(refused, start)
    contents = list(chain.from_iterable(part.contents for part in parts))
    return EventRows(pa.concat_tables([part.table for part in parts]), rejects, refused, taken, contents, odd_times)


def as_far_as_possible(
    events: Sequence[RawEvent], schema: pa.Schema, fields: Fields = NO_FIELDS, origins: Sequence[Origin] = ()
) -> pa.Table:
    """Return the events as rows of `schema`, in their order, with null for each value that does not fit.

    Events without an id or a time of their own get none that means anything, unless `origins` give them one.
    """
    batch = Conversion(events, schema, list(origins) or [Origin(0)] * len(events), fields)
    arrays = batch.arrays(lambda: "")
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    return pa.Table.from_arrays([arrays[name] for name in schema.names], schema=nullable)
