"""Events and the rows that they become."""

from __future__ import annotations

from itertools import count
from typing import Any

import pyarrow as pa

from alluvia.events.ingest.event_rows import to_rows
from alluvia.events.ingest.values import NO_FIELDS, EventRows, Fields, RawEvent

MOMENT = pa.timestamp("us", "UTC")
HEAD = [pa.field("event_id", pa.string(), nullable=False), pa.field("ts", MOMENT, nullable=False)]
NAMES = [pa.field("event", pa.string()), pa.field("source", pa.string())]
TAIL = [pa.field("properties", pa.string()), pa.field("received_at", MOMENT, nullable=False)]
DEFAULT = pa.schema([*HEAD, *NAMES, *TAIL])
TYPED = pa.schema([
    *HEAD, *NAMES, pa.field("status", pa.int64()), pa.field("score", pa.float64()),
    pa.field("tags", pa.list_(pa.string())), pa.field("id", pa.string()), *TAIL,
])  # fmt: skip
ANY_TYPE = pa.schema([
    *HEAD, ("ip", pa.string()), ("status", pa.int16()), ("score", pa.float64()), ("price", pa.decimal128(9, 2)),
    ("at", MOMENT), ("day", pa.date32()), ("ok", pa.bool_()), ("tags", pa.list_(pa.string())), *TAIL,
])  # fmt: skip
ARRIVAL_US = 1_700_000_000_000_000
NOON, NOON_US = "2020-01-01T12:00:00Z", 1_577_880_000_000_000


def rows_of(
    *values: dict[str, object],
    schema: pa.Schema = DEFAULT,
    key: str | None = None,
    raws: list[bytes] | None = None,
    fields: Fields = NO_FIELDS,
) -> EventRows:
    events = [RawEvent(at, value, raws[at] if raws else None) for at, value in enumerate(values)]
    ids = (f"new-{at}" for at in count())
    rows = to_rows(events, schema, arrival_us=ARRIVAL_US, idempotency_key=key, new_id=lambda: next(ids), fields=fields)
    assert len(rows.taken) == len(rows.table)
    assert rows.table.schema.equals(schema)
    rows.table.validate(full=True)
    return rows


def row(value: dict[str, object], schema: pa.Schema = DEFAULT) -> dict[str, Any]:
    rows = rows_of(value, schema=schema)
    assert rows.rejects == []
    [found] = rows.table.cast(
        pa.schema([(f.name, pa.int64() if f.type == MOMENT else f.type) for f in schema])
    ).to_pylist()
    return dict(found)
