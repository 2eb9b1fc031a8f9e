"""What tables of events look like, unless their creator says otherwise. Pure."""

from __future__ import annotations

import pyarrow as pa

_TIME = pa.timestamp("us", tz="UTC")
_START = (
    pa.field("event_id", pa.string(), nullable=False),
    pa.field("ts", _TIME, nullable=False),
    pa.field("event", pa.string()),
    pa.field("source", pa.string()),
)
_END = (pa.field("properties", pa.string()), pa.field("received_at", _TIME, nullable=False))
EVENTS_PARTITIONED = ("day(ts)",)
EVENTS_SORTED = ("event", "ts")


def event_schema(columns: pa.Schema | None = None) -> pa.Schema:
    """Return the columns of an event table with declared ones."""
    return pa.schema([*_START, *(columns or ()), *_END])


def identifies_events(schema: pa.Schema) -> bool:
    """Whether a table has the one column that events cannot become rows without."""
    return "event_id" in schema.names and schema.field("event_id").type == pa.string()
