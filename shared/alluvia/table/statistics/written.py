"""Compute the statistics of a data file in Delta's form. Pure. Source: Delta protocol, "Per-file Statistics"."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.table.schema.column_path import Json, put
from alluvia.table.schema.moments import as_moment

TEXT_LENGTH_MAX = 32
INDEXED_COLUMNS = 32
LAST_CHARACTER = "\U0010ffff"


def file_statistics(table: pa.Table, indexed_columns: int = INDEXED_COLUMNS) -> str:
    """Return the JSON text of `numRecords`, `minValues`, `maxValues` and `nullCount` for a file with these rows.

    The first `indexed_columns` leaf columns are covered. Text is cut to 32 characters, times to the millisecond, the
    maximum always upwards. A column that holds a NaN or an infinity has no bounds.
    """
    minima: Json = {}
    maxima: Json = {}
    nulls: Json = {}
    for path, column in _leaves(table, indexed_columns):
        put(nulls, path, column.null_count)
        bounds = _bounds(column)
        if bounds is not None:
            put(minima, path, bounds[0])
            put(maxima, path, bounds[1])
    return encode_statistics(len(table), minima, maxima, nulls)


def encode_statistics(rows: int, minima: Json, maxima: Json, nulls: Json) -> str:
    """Return statistics as JSON text."""
    return statistics_text({"numRecords": rows, "minValues": minima, "maxValues": maxima, "nullCount": nulls})


def statistics_text(statistics: Json) -> str:
    """Return statistics as JSON text, decimals with all their digits."""
    return orjson.dumps(statistics, default=_decimal).decode()


def _decimal(value: object) -> orjson.Fragment:
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f").encode())
    raise TypeError


def _leaves(table: pa.Table, limit: int) -> Iterator[tuple[tuple[str, ...], pa.ChunkedArray]]:
    """Yield leaf columns in order; a struct's leaves are null where the struct is."""
    pending: list[tuple[tuple[str, ...], pa.ChunkedArray]] = [
        ((name,), table[name]) for name in reversed(table.column_names)
    ]
    while pending and limit > 0:
        path, column = pending.pop()
        if pa.types.is_struct(column.type):
            names = [column.type.field(at).name for at in range(column.type.num_fields)]
            pending += [((*path, name), pc.struct_field(column, name)) for name in reversed(names)]
        else:
            limit -= 1
            yield path, column


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Return a column's bounds as JSON values, or None where it has none or its type takes none."""
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_boolean(kind):
        return None
    # JSON has neither NaN nor infinity, and a bound in a column with a NaN would let other readers prune the NaN away.
    if pa.types.is_floating(kind) and not pc.all(pc.is_finite(column)).as_py():
        return None
    if column.null_count == len(column):
        return None
    if len(column) == 1:
        only = _python(column[0])
        return json_bounds(only, only)
    both = pc.min_max(column)
    return json_bounds(_python(both["min"]), _python(both["max"]))


def _python(value: pa.Scalar) -> Any:
    """Return a value as Python has it; None for a time outside the years 1 to 9999."""
    try:
        return as_moment(value) if isinstance(value, pa.TimestampScalar) else value.as_py()
    except (ValueError, OverflowError):
        return None


def json_bounds(low: Any, high: Any) -> tuple[Any, Any] | None:
    """Return a minimum and a maximum as they are in JSON: at or below the one, at or above the other."""
    if low is None or high is None:
        return None
    if isinstance(low, str):
        return low[:TEXT_LENGTH_MAX], cut_upwards(high)
    if isinstance(low, datetime):
        return _time_text(low), _time_text(_ceil_millisecond(high))
    if isinstance(low, date):
        return low.isoformat(), high.isoformat()
    return low, high


def cut_upwards(text: str) -> str:
    """Return a text of little over 32 characters that sorts at or above every text with the same start."""
    if len(text) <= TEXT_LENGTH_MAX:
        return text
    end = TEXT_LENGTH_MAX
    while end < len(text) and text[end] == LAST_CHARACTER:
        end += 1
    return text if end == len(text) else text[:end] + LAST_CHARACTER


def _ceil_millisecond(moment: datetime) -> datetime:
    rest = moment.microsecond % 1000
    if not rest:
        return moment
    try:
        return moment + timedelta(microseconds=1000 - rest)
    except OverflowError:
        return moment


def _time_text(moment: datetime) -> str:
    text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if moment.tzinfo is None else f"{text}Z"
