"""Statistics in the columns' own types, of one file and of many at once. Pure.

A JSON value counts only if it is a value of the column's type; anything else is treated as absent.
Source: Delta protocol, "Per-file Statistics".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Context, Decimal, localcontext
from functools import partial
from math import isfinite
from typing import Any, cast

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.names import ColumnPath, find
from alluvia.delta.schema.types import moment
from alluvia.delta.statistics.written import LAST_CHARACTER, TEXT_LENGTH_MAX
from alluvia.lazy_dataclasses import dataclass

CHUNK_ROWS = 8192
FEW_VALUES = 768
"""Starting Arrow's parser takes longer than parsing this many values without it."""
_Converter = Callable[[Any], Any]
_INTEGERS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}
_EMPTY, _NEWLINE = pa.array(["{}", "\n"], pa.string())  # plain texts would load what parses dates
_NULL_AFTER = re.compile(rb"\}[ \t\r]*null")
FLOAT_DIGITS = 15
"""Decimals with this many digits survive being written as floating-point numbers."""
_FLOAT_ERROR = Decimal(2) ** -50
_DECIMAL_DIGITS_MAX = 38
_DECIMAL256_DIGITS = 76
_MILLISECOND = timedelta(milliseconds=1)
OFFSETS_WHOLE_SINCE = datetime(1972, 1, 8)  # noqa: DTZ001 - compared with times of either kind
"""Since then all offsets of time zones are whole minutes: Liberia's was the last that was not."""
OFFSET_SECONDS = timedelta(seconds=60)
CUT_ENDS = "[?\ufffd]+$"
"""What a writer may have put at the end of a cut text in the place of the rest: `?` and U+FFFD for half a character."""
_CUT = re.compile(CUT_ENDS)
_YEARS_US = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""The first and the last moment that Python has, in microseconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Of one column in many files: arrays of least values, greatest values and numbers of nulls; null is unknown."""

    low: pa.Array
    high: pa.Array
    nulls: pa.Array


@dataclass(frozen=True, slots=True)
class ManyStatistics:
    """Of many files: numbers of rows (null is unknown), whether bounds are tight (null: not said), and some columns."""

    rows: pa.Int64Array
    tight: pa.BooleanArray
    columns: Mapping[ColumnPath, ColumnStatistics]


def has_bounds(kind: pa.DataType) -> bool:
    """Whether statistics hold bounds for a type of columns."""
    types = pa.types
    checks = (types.is_floating, types.is_decimal, types.is_date, types.is_timestamp, types.is_string)
    return kind in _INTEGERS or any(check(kind) for check in checks)


def parse_statistics(text: str | None, *, exact: bool) -> dict[str, Any]:
    """Return statistics from their JSON text; none where it cannot be read. `exact` keeps decimals' digits."""
    if text is None:
        return {}
    try:
        parsed = orjson.loads(text)
        if exact:
            parsed = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def whole_number(value: Any) -> int | None:
    """Return a number of rows; None if the value is not one."""
    return _whole(value, 63)


def typed_value(value: Any, kind: pa.DataType) -> Any:
    """Return a JSON value in a column's type; None if it is not of that type."""
    return _value(_converter(kind), value)


def _value(convert: _Converter | None, value: Any) -> Any:
    if convert is None:
        return None
    try:
        return convert(value)
    except (ValueError, TypeError, OverflowError, ArithmeticError, pa.ArrowException):
        return None


def _converter(kind: pa.DataType) -> _Converter | None:
    """Return what makes a column's value of a JSON value, or raises or returns None; None for a type without bounds."""
    if kind in _INTEGERS:
        return partial(_whole, bits=_INTEGERS[kind])
    if pa.types.is_floating(kind):
        return partial(_float, kind=kind)
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_timestamp(kind):
        return partial(moment, kind=kind)
    return partial(_decimal, kind=kind) if pa.types.is_decimal(kind) else None


def widened(low: Any, high: Any, kind: pa.DataType, *, own: bool) -> tuple[Any, Any] | None:
    """Return bounds that hold no matter who wrote them, this library (`own`) or another; None if there are none.

    Others cut maxima: those of times to the millisecond, and those of text to 32 characters, or to 32 units of UTF-16,
    which may halve a character, and with U+FFFD behind, which sorts below many (delta-spark before 3.3). Some write
    decimals as floating-point numbers, which keep 15 digits of them. Times before 1972 may have a zone whose offset has
    seconds, which Spark leaves out of a time's text, and delta-rs cut times before 1970 upwards.
    """
    if pa.types.is_decimal128(kind):
        return widened_decimals(low, high, kind)
    if pa.types.is_timestamp(kind):
        try:
            return (low if own else low - _slack(low)), high + (_MILLISECOND if own else _slack(high) or _MILLISECOND)
        except OverflowError:
            return None
    if pa.types.is_string(kind) and is_long(high):
        return low, _CUT.sub("", high) + LAST_CHARACTER
    return low, high


