"""Which event is which: the id that makes a second delivery no second row."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from alluvia.errors import Invalid
from alluvia.ingest.jsontext import ExactNumber, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

ID_FIELDS = ("event_id", "id", "messageId")
ID_LIMIT_CHARS = 1024


def own_id(value: Mapping[str, object]) -> tuple[str | None, str | None]:
    """Return the field that identifies an event and its text; (None, None) if it has none.

    The first of `event_id`, `id` and `messageId` that is neither null nor empty counts; a number becomes its JSON
    text. Invalid for any other type, and for an id of more than 1,024 characters.
    """
    for name in ID_FIELDS:
        found = value.get(name)
        if found is None or found == "":  # an empty id would make all such events one
            continue
        if isinstance(found, bool) or not isinstance(found, (str, int, float, ExactNumber)):
            raise Invalid(f"{name}: expected a string or a number that identifies the event")
        text = found if isinstance(found, str) else encode(found).decode()
        if len(text) > ID_LIMIT_CHARS:
            raise Invalid(f"{name}: longer than {ID_LIMIT_CHARS} characters, too long for an id")
        return name, text
    return None, None


def own_id_or_none(value: object) -> str | None:
    """Return the event's own id if it has a usable one."""
    if not isinstance(value, dict):
        return None
    try:
        return own_id(value)[1]
    except Invalid:
        return None


def fallback_id(idempotency_key: str, position: int) -> str:
    """Return the id of an event without its own in a request with an Idempotency-Key."""
    return f"{idempotency_key}/{position}"


def reject_id(idempotency_key: str | None, position: int, raw: bytes) -> str:
    """Return the identity of a reject without an id of its own: the same request sent again gives the same one."""
    digest = hashlib.sha256(encode([idempotency_key, position]))
    digest.update(raw)
    return f"reject-{digest.hexdigest()}"
