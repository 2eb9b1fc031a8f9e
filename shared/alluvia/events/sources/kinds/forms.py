"""Events within forms. Pure."""

from __future__ import annotations

import re

from alluvia.errors import Invalid
from alluvia.events.ingest.jsontext import decode

_FORM = re.compile(rb"[A-Za-z0-9_.*+%\[\]-]{1,200}=")


def json_or_form(body: bytes) -> str:
    """Return the format of a body that is one of the two. No JSON begins with a name and `=`."""
    return "form" if _FORM.match(body) else "json"


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
