"""What is stored of an event that could not become a row. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.errors import cut
from alluvia.ingest.identity import own_reject_id, reject_id
from alluvia.ingest.jsontext import canonical, encode
from alluvia.ingest.values import Fields, Origin, RawEvent, Reject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ID_SHOWN_CHARS = 60

REJECTS_SCHEMA = pa.schema(
    [
        pa.field("event_id", pa.string(), nullable=False),
        pa.field("received_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("raw", pa.binary()),
    ]
)


def reject_of(event: RawEvent, reason: str, origin: Origin, fields: Fields) -> Reject:
    """Return the reject of a parsed event: known by its id and content, else by content, position and request."""
    known = own_reject_id(event.value, fields.id_path, event.given)
    if known is None:
        known = reject_id(origin.idempotency_key, event.position, canonical(event.value))
    return Reject(event.position, reason, encode(event.value) if event.raw is None else event.raw, known)


def clash_reason(row: Mapping[str, object]) -> str:
    """Return why an event is rejected whose id belongs to another: `row` holds its id, and its source if it has one."""
    names = [name for name in ("event_id", "source") if isinstance(row.get(name), str)]
    which = " and ".join(f"{name} {cut(str(row[name]), _ID_SHOWN_CHARS)!r}" for name in names)
    return f"the content differs: another event with {which} came first"


def reject_rows(rejects: Sequence[Reject], origins: Sequence[Origin]) -> pa.Table:
    """Return the rows of the rejects' table, by the requests that each of them came with."""
    ids = [
        each.event_id or reject_id(origin.idempotency_key, each.position, each.raw)
        for each, origin in zip(rejects, origins, strict=True)
    ]
    arrays = [
        pa.array(ids, pa.string()),
        pa.array([origin.arrival_us for origin in origins], REJECTS_SCHEMA.field("received_at").type),
        pa.array([each.reason for each in rejects], pa.string()),
        pa.array([each.position for each in rejects], pa.int64()),
        pa.array([each.raw for each in rejects], pa.binary()),
    ]
    return pa.Table.from_arrays(arrays, schema=REJECTS_SCHEMA)
