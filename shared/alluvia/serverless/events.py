"""The events that functions are invoked with: what they may hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from alluvia.errors import Invalid


def fields_of(event: object, example: str, fields: Sequence[str], others: Sequence[str] = ()) -> dict[str, Any]:
    """Return an event that is an object of `fields`, as `example` shows, or of `others`, which are not documented.

    Raises `Invalid` for any other field: a slip must not become a full round.
    """
    if not isinstance(event, dict):
        raise Invalid(f"the event must be a JSON object: send {example}")
    for name in event:
        if name not in fields and name not in others:
            raise Invalid(f"{name} is not a field of this event: use {', '.join(fields)}")
    return event


def messages_of(event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the SQS messages of an event, each with the texts `messageId` and `body`. Raises `Invalid`."""
    records = event.get("Records")
    if not isinstance(records, list) or not all(map(_is_message, records)):
        raise Invalid("Records: expected SQS messages, each with messageId and body")
    return records


def _is_message(record: object) -> bool:
    return isinstance(record, dict) and all(isinstance(record.get(name), str) for name in ("messageId", "body"))
