"""Rows and content hashes of events that are alike, straight from their columns. Pure.

What `rows` and `identity.contents_of` do for any event, this does for those that need no judgement: each has a text as
its `event_id`, a plain time or none, and values that fit their columns as they are. None says that some may need one.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.ingest.identity import ID_LIMIT_CHARS
from alluvia.ingest.moments import TIME_FIELDS
from alluvia.ingest.timestamps import TIMESTAMP, plain_instants
from alluvia.table.event_window.id_runs import CONTENT_BYTES

if TYPE_CHECKING:
    from alluvia.ingest.alike_reading import AlikeColumns

_OF_REQUEST = ("event_id", "ts", "received_at", "properties")


def alike_rows(alike: AlikeColumns, schema: pa.Schema, arrival_us: int) -> pa.Table | None:
    """Return the events as rows of `schema`; None if `rows` has to look at them."""
    sent = alike.columns
    found: dict[str, pa.Array] = {}
    ids = sent.get("event_id")
    if ids is None or "properties" in sent or "ts" not in schema.names or not _are_plain_ids(ids):
        return None
    found["event_id"] = ids
    moments = arrivals = pa.repeat(pa.scalar(arrival_us, pa.int64()), len(ids)).cast(TIMESTAMP)
    place = next((name for name in TIME_FIELDS if name in sent), None)
    if place is not None:
        plain = plain_instants(sent[place]) if pa.types.is_string(sent[place].type) else None
        if plain is None or plain.null_count:
            return None
        moments = plain
    found |= {"ts": moments, "received_at": arrivals}
    for field in schema:
        if field.name not in _OF_REQUEST:
            column = _fitting(sent.get(field.name), field, len(ids))
            if column is None:
                return None
            found[field.name] = column
    taken = {"event_id", "ts", place, *(name for name in schema.names if name not in _OF_REQUEST)}
    left = [name for name in sent if name not in taken]
    found["properties"] = alike.texts(left) if left else pa.nulls(len(ids), pa.string())
    if left and "properties" not in schema.names:
        return None
    if any(found[field.name].type != field.type for field in schema):
        return None
    if any(not field.nullable and found[field.name].null_count for field in schema):
        return None
    return pa.Table.from_arrays([found[name] for name in schema.names], schema=schema)


def alike_contents(alike: AlikeColumns) -> list[bytes]:
    """Return what `identity.contents_of` gives for the events that `alike_rows` makes rows of."""
    texts = alike.texts(sorted(alike.columns, key=str.encode)).cast(pa.binary())
    digest = partial(hashlib.blake2b, digest_size=CONTENT_BYTES)
    return [each.digest() for each in map(digest, texts.to_pylist())]


def _are_plain_ids(ids: pa.Array) -> bool:
    if not pa.types.is_string(ids.type) or ids.null_count:
        return False
    bounds = pc.min_max(pc.utf8_length(ids)).as_py()
    return bool(bounds["min"] > 0 and bounds["max"] <= ID_LIMIT_CHARS)


def _fitting(column: pa.Array | None, field: pa.Field, count: int) -> pa.Array | None:
    """Return a field's values as its column has them; None if they need a look."""
    if column is None or column.null_count == count:
        return pa.nulls(count, field.type)
    if column.type == field.type:
        return column
    if pa.types.is_integer(column.type) and (pa.types.is_integer(field.type) or pa.types.is_float64(field.type)):
        try:
            return column.cast(field.type)
        except pa.ArrowInvalid:
            return None
    if pa.types.is_string(column.type) and field.type == TIMESTAMP:
        moments = plain_instants(column)
        return moments if moments.null_count == column.null_count else None
    return None
