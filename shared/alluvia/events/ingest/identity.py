"""The identity of events: the id recognizes a second delivery, the content tells two events with one id apart. Pure.

The sender declares an event's identity, which counts within the event's `source`. A bare `id` declares nothing: it is
data, such as the number of an order in each event of that order.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from alluvia.commit.event_window.id_runs import CONTENT_BYTES, digests
from alluvia.errors import Invalid
from alluvia.json_values.jsontext import ExactNumber, canonical, canonical_all, encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from alluvia.events.ingest.values import Given, RawEvent

ID_FIELDS = ("event_id", "messageId")
ID_LIMIT_CHARS = 1024
_CLOUD_EVENT = ("specversion", "id", "source")


def own_id(value: Mapping[str, object], id_path: tuple[str, ...] = ()) -> tuple[str | None, str | None]:
    """Return an event's own id, and the field that holds nothing but it; (None, None) if the event has none.

    What `id_path` leads to counts first, and stays data: it comes with no field. Then `event_id`, `messageId`, and the
    `id` of a CloudEvent, which has a `specversion` and a `source`. Null and the empty text are not ids; a number is
    its JSON text. Invalid for any other type, and for an id of more than 1,024 characters.
    """
    if id_path and (text := _text(at_path(value, id_path), ".".join(id_path))) is not None:
        return None, text
    for name in ID_FIELDS:
        if (text := _text(value.get(name), name)) is not None:
            return name, text
    if all(isinstance(value.get(name), str) and value[name] for name in _CLOUD_EVENT):
        return "id", _text(value["id"], "id")
    return None, None


def given_id(given: Given | None) -> str | None:
    """Return the id that a request gives an event; None if it gives none. Raises Invalid for one that is too long."""
    return None if given is None else _text(given.event_id, "event_id")


def is_plain_id(value: object) -> bool:
    """Whether what a field holds is an id as it stands."""
    return isinstance(value, str) and 0 < len(value) <= ID_LIMIT_CHARS


def own_id_or_none(value: object, id_path: tuple[str, ...] = ()) -> str | None:
    """Return the event's own id if it has a usable one."""
    if not isinstance(value, dict):
        return None
    try:
        return own_id(value, id_path)[1]
    except Invalid:
        return None


def at_path(value: object, path: tuple[str, ...]) -> object:
    """Return what a path of field names leads to; None where there is nothing."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def all_at_path(values: Sequence[Mapping[str, object]], path: tuple[str, ...]) -> list[object]:
    """Return what a path of field names leads to in each of many objects."""
    [name, *rest] = path
    return [at_path(value, path) for value in values] if rest else [value.get(name) for value in values]


def fallback_id(idempotency_key: str, position: int) -> str:
    """Return the id of an event without its own in a request with an Idempotency-Key."""
    return f"{idempotency_key}/{position}"


def contents_of(events: Sequence[RawEvent]) -> list[bytes]:
    """Return the short hash of each event's content, which is the same however its JSON is written."""
    values = [
        event.value if event.given is None and "sentAt" not in event.value else _message(event.value, event.given)
        for event in events
    ]
    return digests(hashlib.blake2b(digest_size=CONTENT_BYTES), canonical_all(values))


def own_reject_id(value: object, id_path: tuple[str, ...] = (), given: Given | None = None) -> str | None:
    """Return the identity of a reject whose event has a usable id; None if it has none.

    Two different broken events under one id are two rejects: the id comes with a hash of the content.
    """
    try:
        own = given_id(given) or own_id_or_none(value, id_path)
    except Invalid:
        return None
    if own is None or not isinstance(value, dict):
        return None
    return f"{own}#{hashlib.sha256(canonical(_message(value, given))).hexdigest()[:16]}"


def reject_id(idempotency_key: str | None, position: int, content: bytes) -> str:
    """Return the identity of a reject without an id of its own: the same request sent again gives the same one."""
    digest = hashlib.sha256(encode([idempotency_key, position]))
    digest.update(content)
    return f"reject-{digest.hexdigest()}"


def _message(value: Mapping[str, object], given: Given | None) -> Mapping[str, object]:
    unstable = () if given is None else given.unstable
    # Segment's libraries set `sentAt` again each time they send a message: it is not part of the message.
    if "sentAt" in value and not value.get("event_id") and value.get("messageId"):
        unstable = (*unstable, "sentAt")
    return {name: item for name, item in value.items() if name not in unstable} if unstable else value


def _text(value: object, name: str) -> str | None:
    if value is None or value == "":  # an empty id would make all such events one
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int, float, ExactNumber)):
        raise Invalid(f"{name}: expected a string or a number that identifies the event")
    text = value if isinstance(value, str) else encode(value).decode()
    if len(text) > ID_LIMIT_CHARS:
        raise Invalid(f"{name}: the id is longer than {ID_LIMIT_CHARS} characters")
    return text
