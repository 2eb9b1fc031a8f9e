"""Columns of moments as senders write them, fast where texts are plain ISO 8601. Pure."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.json_values.time_texts import EPOCH_LIMITS, MAX_US, MIN_US

_TRIES = 4
_REFUSED = re.compile(r"Failed to parse string: '(.*)' as a scalar of type", re.DOTALL)
"""Arrow's message about the first text that does not fit. It is only a hint."""


def cast_texts(texts: pa.Array, kind: pa.DataType, fitting: str, other: str | None) -> pa.Array:
    """Return the values that texts say, with that of `other` for those that say none.

    A few that do not fit are found by what Arrow says of each, in a fraction of the time of `fitting`, a regular
    expression that holds for texts that Arrow reads; with more of them, only its texts keep their values.
    """
    for _ in range(_TRIES):
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid as error:
            refused = _REFUSED.search(str(error))
            at = -1 if refused is None else pc.index(texts, pa.scalar(refused[1], texts.type)).as_py()
            if at < 0:
                break
            texts = replaced(texts, [at], other)
    return pc.if_else(pc.match_substring_regex(texts, fitting), texts, pa.scalar(other, texts.type)).cast(kind)


def replaced(texts: pa.Array, places: Sequence[int], other: str | None) -> pa.Array:
    """Return texts with another one at some places, in order. For few, this is several times as fast as `if_else`."""
    spare = pa.array([other], texts.type)
    pieces, start = [], 0
    for place in places:
        pieces += [texts.slice(start, place - start), spare]
        start = place + 1
    return pa.concat_arrays([*pieces, texts.slice(start)])


TIMESTAMP = pa.timestamp("us", "UTC")
_SURE_MIN_US = MIN_US + 86_400_000_000  # Arrow takes the year 0, which ends within that day in UTC, with an offset
_PLAIN = (
    r"^\d{4}-(?:(?:0[13-9]|1[0-2])-(?:0[1-9]|[12]\d|30)|(?:0[13578]|1[02])-31|02-(?:0[1-9]|1\d|2[0-8]))"
    r"[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d)$"
)
"""Most of the times that Arrow reads, and no others: 29 February is not among them."""


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
    moments_us: pa.Array = pa.nulls(len(values), pa.int64())
    for limit, scale_us, of in reversed(EPOCH_LIMITS):
        if of == 1:  # what is finer than a microsecond needs a look
            known = pc.and_(pc.greater(values, -limit), pc.less(values, limit))
            moments_us = pc.if_else(known, pc.multiply(values, scale_us), moments_us)
    return _within(moments_us.cast(TIMESTAMP))


def _within(timestamps: pa.Array) -> pa.Array:
    """Return timestamps with null for those before the year 1 and after 9999, and for some that need a look."""
    moments_us = timestamps.cast(pa.int64())
    bounds = pc.min_max(moments_us).as_py()
    if bounds["min"] is None or (bounds["min"] >= _SURE_MIN_US and bounds["max"] <= MAX_US):
        return timestamps
    known = pc.and_(pc.greater_equal(moments_us, _SURE_MIN_US), pc.less_equal(moments_us, MAX_US))
    return pc.if_else(known, timestamps, pa.scalar(None, TIMESTAMP))


def moments_array(moments_us: Sequence[int]) -> pa.Array:
    """Return timestamps of numbers of µs, none of them null, several times as fast as `pa.array`."""
    values = memoryview(array("q", moments_us))
    return pa.Array.from_buffers(TIMESTAMP, len(moments_us), [None, pa.py_buffer(values)], 0)
