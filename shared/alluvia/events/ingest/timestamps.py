"""Times as senders write them, converted to microseconds since the Unix epoch in UTC."""

from __future__ import annotations

import re
from array import array
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.events.ingest.casting import cast_texts
from alluvia.events.ingest.jsontext import ExactNumber

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMESTAMP = pa.timestamp("us", "UTC")
MIN_US = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z
MAX_US = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z
_SURE_MIN_US = MIN_US + 86_400_000_000  # Arrow takes the year 0, which ends within that day in UTC, with an offset
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[Tt ](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d+))?)?)?(Z|z|([+-])(\d\d)(?::?(\d\d))?)?)?",
    re.ASCII,
)
_PLAIN = (
    r"^\d{4}-(?:(?:0[13-9]|1[0-2])-(?:0[1-9]|[12]\d|30)|(?:0[13578]|1[02])-31|02-(?:0[1-9]|1\d|2[0-8]))"
    r"[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d)$"
)
"""Most of the times that Arrow reads, and no others: 29 February is not among them."""
_SCALES_US = ((10**11, 1_000_000), (10**14, 1_000), (10**17, 1))  # below this magnitude, one unit has so many µs


def instant(value: object) -> tuple[int, bool] | None:
    """Return the moment in µs, and whether that is all of it; None if `value` is not a time in the years 1 to 9999.

    Text is ISO 8601 in the extended format, UTC without an offset. A number counts from the epoch in seconds below
    1e11, milliseconds below 1e14, microseconds below 1e17. What is finer than a microsecond is cut off.
    """
    if isinstance(value, str):
        found = _from_iso(value)
    elif isinstance(value, (int, float, ExactNumber)) and not isinstance(value, bool):
        found = _from_epoch(value)
    else:
        return None
    return found if found is not None and MIN_US <= found[0] <= MAX_US else None


def naive_instant(value: object) -> tuple[int, bool] | None:
    """Like `instant`, for a wall time: ISO 8601 text without an offset only."""
    match = _ISO.fullmatch(value) if isinstance(value, str) else None
    return instant(value) if match and not match[8] else None


def instants(values: Sequence[object]) -> pa.Array:
    """Return a timestamp for each value that is plain ISO 8601 text with an offset, fast; null for all others."""
    kinds = set(map(type, values))
    texts = values if kinds <= {str, type(None)} else [each if isinstance(each, str) else None for each in values]
    return plain_instants(pa.array(texts, pa.string()))


def plain_instants(texts: pa.Array) -> pa.Array:
    """Return what `instants` gives for texts and nulls in an array."""
    return _within(cast_texts(texts, TIMESTAMP, _PLAIN, None))


def plain_moments(values: pa.Array) -> pa.Array:
    """Return what `instant` gives for texts or integers in an array, with null for those that need a look."""
    if pa.types.is_string(values.type):
        return plain_instants(values)
    if not pa.types.is_int64(values.type):
        return pa.nulls(len(values), TIMESTAMP)
    found: pa.Array = pa.nulls(len(values), pa.int64())
    for limit, scale_us in reversed(_SCALES_US):
        known = pc.and_(pc.greater(values, -limit), pc.less(values, limit))
        found = pc.if_else(known, pc.multiply(values, scale_us), found)
    return _within(found.cast(TIMESTAMP))


def _within(found: pa.Array) -> pa.Array:
    """Return timestamps with null for those before the year 1 and after 9999, and for some that need a look."""
    moments_us = found.cast(pa.int64())
    bounds = pc.min_max(moments_us).as_py()
    if bounds["min"] is None or (bounds["min"] >= _SURE_MIN_US and bounds["max"] <= MAX_US):
        return found
    known = pc.and_(pc.greater_equal(moments_us, _SURE_MIN_US), pc.less_equal(moments_us, MAX_US))
    return pc.if_else(known, found, pa.scalar(None, TIMESTAMP))


def moments_array(moments_us: Sequence[int]) -> pa.Array:
    """Return timestamps of so many µs, none of them null, several times as fast as `pa.array`."""
    values = memoryview(array("q", moments_us))
    return pa.Array.from_buffers(TIMESTAMP, len(moments_us), [None, pa.py_buffer(values)], 0)


def _from_iso(text: str) -> tuple[int, bool] | None:
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, _, sign, offset_hour, offset_minute = match.groups()
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    offset_hours, offset_minutes = int(offset_hour or 0), int(offset_minute or 0)
    if hours > 23 or offset_hours > 23 or max(minutes, seconds, offset_minutes) > 59:
        return None
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    offset_s = (offset_hours * 60 + offset_minutes) * (-60 if sign == "-" else 60)
    moment_s = days * 86_400 + hours * 3600 + minutes * 60 + seconds - offset_s
    digits = fraction or ""
    return moment_s * 1_000_000 + int(digits[:6].ljust(6, "0")), not digits[6:].strip("0")


def _from_epoch(value: float | ExactNumber) -> tuple[int, bool] | None:
    if isinstance(value, ExactNumber):
        return _from_digits(value.text)
    scale_us = next((scale for limit, scale in _SCALES_US if abs(value) < limit), None)
    if scale_us is None:
        return None
    if isinstance(value, int):
        return value * scale_us, True
    moment_us = round(value * scale_us)
    return moment_us, moment_us / scale_us == value


def _from_digits(text: str) -> tuple[int, bool] | None:
    if len(text) > 100 or "e" in text.lower():  # no clock writes that
        return None
    exact = Fraction(text)
    scale_us = next((scale for limit, scale in _SCALES_US if abs(exact) < limit), None)
    if scale_us is None:
        return None
    moment = exact * scale_us
    return moment.__floor__(), moment.denominator == 1
