"""Rows and content hashes of events that are alike, straight from their columns. Pure.

What `rows` and `identity.contents_of` do for any event, this does for those that need no judgement: each has a text as
its `event_id`, a plain time or none, and values that fit their columns as they are.
"""

from __future__ import annotations

import hashlib
from functools import partial, reduce
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
_DOUBLE_BITS = 53  # of an integer that a double holds, whatever it is


def alike_rows(alike: AlikeColumns, schema: pa.Schema, arrival_us: int) -> tuple[pa.Table, list[int]] | None:
    """Return the events as rows of `schema`; None if `rows` has to look at all of them.

    With them the indexes of those at which it has to look: what stands in their rows means nothing.
    """
    sent = alike.columns
    ids = sent.get("event_id")
    place = next((name for name in TIME_FIELDS if name in sent), None)
    own = [field for field in schema if field.name not in _OF_REQUEST]
    left = [name for name in sent if name not in {"event_id", "ts", place, *(field.name for field in own)}]
    if ids is None or "properties" in sent or "ts" not in schema.names or (left and "properties" not in schema.names):
        return None
    size = len(ids)
    moments = arrivals = pa.repeat(pa.scalar(arrival_us, pa.int64()), size).cast(TIMESTAMP)
    if place is not None:
        moments = _fitting(sent[place], TIMESTAMP)
    found = {"event_id": _plain_ids(ids), "ts": moments, "received_at": arrivals}
    found |= {each.name: _fitting(sent.get(each.name, pa.nulls(size, each.type)), each.type) for each in own}
    found["properties"] = alike.texts(left) if left else pa.nulls(size, pa.string())
    if any(found[field.name].type != field.type for field in schema):
        return None
    required = {"event_id", "ts", *(field.name for field in schema if not field.nullable)}
    odd = [pc.is_null(found[name]) for name in required if found[name].null_count]
    lost = [each.name for each in own if each.name in sent and found[each.name].null_count > sent[each.name].null_count]
    odd += [pc.and_not(pc.is_null(found[name]), pc.is_null(sent[name])) for name in lost]
    indexes = pc.indices_nonzero(reduce(pc.or_, odd)).to_pylist() if odd else []
    return pa.Table.from_arrays([found[name] for name in schema.names], schema=schema), indexes


def alike_contents(alike: AlikeColumns) -> list[bytes]:
    """Return what `identity.contents_of` gives for the events that `alike_rows` makes rows of."""
    texts = alike.texts(sorted(alike.columns, key=str.encode)).cast(pa.binary())
    digest = partial(hashlib.blake2b, digest_size=CONTENT_BYTES)
    return [each.digest() for each in map(digest, texts.to_pylist())]


def _plain_ids(ids: pa.Array) -> pa.Array:
    """Return ids, with null for those that need a look."""
    if not pa.types.is_string(ids.type):
        return pa.nulls(len(ids), pa.string())
    sizes = pc.utf8_length(ids)
    bounds = pc.min_max(sizes).as_py()
    if bounds["min"] is None or (bounds["min"] > 0 and bounds["max"] <= ID_LIMIT_CHARS):
        return ids
    plain = pc.and_(pc.greater(sizes, 0), pc.less_equal(sizes, ID_LIMIT_CHARS))
    return pc.if_else(plain, ids, pa.scalar(None, ids.type))


def _fitting(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values as a column of a type has them, with null for those that need a look."""
    if column.type == kind:
        return column
    if pa.types.is_integer(column.type) and (pa.types.is_integer(kind) or pa.types.is_float64(kind)):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            limit = 1 << (_DOUBLE_BITS if pa.types.is_float64(kind) else kind.bit_width - 1)
            fits = pc.and_(pc.greater_equal(column, -limit), pc.less(column, limit))
            return pc.if_else(fits, column, pa.scalar(None, column.type)).cast(kind)
    if pa.types.is_string(column.type) and kind == TIMESTAMP:
        return plain_instants(column)
    return pa.nulls(len(column), kind)
