"""Typed values out of text, for events whose fields are all text: those of CSV and forms. Pure."""

from __future__ import annotations

import re

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.ingest.jsontext import ExactNumber, decode, exact_number

_NUMBER = re.compile(r"[-+]?[0-9]{1,100}(?:\.[0-9]{1,100})?(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}


def number_of(text: str) -> int | float | ExactNumber | None:
    """Return the number that a text is; None if it is none."""
    text = text.strip()
    return exact_number(text.removeprefix("+")) if _NUMBER.fullmatch(text) else None


def read_text(kind: pa.DataType, value: object) -> object:
    """Return what a column of that type takes for a text: a number, a boolean, a value in JSON, or null for "".

    Returns a text as it is for columns that take text, and where it says nothing that the type can hold.
    """
    if not isinstance(value, str) or pa.types.is_string(kind):
        return value
    if not value:
        return None
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        number = number_of(value)
        return value if number is None else number
    if pa.types.is_boolean(kind):
        return _BOOLEANS.get(value.strip().lower(), value)
    if pa.types.is_nested(kind):
        try:
            return decode(value.encode("utf-8", "surrogatepass"))
        except Invalid:
            return value
    return value
