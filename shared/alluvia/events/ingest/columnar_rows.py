"""Rows and content hashes of events with the same keys, straight from their columns. Pure.

What `rows` and `identity.contents_of` do for any event, this does for those that need no judgement: each has a text as
its `event_id` or `messageId`, a plain time or none, and values that fit their columns as they are.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.event_window.id_runs import CONTENT_BYTES, digests
from alluvia.events.ingest.event_time import TIME_FIELDS, column_moments, past_moments
from alluvia.events.ingest.identity import ID_FIELDS, ID_LIMIT_CHARS
from alluvia.events.ingest.json_columns import NUMBER
from alluvia.events.ingest.values import EventRows, all_but
from alluvia.json_values.instants import TIMESTAMP, plain_moments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from alluvia.events.ingest.columnar_batch import ColumnarBatch
    from alluvia.events.ingest.json_columns import JsonColumns, Path
    from alluvia.events.ingest.values import RawEvent

_ODD_SHARE_MAX = 0.25
"""The share of the events of a block that may become rows one by one: those in columns whose values need a look."""
_OF_REQUEST = ("event_id", "ts", "received_at", "properties")
_DOUBLE_BITS = 53  # of an integer that a double holds, whatever it is


class BlockRows(NamedTuple):
    """What became of `size` events: rows for those at `places`. `odd` come in the place of some, or between them."""

    size: int
    table: pa.Table
    contents: list[bytes]
    places: Sequence[int]
    odd: Mapping[int, RawEvent]


def block_rows(
    events: ColumnarBatch, schema: pa.Schema, arrival_us: int, promoted: AbstractSet[str] = frozenset()
) -> BlockRows | None:
    """Return the outcome of a block; None if too many of its events need a look. `promoted` are as in `Fields`."""
    converted = rows_of_columns(events.columns, schema, arrival_us, promoted)
    if converted is None or len(converted[1]) > len(events) * _ODD_SHARE_MAX:
        return None
    table, looked_at = converted
    return BlockRows(len(events), table, contents_of_columns(events.columns), events.places, events.odd_and(looked_at))


def put_back(block: BlockRows, odd: EventRows) -> EventRows:
    """Return the rows of a block, those of its odd events in their places."""
    at = list(block.odd)
    refused = [at[index] for index in odd.refused]
    rows = {at[index]: row for row, index in enumerate(odd.taken)}
    order: list[int] = []
    start = 0
    for place in [*at, block.size]:
        order += range(start, bisect_left(block.places, place))
        start = bisect_left(block.places, place + 1)
        if place in rows:
            order.append(len(block.table) + rows[place])
    contents = [*block.contents, *odd.contents]
    table = pa.concat_tables([block.table, odd.table]).take(pa.array(order, pa.int64()))
    odd_times = {}
    if odd.odd_times:
        of_odd = ((row, of - len(block.table)) for row, of in enumerate(order))
        odd_times = {row: odd.odd_times[of] for row, of in of_odd if of in odd.odd_times}
    taken = all_but(refused, block.size)
    return EventRows(table, odd.rejects, refused, taken, [contents[row] for row in order], odd_times)


def some(rows: EventRows, start: int, end: int) -> EventRows:
    """Return the outcome of some of consecutive events."""
    taken = slice(bisect_left(rows.taken, start), bisect_left(rows.taken, end))
    refused = slice(bisect_left(rows.refused, start), bisect_left(rows.refused, end))
    return EventRows(
        rows.table.slice(taken.start, taken.stop - taken.start),
        rows.rejects[refused],
        [at - start for at in rows.refused[refused]],
        [at - start for at in rows.taken[taken]],
        rows.contents[taken],
        {row - taken.start: odd for row, odd in rows.odd_times.items() if taken.start <= row < taken.stop},
    )


def rows_of_columns(
    objects: JsonColumns, schema: pa.Schema, arrival_us: int, promoted: AbstractSet[str] = frozenset()
) -> tuple[pa.Table, list[int]] | None:
    """Return the events as rows of `schema`; None if `rows` has to look at all of them.

    With them the indexes of those at which it has to look: what stands in their rows means nothing.
    """
    names = [field.name for field in schema if field.name not in _OF_REQUEST]
    own = _places(objects, names)
    held = _id_field(objects)
    place = next((name for name in TIME_FIELDS if (name,) in objects.columns), None)
    left = _left(objects, {(held,), (place,), *(own or {}).values()})
    if own is None or held is None or "ts" not in schema.names or left is None:
        return None
    if place is None and any(path[0] == "ts" for path in objects.columns):  # an object
        return None
    if "properties" not in schema.names and (left or _has_properties(objects)):
        return None
    size = len(objects)
    moments = arrivals = pa.repeat(pa.scalar(arrival_us, pa.int64()), size).cast(TIMESTAMP)
    if place is not None:
        moments = past_moments(column_moments(place, objects.columns[place,]), arrival_us)
    arrays = {"event_id": _plain_ids(objects.columns[held,]), "ts": moments, "received_at": arrivals}
    sent = {name: objects.columns[path] for name, path in own.items()}
    for name in names:
        kind = schema.field(name).type
        arrays[name] = fitting(sent[name], kind) if name in sent else pa.nulls(size, kind)
    empty = pa.repeat("{}", size) if _has_properties(objects) else pa.nulls(size, pa.string())
    spelled = {name: own[name] for name in promoted & own.keys() if not _alike(sent[name].type, arrays[name].type)}
    if any(sent[name].null_count for name in spelled):
        return None
    left = _with_spellings(left, spelled)
    arrays["properties"] = objects.texts(left) if left else empty
    if any(arrays[field.name].type != field.type for field in schema):
        return None
    required = {"event_id", "ts", *(field.name for field in schema if not field.nullable)}
    odd = [pc.is_null(arrays[name]) for name in required if arrays[name].null_count]
    lost = [name for name, column in sent.items() if arrays[name].null_count > column.null_count]
    odd += [pc.and_not(pc.is_null(arrays[name]), pc.is_null(sent[name])) for name in lost]
    indexes = pc.indices_nonzero(reduce(pc.or_, odd)).to_pylist() if odd else []
    return pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema), indexes


def _has_properties(objects: JsonColumns) -> bool:
    return any(path[0] == "properties" for path in objects.columns)


def _places(objects: JsonColumns, names: Sequence[str]) -> dict[str, Path] | None:
    """Return where the values of columns are, for those that have any; None if one is an object, or in either place."""
    place_by_name: dict[str, Path] = {}
    inner = {path[:depth] for path in objects.columns for depth in range(1, len(path))}
    if not inner.isdisjoint((name,) for name in ID_FIELDS):
        return None
    for name in names:
        places: list[Path] = [(name,)] if name in ("event", "source") else [(name,), ("properties", name)]
        if not inner.isdisjoint(places):
            return None
        places = [path for path in places if path in objects.columns]
        if len(places) > 1 and objects.columns[places[0]].null_count:
            return None
        if places:
            place_by_name[name] = places[0]
    return place_by_name


def _left(objects: JsonColumns, taken: AbstractSet[tuple[str | None, ...]]) -> dict[Path, Path] | None:
    """Return where the values are that `properties` keeps, by their paths there; None if that needs a look."""
    rest = [path for path in objects.columns if path not in taken]
    sent = {path[1:]: path for path in rest if path[0] == "properties"}
    others = {path: path for path in rest if path[0] != "properties"}
    if () in sent:
        return None
    clash = {path[:1] for path in sent} & {path[:1] for path in others}
    return None if clash else sent | others


def _alike(sent: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a column of a type writes all values of another as they were sent."""
    if pa.types.is_floating(kind):  # 1e20 would become 1e+20
        return False
    return sent == kind or (pa.types.is_integer(sent) and pa.types.is_integer(kind))


