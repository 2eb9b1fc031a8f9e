"""A short hash of an event's row: the same for two deliveries of one event, different for two events with one id.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from alluvia.commit.event_window.id_runs import CONTENT_BYTES

EVENT_ID = "event_id"
SOURCE = "source"
RECEIVED_AT = "received_at"
TS = "ts"


def identity_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that identify an event: its id, within its source if that is a column. None: no events."""
    there = tuple(
        name for name in (EVENT_ID, SOURCE) if name in schema.names and schema.field(name).type == pa.string()
    )
    return there if EVENT_ID in there else ()


def content_hashes(rows: pa.Table) -> list[bytes]:
    """Return the content hash of each row, made of its columns but for the id and what a delivery adds.

    That is `received_at`, and `ts` where it is the same, since then the event came without a time of its own. A null
    counts like a missing column, so that a column that is added to the table changes no hash.
    """
    names = sorted(set(rows.column_names) - {EVENT_ID, RECEIVED_AT})
    columns = {name: _values(rows[name]) for name in names}
    if TS in columns and RECEIVED_AT in rows.column_names:
        received = _values(rows[RECEIVED_AT])
        columns[TS] = [None if ts == at else ts for ts, at in zip(columns[TS], received, strict=True)]
    if not names:
        return [_hash([])] * len(rows)
    return [
        _hash([pair for pair in zip(names, row, strict=True) if pair[1] is not None])
        for row in zip(*columns.values(), strict=True)
    ]


def _hash(row: list[tuple[str, Any]]) -> bytes:
    return blake2b(repr(row).encode(), digest_size=CONTENT_BYTES).digest()


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return [_plain(each) for each in values] if pa.types.is_nested(column.type) else values


def _plain(value: Any) -> Any:
    """Return a value without its nulls, fields in the order of their names."""
    if isinstance(value, Mapping):
        return [(name, _plain(value[name])) for name in sorted(value) if value[name] is not None]
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
