"""Typed values out of text, for events whose fields are all text: those of CSV and forms. Pure."""

from __future__ import annotations

import re

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.events.ingest.jsontext import ExactNumber, decode, exact_number
from alluvia.events.ingest.timestamps import TIMESTAMP

_NUMBER = re.compile(r"[-+]?[0-9]{1,100}(?:\.[0-9]{1,100})?(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
_OPEN = re.compile(r"([-+]?)(?:([0-9]{1,100})\.|\.([0-9]{1,100}))((?:[eE][-+]?[0-9]{1,3})?)", re.ASCII)
"""A number that begins or ends with its decimal point."""
_SINCE_1970 = re.compile(r"[1-9](?:[0-9]{9}|[0-9]{12}|[0-9]{15})(?:\.[0-9]{1,9})?", re.ASCII)
"""Seconds, ms or µs from 2001 to 2286. Other numbers may be dates, such as 2026, 20261120 or 20261120100000."""
_BOOLEANS = {"true": True, "false": False}


def number_of(text: str) -> int | float | ExactNumber | None:
    """Return the number that a text is; None if it is none."""
    text = text.strip()
    return exact_number(text.removeprefix("+")) if _NUMBER.fullmatch(text) else None


def read_text(kind: pa.DataType, value: object) -> object:
    """Return what a column of that type takes for a text: a number, a boolean, a value in JSON, or null for "".

    For a timestamp, a text of 10, 13 or 16 digits is a number of seconds, ms or µs since 1970.

    Returns a text as it is for columns that take text, and where it says nothing that the type can hold.
    """
    if not isinstance(value, str) or pa.types.is_string(kind):
        return value
    if not value:
        return None
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        number = number_of(_closed(value.strip()) if pa.types.is_floating(kind) else value)
        return value if number is None else number
    if pa.types.is_decimal(kind):
        return _closed(value)
    if kind == TIMESTAMP:
        return number_of(value) if _SINCE_1970.fullmatch(value.strip()) else value
    if pa.types.is_boolean(kind):
        return _BOOLEANS.get(value.strip().lower(), value)
    if pa.types.is_nested(kind):
        try:
            return decode(value.encode("utf-8", "surrogatepass"))
        except Invalid:
            return value
    return value


def _closed(text: str) -> str:
    """Return a number with a digit on both sides of its point; anything else as it is."""
    match = _OPEN.fullmatch(text)
    return f"{match[1]}{match[2] or 0}.{match[3] or 0}{match[4]}" if match else text
