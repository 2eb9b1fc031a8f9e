"""What is stored of an event that could not become a row, and the event that it was. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import pyarrow as pa

from alluvia.errors import cut
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.identity import fallback_id, own_reject_id, reject_id
from alluvia.events.ingest.values import BodyReading, Fields, Given, Limits, Origin, RawEvent, Reject, Split
from alluvia.json_values.jsontext import canonical, encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RAW = "raw"
_ID_SHOWN_CHARS = 60

REJECTS_SCHEMA = pa.schema(
    [
        pa.field("event_id", pa.string(), nullable=False),
        pa.field("received_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("position", pa.int64()),
        pa.field(RAW, pa.binary()),
        pa.field("given", pa.string()),
    ]
)
"""`raw` is the event as sent. `given` is JSON: what the request says about it, the id that it would have got, and under

`sent` how the request was read.
"""
BODY, PART, EVENT, JUDGED = "body", "part", "event", ""
"""What `raw` is: a whole body or a part of one that its format could not read, an event that its source's rules have

refused, or one that they have said all about (or that came from no source).
"""
_DEFAULTS = {each.name: each.default for each in dataclasses.fields(Given)}
_JSON = BodyReading().format


class Said(NamedTuple):
    """The facts about its request that a reject keeps. reading: None for JSON of no source. raw: what `raw` is."""

    given: Given | None
    fallback_id: str | None
    reading: BodyReading | None
    raw: str


def reject_of(event: RawEvent, reason: str, origin: Origin, fields: Fields, raw_is: str = JUDGED) -> Reject:
    """Return the reject of a parsed event: known by its id and content, else by content, position and request."""
    known = own_reject_id(event.value, fields.id_path, event.given)
    if known is None:
        known = reject_id(origin.idempotency_key, event.position, canonical(event.value))
    raw = encode(event.value) if event.raw is None else event.raw
    return Reject(event.position, reason, raw, known, given_text(event, origin, raw_is))


def given_text(event: RawEvent, origin: Origin, raw_is: str = JUDGED) -> str:
    """Return what the request says about an event, as JSON; "" if nothing. `fallback_id` is one without an own id."""
    return _text(_said(event.given), event.fallback_id or _fallback_id(origin, event.position), origin, raw_is)


def _unread_text(reject: Reject, origin: Origin) -> str:
    """Return the same of what was not an event, and "" where it is JSON of no source, as all of it once was."""
    if origin.reading is None:
        return ""
    if reject.event is not None:
        return given_text(reject.event._replace(position=reject.position), origin, EVENT)
    return _text({}, _fallback_id(origin, reject.position), origin, BODY if origin.reading.whole else PART)


def _fallback_id(origin: Origin, position: int) -> str | None:
    return fallback_id(origin.idempotency_key, position) if origin.idempotency_key else None


def _text(said: dict[str, Any], fallback: str | None, origin: Origin, raw_is: str) -> str:
    if fallback:
        said["fallback_id"] = fallback
    if sent := _sent(origin.reading, raw_is):
        said["sent"] = sent
    return orjson.dumps(said).decode() if said else ""


def _said(given: Given | None) -> dict[str, Any]:
    """Return the fields that say something."""
    if given is None:
        return {}
    said = {name: getattr(given, name) for name in _DEFAULTS if getattr(given, name) != _DEFAULTS[name]}
    return said | ({"of_format": _said(given.of_format)} if given.of_format is not None else {})


def _sent(reading: BodyReading | None, raw_is: str) -> dict[str, Any]:
    """Return how a request was read, as far as that matters for what `raw` is."""
    if reading is None or not (raw_is or reading.source):
        return {}
    sent: dict[str, Any] = {"raw": raw_is} if raw_is else {}
    if raw_is in (BODY, PART) and reading.format != _JSON:
        sent["format"] = reading.format
    if reading.source:
        sent["source"] = reading.source
        if reading.several:
            sent["several"] = True
    if reading.headers:
        sent["headers"] = dict(reading.headers)
    return sent if len(sent) > 1 or raw_is in (JUDGED, EVENT) else {}


def read_given(text: str | None) -> Said:
    """Return what `given_text` wrote, of this or an earlier release."""
    said = orjson.loads(text) if text else {}
    fallback, sent = said.pop("fallback_id", None), said.pop("sent", None)
    reading = None
    if sent is not None:
        reading = BodyReading(
            sent.get("format", _JSON), sent.get("source", ""), sent.get("several", False),
            sent.get("raw") == BODY, sent.get("headers", {}),
        )  # fmt: skip
    return Said(_read(said) if said else None, fallback, reading, (sent or {}).get("raw", JUDGED))


def _read(said: dict[str, Any]) -> Given:
    inner = said.get("of_format")
    known = {name: value for name, value in said.items() if name in _DEFAULTS}  # a later release may say more
    return Given(
        **{
            **known,
            "unstable": tuple(said.get("unstable", ())),
            "unread": tuple(said.get("unread", ())),
            "pointed": tuple(said.get("pointed", ())),
            "of_format": None if inner is None else _read(inner),
        }
    )


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
    given = [
        (_unread_text(each, origin) if each.given is None else each.given) or None
        for each, origin in zip(rejects, origins, strict=True)
    ]
    arrays = [
        pa.array(ids, pa.string()),
        pa.array([origin.arrival_us for origin in origins], REJECTS_SCHEMA.field("received_at").type),
        pa.array([each.reason for each in rejects], pa.string()),
        pa.array([each.position for each in rejects], pa.int64()),
        pa.array([each.raw for each in rejects], pa.binary()),
        pa.array(given, pa.string()),
    ]
    return pa.Table.from_arrays(arrays, schema=REJECTS_SCHEMA)


def read_json(row: Mapping[str, Any]) -> Split:
    """Return the events of a rejected event, or of a rejected body, of JSON that came from no source."""
    said = read_given(row.get("given"))
    parsed = split(row["raw"] or b"", content_type=None, content_encoding=None, limits=Limits())
    events = [event._replace(given=said.given) for event in parsed.events]
    return dataclasses.replace(parsed, events=as_first_sent(row, events, Origin(row["received_at"]), said.fallback_id))


def as_first_sent(
    row: Mapping[str, Any], events: Sequence[RawEvent], origin: Origin, fallback: str | None
) -> list[RawEvent]:
    """Return the events of a reject with the request that they came with, and ids for those without their own.

    fallback: that of a single event. Without one, and without an Idempotency-Key, the reject's own id stands for it.
    """
    key, known = origin.idempotency_key, row["event_id"]
    if key:
        ids = [fallback_id(key, event.position) for event in events]
    elif len(events) == 1:
        ids = [fallback or known]
    else:
        ids = [f"{known}/{at}" for at in range(len(events))]
    return [event._replace(origin=origin, fallback_id=fixed) for event, fixed in zip(events, ids, strict=True)]
