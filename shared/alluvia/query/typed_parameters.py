"""Values of parameters in JSON, with the types that JSON lacks: `{"$decimal": "0.10"}`. Pure.

An object whose only key is one of `TAGS` is a value of that type. All others are structs; `$struct` has one whose only
key would be a tag. Dates and timestamps come in the forms of `parameter_times`.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.query.parameter_times import FORMS, read_time
from alluvia.query.parameters import NESTING_MAX

DECIMAL, DOUBLE, DATE = "$decimal", "$double", "$date"
TIMESTAMP, TIMESTAMP_NTZ, BINARY, STRUCT = "$timestamp", "$timestamp_ntz", "$binary", "$struct"
_INT64 = range(-(1 << 63), 1 << 63)
_CHARS_MAX = 100
"""The longest text of a number: no type of SQL has more than 38 digits, and a double no more than 25 characters."""


def _decimal(text: str) -> Decimal | None:
    number = Decimal(text) if len(text) <= _CHARS_MAX else None
    return number if number is not None and number.is_finite() else None


def _double(text: str) -> float | None:
    return float(text) if len(text) <= _CHARS_MAX else None


def _time(kind: pa.DataType) -> Callable[[str], dt.date | None]:
    return lambda text: read_time(text, kind)


_READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    DECIMAL: (_decimal, 'send digits as text, such as "0.10"'),
    DOUBLE: (_double, 'send a number as text, "NaN", "Infinity" or "-Infinity"'),
    DATE: (_time(pa.date32()), FORMS),
    TIMESTAMP: (_time(pa.timestamp("us", "UTC")), FORMS),
    TIMESTAMP_NTZ: (_time(pa.timestamp("us")), FORMS),
    BINARY: (lambda text: base64.b64decode(text, validate=True), "send base64"),
}
"""For each type, the reader of its text, and what to send instead of a text that it does not read."""
TAGS = (*_READERS, STRUCT)


def with_tags(value: Any) -> Any:
    """Return a value that JSON can say: those of types that it lacks, at any depth, as objects with a tag."""
    if isinstance(value, list | tuple):
        return [with_tags(part) for part in value]
    if isinstance(value, Mapping):
        plain = {name: with_tags(part) for name, part in value.items()}
        return {STRUCT: plain} if _tag(plain) else plain
    if isinstance(value, bool):
        return value
    if isinstance(value, Decimal) or (isinstance(value, int) and value not in _INT64):
        return {DECIMAL: str(value)}
    if isinstance(value, float) and not isfinite(value):
        return {DOUBLE: repr(value)}
    if isinstance(value, bytes):
        return {BINARY: base64.b64encode(value).decode()}
    if isinstance(value, dt.datetime):
        return {TIMESTAMP_NTZ if value.tzinfo is None else TIMESTAMP: value.isoformat()}
    return {DATE: value.isoformat()} if isinstance(value, dt.date) else value


def of_parameters(parameters: Any) -> Any:
    """Return parameters, a list or a dict, with tags in place of values that JSON cannot say. Names are never tags."""
    if isinstance(parameters, Mapping):
        return {name: with_tags(value) for name, value in parameters.items()}
    return None if parameters is None else [with_tags(value) for value in parameters]


def to_parameters(sent: Any) -> Any:
    """Return parameters that came as JSON with the values of their tags. Raises `Invalid`, naming the parameter."""
    if isinstance(sent, dict):
        return {name: _value(f"${name}", value, 0) for name, value in sent.items()}
    if isinstance(sent, list):
        return [_value(str(number), value, 0) for number, value in enumerate(sent, 1)]
    return sent


def _value(name: str, sent: Any, depth: int) -> Any:
    if depth > NESTING_MAX:  # which is refused later, with the reason
        return sent
    if isinstance(sent, list):
        return [_value(name, part, depth + 1) for part in sent]
    if not isinstance(sent, dict):
        return sent
    tag = _tag(sent)
    if tag == STRUCT and isinstance(sent[tag], dict):
        return {key: _value(name, part, depth + 1) for key, part in sent[tag].items()}
    return _tagged(name, tag, sent[tag]) if tag else {key: _value(name, part, depth + 1) for key, part in sent.items()}


def _tagged(name: str, tag: str, text: Any) -> Any:
    read, wanted = _READERS.get(tag, (None, "send an object"))
    try:
        value = read(text) if read is not None and isinstance(text, str) else None
    except (ValueError, InvalidOperation):
        value = None
    if value is None:
        raise Invalid(f"parameter {name:.100}: {text!r:.100} is not a value of {tag}: {wanted}")
    return value


def _tag(value: Mapping[str, Any]) -> str | None:
    """Return the tag of an object that has one, and no other key."""
    only = next(iter(value)) if len(value) == 1 else None
    return only if only in TAGS else None
