"""Fit a caller's rows to a table: the result has exactly the table's columns. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from alluvia.delta.schema.conversion import converted, has_decimals, too_long
from alluvia.delta.schema.nesting import check_required, has_required
from alluvia.delta.schema.types import type_name
from alluvia.errors import Invalid
from alluvia.nearest_name import did_you_mean

_FLOAT32_MAX = 3.4028234663852886e38
_WHOLE_DIGITS = 40
"""More digits than any column of whole numbers has."""
_Fitted = Callable[[Any, Any], Any]


def fitted_value(value: Any, kind: pa.DataType, path: str) -> Any:
    """Return a value that is not None as Arrow takes it for a column's type, parts of nested ones too.

    The rules are those of `conversion`. Raises `Invalid`, naming the column, for a value of another type.
    """
    fit = _nested_fit(kind, path) or next((fit for matches, fit in _FITS if matches(kind)), None)
    is_flag = isinstance(value, bool) and not pa.types.is_boolean(kind)  # which Python takes for a number
    fitted = None if fit is None or is_flag else fit(value, kind)
    if fitted is None:
        raise Invalid(f"column {path}: {_shown(value)} is not a valid {type_name(kind)}")
    return fitted


def _shown(value: Any) -> str:
    try:
        return repr(value)[:100]
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply to show"


def _whole(value: Any, _: Any) -> Any:
    if isinstance(value, Decimal):
        fits = value.is_finite() and value.as_tuple().exponent == 0 and value.adjusted() < _WHOLE_DIGITS
        return int(value) if fits else None
    return value if isinstance(value, Integral) else None


def _decimal(value: Any, _: Any) -> Any:
    return value if isinstance(value, (Integral, Decimal)) else None


def _floating(value: Any, kind: pa.DataType) -> Any:
    if not isinstance(value, (Real, Decimal)):
        return None
    number = float(value) if isinstance(value, Decimal) else value
    if pa.types.is_float32(kind) and _FLOAT32_MAX < abs(float(number)) < math.inf:
        return None
    return number


def _moment(value: Any, kind: Any) -> Any:
    if isinstance(value, datetime):
        return value if kind.tz is not None or value.tzinfo is None else None
    if not isinstance(value, date):
        return None
    return datetime(value.year, value.month, value.day, tzinfo=None if kind.tz is None else UTC)


def _is_a(*types: type, but: tuple[type, ...] = ()) -> _Fitted:
    return lambda value, _: value if isinstance(value, types) and not isinstance(value, but) else None


_FITS: list[tuple[Callable[[pa.DataType], bool], _Fitted]] = [
    (pa.types.is_boolean, _is_a(bool)),
    (pa.types.is_integer, _whole),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _is_a(str)),
    (pa.types.is_binary, _is_a(bytes, bytearray, memoryview)),
    (pa.types.is_timestamp, _moment),
    (pa.types.is_date, _is_a(date, but=(datetime,))),
]


def _nested_fit(kind: pa.DataType, path: str) -> _Fitted | None:
    fits: list[tuple[Callable[[pa.DataType], bool], Callable[[Any, Any, str], Any]]] = [
        (pa.types.is_struct, _struct), (pa.types.is_map, _map), (pa.types.is_list, _list),
    ]  # fmt: skip
    chosen = next((fit for matches, fit in fits if matches(kind)), None)
    return None if chosen is None else lambda value, kind: chosen(value, kind, path)


def _part(value: Any, kind: pa.DataType, path: str) -> Any:
    return None if value is None else fitted_value(value, kind, path)


def _map(value: Any, kind: pa.MapType, path: str) -> Any:
    pairs = value.items() if isinstance(value, Mapping) else value
    if isinstance(value, str) or not hasattr(pairs, "__iter__"):
        return None
    pairs = list(pairs)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        return None
    return [
        (_part(key, kind.key_type, f"{path}.key"), _part(item, kind.item_type, f"{path}.value")) for key, item in pairs
    ]


def _list(value: Any, kind: Any, path: str) -> Any:
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
        return None
    return [_part(item, kind.value_type, f"{path}.element") for item in value]


def _struct(value: Any, kind: Any, path: str) -> Any:
    if not isinstance(value, Mapping):
        return None
    fields = {kind.field(at).name: kind.field(at).type for at in range(kind.num_fields)}
    unknown = next((name for name in value if name not in fields), None)
    if unknown is not None:
        raise Invalid(f"column {path}: field {unknown} is not in the table")
    return {name: _part(part, fields[name], f"{path}.{name}") for name, part in value.items()}


Rows = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Sequence[Mapping[str, Any]]


def conformed(rows: Any, schema: pa.Schema, chunk_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows as tables of exactly `schema`, of about `chunk_bytes` each.

    `rows` is a pyarrow Table, RecordBatch or RecordBatchReader, or a sequence of dicts. A column that is missing is
    null. Raises `Invalid`, naming the column, for an unknown column, a value of another type or one that does not
    fit, and a null where the schema forbids it.
    """
    for chunks in map(partial(_chunks, schema=schema, chunk_bytes=chunk_bytes), _tables(rows, schema, chunk_bytes)):
        while chunks:
            yield chunks.pop(0)  # frees it before the next rows are gathered


