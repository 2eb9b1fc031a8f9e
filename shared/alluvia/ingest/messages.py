"""Queue messages of events. Pure.

A message is text: one line with what the events share and what was fixed on arrival (time, ids, positions), then one
event's JSON per line. So every reader makes the same rows from it, however often it is delivered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from alluvia.errors import Invalid
from alluvia.ingest.identity import fallback_id, own_id_or_none, own_reject_id
from alluvia.ingest.jsontext import decode_all, encode
from alluvia.ingest.timestamps import MAX_US, MIN_US
from alluvia.ingest.values import Origin, RawEvent, Reject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

FORMAT = 1
LIMIT_BYTES = 1_000_000  # SQS takes 1,048,576 for a message and for a batch of messages
BATCH_MESSAGES_MAX = 10
# SQS takes the characters of XML: of those that JSON allows unescaped, these two are none.
_NOT_XML = ((b"\xef\xbf\xbe", b"\\ufffe"), (b"\xef\xbf\xbf", b"\\uffff"))


@dataclass(frozen=True, slots=True)
class Packed:
    """Messages to send, and the events that no message can hold."""

    messages: list[bytes]
    rejects: list[Reject]


@dataclass(frozen=True, slots=True)
class Message:
    """What a message says: events for one table."""

    table: str
    events: list[RawEvent]


def pack(
    table: str,
    events: Iterable[RawEvent],
    origin: Origin,
    new_id: Callable[[], str],
    limit_bytes: int = LIMIT_BYTES,
) -> Packed:
    """Put events into as few messages as they fit, in order. Events without an id are given theirs here."""
    messages: list[bytes] = []
    rejects: list[Reject] = []
    head_bytes = len(_message(table, origin, []))
    batch: list[tuple[RawEvent, str | None, bytes]] = []
    size = head_bytes
    for event in events:
        own = own_id_or_none(event.value)
        key = origin.idempotency_key
        given = None if own is not None else fallback_id(key, event.position) if key else new_id()
        line = _line(event)
        need = len(line) + len(_xml_safe(encode([event.position, given]))) + 2
        if head_bytes + need > limit_bytes:
            reason = f"the event has {len(line)} bytes, more than a queue message can hold"
            raw = encode(event.value) if event.raw is None else event.raw
            rejects.append(Reject(event.position, reason, raw, own_reject_id(event.value)))
            continue
        if size + need > limit_bytes:
            messages.append(_message(table, origin, batch))
            batch, size = [], head_bytes
        batch.append((event, given, line))
        size += need
    if batch:
        messages.append(_message(table, origin, batch))
    return Packed(messages, rejects)


def unpack(body: str) -> Message:
    """Read a message. Invalid if it is not one of ours, or damaged."""
    head, *lines = body.encode("utf-8", "surrogatepass").split(b"\n")
    try:
        shared = orjson.loads(head)
    except orjson.JSONDecodeError:
        shared = None
    if not isinstance(shared, dict) or shared.get("format") != FORMAT:
        raise Invalid(f"the message is not an events message of format {FORMAT}")
    given: dict[str, Any] = dict.fromkeys(("table", "arrival_us", "idempotency_key", "positions", "ids")) | shared
    whole = (
        isinstance(given["table"], str)
        and isinstance(given["arrival_us"], int)
        and MIN_US <= given["arrival_us"] <= MAX_US
        and isinstance(given["idempotency_key"], str | None)
        and _all_are(given["positions"], (int,), len(lines))
        and _all_are(given["ids"], (str, type(None)), len(lines))
    )
    values: list[Any] = decode_all(lines)
    if not whole or not _all_are(values, (dict,), len(lines)):
        raise Invalid(
            "the message is damaged: its first line does not match the others, or one of them is not an event"
        )
    origin = Origin(given["arrival_us"], given["idempotency_key"])
    lot = zip(given["positions"], values, given["ids"], strict=True)
    events = [RawEvent(at, value, None, origin, fixed or _earlier_id(value)) for at, value, fixed in lot]
    return Message(given["table"], events)


def _earlier_id(value: dict[str, object]) -> str | None:
    """Return the bare `id` of an event that was given none: earlier releases took that for an identity.

    Messages wait for weeks, and without it each delivery of such a one would make new rows.
    """
    return None if own_id_or_none(value) is not None else own_id_or_none({"event_id": value.get("id")})


def _all_are(values: object, kinds: tuple[type, ...], length: int) -> bool:
    return isinstance(values, list) and len(values) == length and set(map(type, values)) <= set(kinds)


def batches(messages: Sequence[bytes], limit_bytes: int = LIMIT_BYTES) -> Iterator[list[bytes]]:
    """Group messages into what one SendMessageBatch takes."""
    batch: list[bytes] = []
    for message in messages:
        if batch and (len(batch) == BATCH_MESSAGES_MAX or sum(map(len, batch)) + len(message) > limit_bytes):
            yield batch
            batch = []
        batch.append(message)
    if batch:
        yield batch


def _line(event: RawEvent) -> bytes:
    raw = event.raw
    return _xml_safe(encode(event.value) if raw is None or b"\n" in raw or b"\r" in raw else raw)


def _xml_safe(text: bytes) -> bytes:
    for character, escape in _NOT_XML:
        text = text.replace(character, escape)
    return text


def _message(table: str, origin: Origin, batch: Sequence[tuple[RawEvent, str | None, bytes]]) -> bytes:
    head = {
        "format": FORMAT,
        "table": table,
        "arrival_us": origin.arrival_us,
        "idempotency_key": origin.idempotency_key,
        "positions": [event.position for event, _, _ in batch],
        "ids": [given for _, given, _ in batch],
    }
    return b"\n".join([_xml_safe(encode(head)), *(line for _, _, line in batch)])
