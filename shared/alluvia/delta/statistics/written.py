"""Compute the statistics of a data file in Delta's form. Pure. Source: Delta protocol, "Per-file Statistics"."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.names import ColumnPath, Json, find, put
from alluvia.delta.schema.types import as_moment
from alluvia.delta.schema.variant_shredding import is_marked


def merged_statistics(parts: Sequence[str]) -> str:
    """Return the statistics of all rows of some parts of a file, each given by its own (see `file_statistics`).

    A column has bounds only if it has them in every part that holds a value of it.
    """
    if len(parts) == 1:
        return parts[0]
    parsed: list[Json] = [exact_json(part) for part in parts]
    leaves = sorted({path for part in parsed for path in _paths(part["nullCount"])})
    minima: Json = {}
    maxima: Json = {}
    nulls: Json = {}
    for path in leaves:
        put(nulls, path, sum(find(part["nullCount"], path) or 0 for part in parsed))
        filled = [part for part in parsed if (find(part["nullCount"], path) or 0) < part["numRecords"]]
        low = [find(part["minValues"], path) for part in filled]
        high = [find(part["maxValues"], path) for part in filled]
        if filled and None not in low and None not in high:
            put(minima, path, min(low))
            put(maxima, path, max(high))
    return encode_statistics(sum(part["numRecords"] for part in parsed), minima, maxima, nulls)


def _paths(tree: Json, start: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    paths = []
    for name, value in tree.items():
        paths += _paths(value, (*start, name)) if isinstance(value, dict) else [(*start, name)]
    return paths


def loose_statistics(text: str | None, rows: int) -> str:
    """Return the statistics of a file with `rows` rows after a vector deletes some of them.

    Bounds stay where they are, though no row may reach them any more. Source: Delta protocol, "Per-file Statistics".
    """
    try:
        statistics = exact_json(text or "{}")
    except (ValueError, RecursionError):
        statistics = {}
    statistics = statistics if isinstance(statistics, dict) else {}
    return statistics_text(statistics | {"numRecords": rows, "tightBounds": False})


TEXT_LENGTH_MAX = 32
INDEXED_COLUMNS = 32
LAST_CHARACTER = "\U0010ffff"
_TIME_CHARS = len("2026-01-01T00:00:00.000")
_LONG_DIGITS = 18
_DECIMAL_DIGITS_MAX = 38


def file_statistics(table: pa.Table, indexed_columns: int = INDEXED_COLUMNS) -> str:
    """Return the JSON text of `numRecords`, `minValues`, `maxValues` and `nullCount` for a file with these rows.

    The first `indexed_columns` leaf columns are covered. Text is cut to 32 characters, times to the millisecond, the
    maximum always upwards. A column that holds a NaN or an infinity has no bounds.
    """
    minima: Json = {}
    maxima: Json = {}
    nulls: Json = {}
    rows = len(table)
    for path, column in islice(_leaves(table), indexed_columns):
        missing = column.null_count
        put(nulls, path, missing)
        bounds = _bounds(column) if missing < rows else None
        if bounds is not None:
            put(minima, path, bounds[0])
            put(maxima, path, bounds[1])
    return encode_statistics(rows, minima, maxima, nulls)


def encode_statistics(rows: int, minima: Json, maxima: Json, nulls: Json) -> str:
    """Return statistics as JSON text."""
    return statistics_text({"numRecords": rows, "minValues": minima, "maxValues": maxima, "nullCount": nulls})


def statistics_text(statistics: Json) -> str:
    """Return statistics as JSON text, decimals with all their digits."""
    return orjson.dumps(statistics, default=_decimal).decode()


def exact_json(text: str) -> Any:
    """Return a JSON value that `statistics_text` writes again without losing a digit. Raises `ValueError`.

    Whole numbers that may exceed 64 bits, which orjson does not write, are decimals, as are those with a fraction.
    """
    return json.loads(text, parse_float=Decimal, parse_int=_whole, parse_constant=_no_number)


def _whole(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _LONG_DIGITS else Decimal(digits)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _decimal(value: object) -> orjson.Fragment:
    if not isinstance(value, Decimal):
        raise TypeError
    binary = abs(value.adjusted()) > _DECIMAL_DIGITS_MAX or not value.is_finite()
    return orjson.Fragment((str(value) if binary else format(value, "f")).encode())


def _leaves(table: pa.Table) -> Iterator[tuple[ColumnPath, pa.ChunkedArray]]:
    """Yield leaf columns in order; a struct's leaves are null where the struct is."""
    for at, name in enumerate(table.schema.names):
        column = table.column(at)
        if pa.types.is_struct(column.type) and not is_marked(table.schema.field(at)):
            yield from _leaves_in((name,), column)
        else:
            yield (name,), column


def _leaves_in(path: ColumnPath, structs: pa.ChunkedArray) -> Iterator[tuple[ColumnPath, pa.ChunkedArray]]:
    for at in range(structs.type.num_fields):
        field = structs.type.field(at)
        column = pc.struct_field(structs, field.name)
        if pa.types.is_struct(field.type):
            yield from _leaves_in((*path, field.name), column)
        else:
            yield (*path, field.name), column


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Return the bounds of a column that has values as JSON values, or None where its type or a value takes none."""
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_boolean(kind):
        return None
    # JSON has neither NaN nor infinity, and a bound in a column with a NaN would let other readers prune the NaN away.
    if pa.types.is_floating(kind) and not pc.all(pc.is_finite(column)).as_py():
        return None
    if len(column) == 1:
        only = _python(column[0])
        return json_bounds(only, only)
    both = pc.min_max(column)
    return json_bounds(_python(both["min"]), _python(both["max"]))


def _python(value: pa.Scalar) -> Any:
    """Return a value as Python's type; None for a time outside the years 1 to 9999."""
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
        above, text = _ceil_millisecond(high), _time_text(low)
        return text, text if above is low else _time_text(above)
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
    text = moment.isoformat(timespec="milliseconds")
    return text if moment.tzinfo is None else f"{text[:_TIME_CHARS]}Z"
