"""Fit a caller's rows to a table: the result has exactly the table's columns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from alluvia.delta.schema.conversion import converted
from alluvia.delta.schema.digits import has_decimals, too_long
from alluvia.delta.schema.required import check_required, has_required
from alluvia.delta.schema.type_names import type_name
from alluvia.delta.schema.values import fitted_value
from alluvia.errors import Invalid

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
    chunks = column.chunks or [pa.array([], column.type)]  # so that a type is refused without values, too
    return pa.chunked_array([converted(chunk, field.type, field.name) for chunk in chunks], field.type)
