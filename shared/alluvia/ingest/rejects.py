"""What is stored of an event that could not become a row, and the event that it was. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa

from alluvia.errors import cut
from alluvia.ingest.identity import fallback_id, own_reject_id, reject_id
from alluvia.ingest.jsontext import canonical, encode
from alluvia.ingest.values import Fields, Given, Origin, RawEvent, Reject

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
        pa.field("given", pa.string()),
    ]
)
"""`raw` is the event as sent. `given` is JSON: what the request says about it, and the id that it would have got."""
_NOTHING_GIVEN = dataclasses.asdict(Given())


def reject_of(event: RawEvent, reason: str, origin: Origin, fields: Fields) -> Reject:
    """Return the reject of a parsed event: known by its id and content, else by content, position and request."""
    known = own_reject_id(event.value, fields.id_path, event.given)
    if known is None:
        known = reject_id(origin.idempotency_key, event.position, canonical(event.value))
    raw = encode(event.value) if event.raw is None else event.raw
    return Reject(event.position, reason, raw, known, given_text(event, origin))


def given_text(event: RawEvent, origin: Origin) -> str | None:
    """Return what the request says about an event, as JSON; None if nothing. `fallback_id` is one without an own id."""
    said = {} if event.given is None else dataclasses.asdict(event.given)
    found = {name: value for name, value in said.items() if value != _NOTHING_GIVEN[name]}
    fallback = event.fallback_id or (origin.idempotency_key and fallback_id(origin.idempotency_key, event.position))
    if fallback:
        found["fallback_id"] = fallback
    return orjson.dumps(found).decode() if found else None


def read_given(text: str | None) -> tuple[Given | None, str | None]:
    """Return what `given_text` wrote: what the request says, and the id for an event without its own."""
    said = orjson.loads(text) if text else {}
    fallback = said.pop("fallback_id", None)
    return Given(**{**said, "unstable": tuple(said.get("unstable", ()))}) if said else None, fallback


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
        pa.array([each.given for each in rejects], pa.string()),
    ]
    return pa.Table.from_arrays(arrays, schema=REJECTS_SCHEMA)