def _slack(bound: datetime) -> timedelta:
    """Return how far a time before 1972 can be from its bound; nothing for a later one."""
    if bound.replace(tzinfo=None) >= OFFSETS_WHOLE_SINCE:
        return timedelta()
    return _MILLISECOND if bound.tzinfo is None else OFFSET_SECONDS


def is_long(text: str) -> bool:
    """Whether a maximum may have been cut: UTF-8 takes no fewer bytes than UTF-16 takes units."""
    return len(text) >= TEXT_LENGTH_MAX or (not text.isascii() and len(text.encode()) >= TEXT_LENGTH_MAX)


def widened_decimals(low: Decimal, high: Decimal, kind: pa.Decimal128Type) -> tuple[Decimal, Decimal]:
    """Return bounds between which decimals lie, even if their own went through floating-point numbers."""
    if kind.precision <= FLOAT_DIGITS:
        return low, high
    with localcontext(prec=2 * _DECIMAL_DIGITS_MAX):
        unit = Decimal(1).scaleb(-kind.scale)
        most = unit * (Decimal(10) ** kind.precision - 1)
        lower = low - abs(low) * _FLOAT_ERROR // unit * unit
        higher = high + abs(high) * _FLOAT_ERROR // unit * unit
        return max(lower, -most), min(higher, most)


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _date(value: Any) -> date:
    return date.fromisoformat(value[:10])


def _whole(value: Any, bits: int) -> int | None:
    return value if type(value) is int and -(1 << bits) <= value < 1 << bits else None


def _float(value: Any, kind: pa.DataType) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return None
    number = float(value)
    if kind == pa.float32():
        number = pa.array([number], pa.float64()).cast(pa.float32(), safe=False)[0].as_py()
    return number if isfinite(number) else None


def _decimal(value: Any, kind: pa.DataType) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal)):
        return None
    number = Decimal(value)
    fits = number.is_finite() and pa.scalar(number, kind).is_valid  # raises where digits would be lost
    return number if fits else None


def parse_texts(texts: pa.Array, columns: Mapping[ColumnPath, pa.DataType]) -> ManyStatistics:
    """Return the statistics of many files from their JSON texts, of some columns by their types."""
    chunks = [_parse_chunk(texts.slice(at, CHUNK_ROWS), columns) for at in range(0, len(texts), CHUNK_ROWS)]
    if len(chunks) < 2:
        return chunks[0] if chunks else _parse_each(texts, columns)
    by_column = {}
    for column in columns:
        parts = [chunk.columns[column] for chunk in chunks]
        by_column[column] = ColumnStatistics(
            pa.concat_arrays([part.low for part in parts]),
            pa.concat_arrays([part.high for part in parts]),
            pa.concat_arrays([part.nulls for part in parts]),
        )
    rows, tight = (pa.concat_arrays([getattr(chunk, name) for chunk in chunks]) for name in ("rows", "tight"))
    return ManyStatistics(rows, tight, by_column)


def _parse_chunk(texts: pa.Array, columns: Mapping[ColumnPath, pa.DataType]) -> ManyStatistics:
    """Parse by Arrow; few texts, and all where a single value is not as it should be, one by one."""
    if len(texts) * max(1, len(columns)) <= FEW_VALUES:
        return _parse_each(texts, columns)
    try:
        return _parse_at_once(texts, columns)
    except (pa.ArrowException, ValueError):
        return _parse_each(texts, columns)


def _parse_at_once(texts: pa.Array, columns: Mapping[ColumnPath, pa.DataType]) -> ManyStatistics:
    import pyarrow.json as pj

    whole = pc.coalesce(texts, _EMPTY)
    lines = pa.ListArray.from_arrays(pa.array([0, len(whole)], pa.int32()), whole)
    data = pc.binary_join(lines, _NEWLINE)[0].as_buffer()
    _check_lines(data.to_pybytes(), len(texts))
    fields = {"numRecords": pa.int64(), "tightBounds": pa.bool_()}
    bounded = {column: _json_type(kind) for column, kind in columns.items() if has_bounds(kind)}
    counted = {column: pa.int64() for column, kind in columns.items() if not pa.types.is_struct(kind)}
    fields |= {"minValues": tree(bounded), "maxValues": tree(bounded), "nullCount": tree(counted)}
    table = pj.read_json(
        pa.BufferReader(data),
        read_options=pj.ReadOptions(use_threads=False, block_size=data.size + 1),
        parse_options=pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"),
    )
    if len(table) != len(texts):
        raise ValueError("a text holds two objects")
    by_column = {}
    for column, kind in columns.items():
        low, high = (_bound(table, (name, *column), kind) for name in ("minValues", "maxValues"))
        by_column[column] = ColumnStatistics(low, high, _leaf(table, ("nullCount", *column), pa.int64()))
    rows, tight = _leaf(table, ("numRecords",), pa.int64()), _leaf(table, ("tightBounds",), pa.bool_())
    return ManyStatistics(cast("pa.Int64Array", rows), cast("pa.BooleanArray", tight), by_column)


