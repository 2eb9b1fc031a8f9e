"""Which process does what, and the events that it sends: all of an event follows from its id. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

SLOTS = {
    "ingest-0a": ("ingest", "i0"),
    "ingest-0b": ("ingest", "i0"),
    "ingest-1a": ("ingest", "i1"),
    "ingest-1b": ("ingest", "i1"),
    "ingest-2": ("ingest", "i2"),
    "ingest-3": ("ingest", "i3"),
    "append-0a": ("append", "a0"),
    "append-0b": ("append", "a0"),
    "append-1": ("append", "a1"),
    "delete-0": ("delete", ""),
    "delete-1": ("delete", ""),
    "merge-0": ("merge", ""),
    "merge-1": ("merge", ""),
    "checkpoint-0": ("checkpoint", ""),
    "vacuum-0": ("vacuum", ""),
    "read-0": ("read", ""),
}
"""Role and stream of each process. Two on one stream send the same batches, as a queue that delivers twice does."""

TABLE = "t"
DOOMED = "doomed"
_START_US = 1_700_000_000_000_000


def batch_ids(stream: str, number: int) -> tuple[str, ...]:
    """Return the ids of a stream's batch, 1 to 12 of them."""
    return tuple(f"{stream}-{number}-{at}" for at in range(1 + number * 7 % 12))


def is_doomed(event_id: str) -> bool:
    """Whether deleters may delete an event: every fourth of a batch, the first not among them."""
    return int(event_id.rpartition("-")[2]) % 4 == 3


def row(event_id: str) -> dict[str, Any]:
    """Return an event's row; times in microseconds."""
    stream, number, at = event_id.split("-")
    return {
        "event_id": event_id,
        "ts": _START_US + int(number) * 1000 + int(at),
        "event": DOOMED if is_doomed(event_id) else "kept",
        "source": stream,
        "properties": json.dumps({"number": int(number), "text": event_id * 20}),
        "received_at": _START_US,
    }


def rows_of(schema: pa.Schema, ids: Iterable[str]) -> pa.Table:
    """Return the rows of events."""
    values = [row(event_id) for event_id in ids]
    arrays = [pa.array([each.get(field.name) for each in values], field.type) for field in schema]
    return pa.table(arrays, schema=schema)
