"""Fit a caller's rows to a table: the result has exactly the table's columns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.errors import Invalid
from alluvia.table.schema.digits import has_decimals, too_long
from alluvia.table.schema.moments import is_zoned
from alluvia.table.schema.required import check_required, has_required
from alluvia.table.schema.type_names import type_name
from alluvia.table.schema.values import check_value

Rows = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Sequence[Mapping[str, Any]]


def conformed(rows: Any, schema: pa.Schema, chunk_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows as tables of exactly `schema`, of about `chunk_bytes` each.

    `rows` is a pyarrow Table, RecordBatch or RecordBatchReader, or a sequence of dicts. A column that is missing is
    null. Raises `Invalid`, naming the column, for an unknown column, a value of another type or one that does not
    fit, and a null where the schema forbids it.
    """
    for table in _tables(rows, schema, chunk_bytes):
        conformed_table = conform(table, schema)
        count = max(1, round(conformed_table.nbytes / chunk_bytes))
        chunk_rows = max(1, -(-len(conformed_table) // count))
        for start in range(0, len(conformed_table), chunk_rows):
            yield conformed_table.slice(start, chunk_rows)


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
            yield pa.Table.from_batches(batches)
            batches, size = [], 0
    if batches:
        yield pa.Table.from_batches(batches)


def _from_dicts(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    _check_known({name for row in rows for name in row}, schema)
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        for value in values:
            check_value(value, field.type, field.name)
        try:
            columns.append(pa.array(values, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise Invalid(f"column {field.name}: a value does not fit {type_name(field.type)}: {error}") from error
    return pa.Table.from_arrays(columns, names=schema.names)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with exactly the columns and types of `schema`. Raises `Invalid`, naming the column."""
    fields = list(schema)
    if not table.schema.equals(schema):
        _check_known(table.column_names, schema)
    for field in fields:
        if has_decimals(field.type) and field.name in table.column_names:
            _check_digits(table[field.name], field)
    if table.schema.equals(schema) and not any(map(has_required, schema.types)):
        required = [field.name for field in fields if not field.nullable]
        if not required:
            return table
        if table.schema.equals(schema, check_metadata=True) and not any(table[name].null_count for name in required):
            return table
    columns = []
    for field in fields:
        if field.name in table.column_names:
            check_required(table[field.name], field.type, field.name)
            column = _cast(table[field.name], field)
        else:
            column = pa.chunked_array([pa.nulls(len(table), field.type)])
        if not field.nullable and column.null_count:
            msg = f"column {field.name} must not be null, but {column.null_count} of {len(table)} rows have no value"
            raise Invalid(msg)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _check_digits(column: pa.ChunkedArray, field: pa.Field) -> None:
    found = too_long(column)
    if found is not None:
        raise Invalid(
            f"column {field.name}: a value does not fit {type_name(field.type)}: {found:f} has more digits than its "
            f"type {type_name(column.type)} allows"
        )


def _check_known(names: Iterable[str], schema: pa.Schema) -> None:
    unknown = sorted(set(names) - set(schema.names))
    if unknown:
        raise Invalid(f"column {unknown[0]} is not in the table: add it with evolve(add=…), or leave it out")


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type.equals(field.type):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not _castable(column.type, field.type):
        raise Invalid(
            f"column {field.name} is {type_name(field.type)} in the table, but the rows have "
            f"{type_name(column.type)}: cast them, or use another name; a column cannot change its type"
        )
    try:
        if pa.types.is_timestamp(column.type) and is_zoned(field.type) and not is_zoned(column.type):
            return pc.assume_timezone(column.cast(pa.timestamp("us")), "UTC")
        if pa.types.is_decimal(field.type) and pa.types.is_integer(column.type):
            column = column.cast(pa.decimal256(76, field.type.scale))
        cast = column.cast(field.type)
        if pa.types.is_float32(field.type) and not pc.is_finite(cast).equals(pc.is_finite(column)):
            raise Invalid(f"column {field.name}: a value does not fit {type_name(field.type)}")
        return cast
    except pa.ArrowException as error:
        raise Invalid(f"column {field.name}: a value does not fit {type_name(field.type)}: {error}") from error


def _castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of a type that fits keeps its meaning in the other: never text to number or back."""
    types = pa.types
    if source.equals(target) or types.is_null(source):
        return True
    if types.is_nested(target):
        return _nested_castable(source, target)
    families = (
        types.is_integer,
        types.is_decimal,
        types.is_timestamp,
        types.is_date,
        lambda t: types.is_string(t) or types.is_large_string(t) or types.is_string_view(t),
        lambda t: types.is_binary(t) or types.is_large_binary(t) or types.is_fixed_size_binary(t),
    )
    if types.is_timestamp(source) and types.is_timestamp(target):
        return is_zoned(target) or not is_zoned(source)
    if types.is_floating(target):
        return types.is_floating(source) or types.is_integer(source)
    if types.is_decimal(target) and types.is_integer(source):
        return True
    return any(bool(family(source) and family(target)) for family in families)


def _nested_castable(source: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(source) and types.is_struct(target):
        fields = {target.field(at).name: target.field(at).type for at in range(target.num_fields)}
        given = {source.field(at).name: source.field(at).type for at in range(source.num_fields)}
        return set(given) <= set(fields) and all(_castable(kind, fields[name]) for name, kind in given.items())
    if types.is_map(source) and types.is_map(target):
        return _castable(source.key_type, target.key_type) and _castable(source.item_type, target.item_type)
    if isinstance(source, (pa.ListType, pa.LargeListType, pa.FixedSizeListType)) and types.is_list(target):
        return _castable(source.value_type, target.value_type)
    return False