def _check_lines(data: bytes, count: int) -> None:
    """Raise `ValueError` unless texts are one object a line. Arrow's parser crashes if a document is null."""
    objects = data.startswith(b"{") and data.count(b"\n") == data.count(b"\n{") == count - 1
    if not objects or _NULL_AFTER.search(data):
        raise ValueError("a text is not one JSON object on one line")


def tree(leaves: Mapping[ColumnPath, pa.DataType]) -> pa.StructType:
    """Return the struct type that has some leaves."""
    parts: dict[str, dict[ColumnPath, pa.DataType]] = {}
    for column, kind in leaves.items():
        parts.setdefault(column[0], {})[column[1:]] = kind
    return pa.struct([(name, below[()] if () in below else tree(below)) for name, below in parts.items()])


def _json_type(kind: pa.DataType) -> pa.DataType:
    if kind in _INTEGERS:
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    # Of 128 bits, Arrow's parser takes digits that the precision has no place for, and too many overflow.
    return pa.decimal256(_DECIMAL256_DIGITS, kind.scale) if pa.types.is_decimal(kind) else pa.string()


def _leaf(table: pa.Table, path: ColumnPath, kind: pa.DataType) -> pa.Array:
    leaf = pa.concat_arrays(table[path[0]].chunks) if len(table) else pa.array([], table.schema.field(path[0]).type)
    for name in path[1:]:
        if not pa.types.is_struct(leaf.type) or leaf.type.get_field_index(name) < 0:
            return pa.nulls(len(table), kind)
        leaf = pc.struct_field(leaf, name)
    return leaf if leaf.type == kind else pa.nulls(len(table), kind)


def _bound(table: pa.Table, path: ColumnPath, kind: pa.DataType) -> pa.Array:
    if not has_bounds(kind):
        return pa.nulls(len(table), kind)
    values = _leaf(table, path, _json_type(kind))
    if pa.types.is_date(kind):
        return _between(pc.cast(pc.utf8_slice_codeunits(values, 0, 10), kind), date.min, date.max)
    if pa.types.is_floating(kind):
        values = pc.cast(values, kind, safe=False)
        return _where(pc.is_finite(values), values)
    if kind in _INTEGERS and kind != pa.int64():
        limit = 1 << _INTEGERS[kind]
        values = _between(values, -limit, limit - 1)
    if pa.types.is_decimal(kind):
        most = Decimal(10**kind.precision - 1).scaleb(-kind.scale, Context(_DECIMAL256_DIGITS))
        values = _between(values, -most, most)
    values = pc.cast(values, kind)
    return within_years(values) if pa.types.is_timestamp(kind) else values


def within_years(times: pa.Array) -> pa.Array:
    """Return timestamps with null for those outside the years 1 to 9999, which Python cannot represent."""
    return _between(times, *pc.cast(pa.array(_YEARS_US, pa.timestamp("us")), times.type))


def _between(values: pa.Array, least: Any, most: Any) -> pa.Array:
    """Return values with null for those that do not lie between two."""
    low, high = (each if isinstance(each, pa.Scalar) else pa.scalar(each, values.type) for each in (least, most))
    return _where(pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high)), values)


def _where(kept: pa.BooleanArray, values: pa.Array) -> pa.Array:
    """Return values with null for those that are not kept."""
    return pc.if_else(kept, values, pa.scalar(None, values.type))


def _parse_each(texts: pa.Array, columns: Mapping[ColumnPath, pa.DataType]) -> ManyStatistics:
    exact = any(pa.types.is_decimal(kind) for kind in columns.values())
    parsed = [parse_statistics(text, exact=exact) for text in texts.to_pylist()]
    lows, highs, nulls = ([each.get(name) for each in parsed] for name in ("minValues", "maxValues", "nullCount"))
    by_column = {}
    for column, kind in columns.items():
        convert = _converter(kind)
        low, high = (pa.array([_value(convert, find(each, column)) for each in part], kind) for part in (lows, highs))
        by_column[column] = ColumnStatistics(low, high, pa.array(_null_counts(nulls, column, kind), pa.int64()))
    rows = pa.array([whole_number(each.get("numRecords")) for each in parsed], pa.int64())
    tight = pa.array([_boolean(each.get("tightBounds")) for each in parsed], pa.bool_())
    return ManyStatistics(rows, tight, by_column)


def _null_counts(nulls: Sequence[Any], column: ColumnPath, kind: pa.DataType) -> list[int | None]:
    if pa.types.is_struct(kind):
        return [None] * len(nulls)
    return [whole_number(find(each, column)) for each in nulls]