def _with_spellings(left: dict[Path, Path], spelled: Mapping[str, Path]) -> dict[Path, Path]:
    """Return what `properties` keeps with the promoted fields that it shows as they were sent."""
    if not spelled:
        return left
    inner = {(name,): path for name, path in spelled.items() if len(path) > 1}
    outer = {(name,): path for name, path in spelled.items() if len(path) == 1}
    sent = {path: place for path, place in left.items() if place[0] == "properties"}
    others = {path: place for path, place in left.items() if place[0] != "properties"}
    return sent | inner | others | {path: place for path, place in outer.items() if path not in left}


def contents_of_columns(objects: JsonColumns) -> list[bytes]:
    """Return what `identity.contents_of` gives for the events that `rows_of_columns` makes rows of."""
    unstable = "sentAt" if _id_field(objects) == "messageId" else None
    paths = sorted((path for path in objects.columns if path[0] != unstable), key=lambda path: [*map(str.encode, path)])
    texts = objects.texts({path: path for path in paths}).cast(pa.binary())
    return digests(hashlib.blake2b(digest_size=CONTENT_BYTES), texts.to_pylist())


def _id_field(objects: JsonColumns) -> str | None:
    """Return the field that holds the ids, where they need no look."""
    return next((name for name in ID_FIELDS if (name,) in objects.columns), None)


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


def fitting(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values as a column of a type has them, with null for those that need a look."""
    if column.type == kind != NUMBER:  # numbers have the type of binary columns
        return column
    if pa.types.is_integer(column.type) and (pa.types.is_integer(kind) or pa.types.is_float64(kind)):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            limit = 1 << (_DOUBLE_BITS if pa.types.is_float64(kind) else kind.bit_width - 1)
            fits = pc.and_(pc.greater_equal(column, -limit), pc.less(column, limit))
            return pc.if_else(fits, column, pa.scalar(None, column.type)).cast(kind)
    if column.type == NUMBER and pa.types.is_float64(kind):
        return column.cast(pa.string()).cast(kind)
    if kind == TIMESTAMP:
        return plain_moments(column)
    return pa.nulls(len(column), kind)
