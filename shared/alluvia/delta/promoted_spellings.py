"""How columns write values as JSON text, and which values events spell in another way. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc

_TIMESTAMP = pa.timestamp("us", "UTC")
_ESCAPED = r'["\\\x00-\x1f]'
"""Characters that JSON writes as escapes."""


def as_scalar(text: str) -> pa.Scalar:
    """Return an Arrow scalar of a text. Arrow's own conversion of Python's texts loads further packages."""
    return pa.scalar(text, pa.string())


def json_texts(column: pa.Array) -> pa.Array:
    """Return values as JSON text, like in results; null for NaN and infinity."""
    if pa.types.is_string(column.type) and not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        return pc.binary_join_element_wise(as_scalar('"'), column, as_scalar('"'), as_scalar(""))
    if pa.types.is_integer(column.type):
        return column.cast(pa.string())
    if pa.types.is_timestamp(column.type) and _in_years(column):
        text = pc.replace_substring(column.cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.string()), " ", "T")
        text = pc.replace_substring_regex(text, r"\.0+$", "")
        text = pc.replace_substring_regex(text, r"(\.[0-9]*[1-9])0+$", r"\1")
        return pc.binary_join_element_wise(
            as_scalar('"'), text, as_scalar('Z"' if column.type.tz else '"'), as_scalar("")
        )
    from alluvia.json_values.plain import plain_values

    texts = [None if value is None else orjson.dumps(value).decode() for value in plain_values(column)]
    return pa.array([None if text == "null" else text for text in texts], pa.string())


def _in_years(times: pa.Array) -> bool:
    """Whether all times are in the years that ISO 8601 writes with four digits."""
    from alluvia.json_values.time_texts import MAX_US, MIN_US

    bounds = pc.min_max(times.cast(pa.int64())).as_py()
    return bounds["min"] is None or (bounds["min"] >= MIN_US and bounds["max"] <= MAX_US)


def spelled_otherwise(values: Sequence[object], column: pa.Array) -> list[int]:
    """Return the places of values of JSON that a column has, but writes in another way: 12 in a column of doubles."""
    if set(map(type, values)) <= {type(None), _OWN_SPELLING.get(column.type.id)}:
        return []
    from alluvia.json_values.jsontext import encode_all

    texts = column.cast(pa.string()) if pa.types.is_decimal(column.type) else json_texts(column)  # as SQL writes them
    pairs = zip(encode_all(values), texts.to_pylist(), strict=True)
    return [at for at, (sent, text) in enumerate(pairs) if text is not None and sent.decode() != text]


_OWN_SPELLING = {pa.string().id: str, pa.bool_().id: bool, pa.float64().id: float}
_OWN_SPELLING |= dict.fromkeys((kind.id for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())), int)
"""The Python types of JSON's values that a column of a type writes as they were sent."""


def spelled_at_sight(texts: pa.Array, member: str, column: pa.Array) -> pa.BooleanArray:
    """Return which texts surely have a column's value in another spelling, under a key (JSON text) that comes once.

    Others need a look. Integers in columns of doubles, and times, are most of those that stay.
    """
    of_times = column.type == _TIMESTAMP
    if not (of_times or pa.types.is_float64(column.type)):
        return pa.repeat(pa.scalar(False, pa.bool_()), len(texts))
    from alluvia.json_values.instants import plain_instants, plain_moments

    def said(value: str) -> pa.Array:
        found = pc.extract_regex(texts, pattern=f"{re.escape(member)}:(?P<value>{value})[,}}]")
        return pc.struct_field(found, "value")

    numbers = said(r"-?[0-9]{1,15}").cast(pa.int64())
    same = pc.equal(plain_moments(numbers) if of_times else numbers.cast(pa.float64()), column)
    if of_times:
        times = said(r'"[^"\\]*"')
        is_same = pc.equal(plain_instants(pc.utf8_trim(times, characters='"')), column)
        same = pc.or_kleene(same, pc.and_(is_same, pc.not_equal(times, json_texts(column))))
    once = pc.equal(pc.count_substring(texts, member), 1)
    return pc.fill_null(pc.and_(same, once), fill_value=False)
