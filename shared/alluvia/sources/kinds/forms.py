"""Events within forms. Pure."""

from __future__ import annotations

from alluvia.errors import Invalid
from alluvia.ingest.jsontext import decode


def unwrapped(value: dict[str, object]) -> dict[str, object]:
    """Return the JSON object in the field `payload` of a form that has no other; else the value itself."""
    payload = value.get("payload")
    if len(value) != 1 or not isinstance(payload, str):
        return value
    try:
        inner = decode(payload.encode("utf-8", "surrogatepass"))
    except Invalid:  # a text like any other
        return value
    return inner if isinstance(inner, dict) else value
