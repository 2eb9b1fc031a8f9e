"""Queue messages of events. Pure.

A message is text: one line with what the events share and what was fixed on arrival (time, ids, positions), then one
event's JSON per line. So every reader makes the same rows from it, however often it is delivered. Only a message with
events that the request says something about (`Given`) has format 2: readers of earlier releases leave it alone. `sent`
and `of_format` are for a replay of what becomes a reject, so readers that do not know them do without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from alluvia.errors import Invalid
from alluvia.events.ingest.identity import fallback_id, own_id_or_none, own_reject_id
from alluvia.events.ingest.rejects import given_text
from alluvia.events.ingest.values import BodyReading, Given, Origin, RawEvent, Reject
from alluvia.json_values.jsontext import decode_all, encode
from alluvia.json_values.time_texts import MAX_US, MIN_US
from alluvia.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

FORMAT = 1
FORMAT_GIVEN = 2
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
    head_bytes = len(_message(table, origin, [], FORMAT_GIVEN))
    batch: list[tuple[RawEvent, str | None, bytes]] = []
    size = head_bytes
    for event in events:
        own = (event.given and event.given.event_id) or own_id_or_none(event.value)
        key = origin.idempotency_key
        fixed = None if own is not None else fallback_id(key, event.position) if key else new_id()
        line = _line(event)
        said = [
            event.given and _listed(event.given),
            _of_format(event.given),
            _unread(event.given),
            _pointed(event.given),
        ]
        need = len(line) + len(_xml_safe(encode([event.position, fixed, *said]))) + 2
        if head_bytes + need > limit_bytes:
            reason = f"the event has {len(line)} bytes, more than a queue message can hold"
            raw = encode(event.value) if event.raw is None else event.raw
            known = own_reject_id(event.value, (), event.given)
            rejects.append(Reject(event.position, reason, raw, known, given_text(event, origin)))
            continue
        if size + need > limit_bytes:
            messages.append(_message(table, origin, batch))
            batch, size = [], head_bytes
        batch.append((event, fixed, line))
        size += need
    if batch:
        messages.append(_message(table, origin, batch))
    return Packed(messages, rejects)


def unpack(body: str) -> Message:
    """Read a message. Invalid if it is not one of ours, or damaged."""
    first, *lines = body.encode("utf-8", "surrogatepass").split(b"\n")
    try:
        shared = orjson.loads(first)
    except orjson.JSONDecodeError:
        shared = None
    if not isinstance(shared, dict) or shared.get("format") not in (FORMAT, FORMAT_GIVEN):
        raise Invalid(f"the message is not an events message of format {FORMAT} or {FORMAT_GIVEN}")
    head: dict[str, Any] = dict.fromkeys(("table", "arrival_us", "idempotency_key", "positions", "ids")) | shared
    given: Any = head.get("given") if head["format"] == FORMAT_GIVEN else [None] * len(lines)
    whole = (
        isinstance(head["table"], str)
        and isinstance(head["arrival_us"], int)
        and MIN_US <= head["arrival_us"] <= MAX_US
        and isinstance(head["idempotency_key"], str | None)
        and _all_are(head["positions"], (int,), len(lines))
        and _all_are(head["ids"], (str, type(None)), len(lines))
        and _are_given(given, len(lines))
        and (head.get("of_format") is None or _are_given(head["of_format"], len(lines)))
        and (head.get("unread") is None or _are_texts(head["unread"], len(lines), 2))
        and (head.get("pointed") is None or _are_texts(head["pointed"], len(lines)))
        and _is_sent(head.get("sent"))
    )
    values: list[Any] = decode_all(lines)
    if not whole or not _all_are(values, (dict,), len(lines)):
        raise Invalid(
            "the message is damaged: its first line does not match the others, or one of them is not an event"
        )
    origin = Origin(head["arrival_us"], head["idempotency_key"], _reading(head.get("sent")))
    by_format = head.get("of_format") or [None] * len(lines)
    unread = head.get("unread") or [None] * len(lines)
    pointed = head.get("pointed") or [None] * len(lines)
    lot = zip(head["positions"], values, head["ids"], given, by_format, unread, pointed, strict=True)
    events = [
        RawEvent(at, value, None, origin, fixed or _earlier_id(value), _given(said, alone, odd, points))
        for at, value, fixed, said, alone, odd, points in lot
    ]
    return Message(head["table"], events)


def _listed(given: Given) -> list[object]:
    return [given.event_id, given.ts_us, given.event, given.source, list(given.unstable), given.text]


def _of_format(given: Given | None) -> list[object] | None:
    return None if given is None or given.of_format is None else _listed(given.of_format)


def _unread(given: Given | None) -> list[str] | None:
    return list(given.unread) if given is not None and given.unread else None


def _pointed(given: Given | None) -> list[str] | None:
    return list(given.pointed) if given is not None and given.pointed else None


def _given(
    said: list[Any] | None,
    by_format: list[Any] | None = None,
    unread: Sequence[str] | None = None,
    pointed: Sequence[str] | None = None,
) -> Given | None:
    if said is None:
        return None
    event_id, ts_us, event, source, unstable, text = said
    return Given(
        event_id, ts_us, event, source, tuple(unstable), text, _given(by_format), tuple(unread or ()),
        tuple(pointed or ()),
    )  # fmt: skip


def _sent(reading: BodyReading | None) -> list[object] | None:
    """Return what the events of a source need of how they were read; None for others."""
    return [reading.source, reading.several, dict(reading.headers)] if reading is not None and reading.source else None


def _reading(sent: list[Any] | None) -> BodyReading | None:
    return None if sent is None else BodyReading(source=sent[0], several=sent[1], headers=sent[2])


def _is_sent(sent: object) -> bool:
    """Whether this is what `_sent` returns."""
    if sent is None:
        return True
    return (
        isinstance(sent, list)
        and list(map(type, sent)) == [str, bool, dict]
        and all(isinstance(value, str | None) for value in sent[2].values())
    )


def _is_given(said: list[Any] | None) -> bool:
    """Whether this is what `_listed` returns."""
    if said is None:
        return True
    if len(said) != 6:
        return False
    event_id, ts_us, event, source, unstable, text = said
    return (
        all(isinstance(name, str | None) for name in (event_id, event, source))
        and (ts_us is None or (isinstance(ts_us, int) and MIN_US <= ts_us <= MAX_US))
        and isinstance(unstable, list)
        and all(isinstance(name, str) for name in unstable)
        and isinstance(text, bool)
    )


def _are_given(said: object, length: int) -> bool:
    return isinstance(said, list) and _all_are(said, (list, type(None)), length) and all(map(_is_given, said))


def _are_texts(said: object, length: int, number: int | None = None) -> bool:
    """Whether this has, for each event, nothing or a list of texts, which has `number` of them if that is given."""
    lists: Any = said
    return _all_are(said, (list, type(None)), length) and all(
        texts is None or (len(texts) == (number or len(texts)) and set(map(type, texts)) == {str}) for texts in lists
    )


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


def _message(
    table: str, origin: Origin, batch: Sequence[tuple[RawEvent, str | None, bytes]], least_format: int = FORMAT
) -> bytes:
    given = [event.given and _listed(event.given) for event, _, _ in batch]
    head: dict[str, object] = {
        "format": FORMAT_GIVEN if any(given) else least_format,
        "table": table,
        "arrival_us": origin.arrival_us,
        "idempotency_key": origin.idempotency_key,
        "positions": [event.position for event, _, _ in batch],
        "ids": [fixed for _, fixed, _ in batch],
    }
    if head["format"] == FORMAT_GIVEN:
        head["given"] = given
        by_format = [_of_format(event.given) for event, _, _ in batch]
        head |= {"of_format": by_format} if any(by_format) or not batch else {}
        unread = [_unread(event.given) for event, _, _ in batch]
        head |= {"unread": unread} if any(unread) or not batch else {}
        pointed = [_pointed(event.given) for event, _, _ in batch]
        head |= {"pointed": pointed} if any(pointed) or not batch else {}
        head |= {"sent": sent} if (sent := _sent(origin.reading)) else {}
    return b"\n".join([_xml_safe(encode(head)), *(line for _, _, line in batch)])