def _chunks(table: pa.Table, schema: pa.Schema, chunk_bytes: int) -> list[pa.Table]:
    table = conform(table, schema)
    count = max(1, round(table.nbytes / chunk_bytes))
    chunk_rows = max(1, -(-len(table) // count))
    return [table.slice(start, chunk_rows) for start in range(0, len(table), chunk_rows)]


def columns_of_rows(rows: Any) -> set[str]:
    """Return the names of the columns that some rows have; none if these are not rows."""
    if isinstance(rows, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        return set(rows.schema.names)
    if isinstance(rows, Sequence):
        return {name for row in rows if isinstance(row, Mapping) for name in row}
    return set()


def _tables(rows: Any, schema: pa.Schema, chunk_bytes: int) -> Iterator[pa.Table]:
    if isinstance(rows, pa.Table):
        yield rows
    elif isinstance(rows, pa.RecordBatch):
        yield pa.Table.from_batches([rows])
    elif isinstance(rows, pa.RecordBatchReader):
        yield from _gathered(rows, chunk_bytes)
    elif isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
        yield _from_dicts(rows, schema)
    else:
        msg = f"rows: expected a pyarrow Table or RecordBatchReader, or a list of dicts, got {type(rows).__name__}"
        raise Invalid(msg)


def _gathered(reader: pa.RecordBatchReader, chunk_bytes: int) -> Iterator[pa.Table]:
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in reader:
        batches.append(batch)
        size += batch.nbytes
        if size >= chunk_bytes:
            gathered, batches, size = pa.Table.from_batches(batches), [], 0
            del batch
            yield gathered
            del gathered
    if batches:
        yield pa.Table.from_batches(batches)


def _from_dicts(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    _check_known({name for row in rows for name in row}, schema)
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        fitted = [None if value is None else fitted_value(value, field.type, field.name) for value in values]
        try:
            columns.append(pa.array(fitted, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise Invalid(f"column {field.name}: a value does not fit {type_name(field.type)}: {error}") from error
    return pa.Table.from_arrays(columns, names=schema.names)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with exactly the columns and types of `schema`. Raises `Invalid`, naming the column."""
    fields = list(schema)
    if not table.schema.equals(schema):
        _check_known(table.column_names, schema)
    there = dict(zip(table.column_names, table.columns, strict=True))
    for field in fields:
        if has_decimals(field.type) and field.name in there:
            _check_digits(there[field.name], field)
    if table.schema.equals(schema) and not any(map(has_required, schema.types)):
        required = [field.name for field in fields if not field.nullable]
        if not required:
            return table
        if table.schema.equals(schema, check_metadata=True) and not any(table[name].null_count for name in required):
            return table
    columns = []
    for field in fields:
        if field.name in there:
            check_required(there[field.name], field.type, field.name)
            column = _cast(there[field.name], field)
        else:
            column = pa.chunked_array([pa.nulls(len(table), field.type)])
        if not field.nullable and column.null_count:
            msg = f"column {field.name} must not be null, but {column.null_count} of {len(table)} rows have no value"
            raise Invalid(msg)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def conform_by_position(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of a query's rows as those of a schema, one by one. A NULL alone has some type or other.

    Raises `Invalid`, naming the column.
    """
    columns = [
        pa.nulls(len(column), field.type) if column.null_count == len(column) else column
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return conform(pa.Table.from_arrays(columns, names=schema.names), schema)


def _check_digits(column: pa.ChunkedArray, field: pa.Field) -> None:
    value = too_long(column)
    if value is not None:
        raise Invalid(
            f"column {field.name}: a value does not fit {type_name(field.type)}: {value:f} has more digits than its "
            f"type {type_name(column.type)} allows"
        )


def _check_known(names: Iterable[str], schema: pa.Schema) -> None:
    unknown = sorted(set(names) - set(schema.names))
    if unknown:
        near = did_you_mean(unknown[0], schema.names)
        raise Invalid(
            f"column {unknown[0]} is not in the table: {near or 'add it with evolve(add=…), or leave it out'}"
        )


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    chunks = column.chunks or [pa.array([], column.type)]  # so that a type is refused without values, too
    return pa.chunked_array([converted(chunk, field.type, field.name) for chunk in chunks], field.type)
