"""The rows of a query as rows of a table: by position, in the table's types, as an append converts them.

Beyond what an append takes, a text in VALUES becomes what its column, or its part of a column, is.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from alluvia.delta.schema.rows import conform
from alluvia.delta.schema.serialization import normal_schema
from alluvia.delta.schema.types import type_name
from alluvia.engine.duck.text_values import literal_values, text_values
from alluvia.errors import Invalid
from alluvia.query.engine import Result
from alluvia.sql.literal_values import Texts


def fitted(result: Result, schema: pa.Schema, *, literals: bool) -> pa.RecordBatchReader:
    """Return a query's rows with the names and types of a schema; with `literals`, texts become any type.

    Raises `Invalid`, as the rows are read, naming the column whose values do not fit.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in result:
            yield from fit_rows(pa.Table.from_batches([batch]), schema, literals=literals).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def fit_rows(rows: pa.Table, schema: pa.Schema, *, literals: bool = False) -> pa.Table:
    """Return rows with the names and types of a schema, as `fitted` does."""
    columns = [rows.column(at).combine_chunks() for at in range(rows.num_columns)]
    arrays = [_fit(column, field, literals=literals) for column, field in zip(columns, schema, strict=True)]
    return conform(pa.Table.from_arrays(arrays, names=schema.names), schema)


def _fit(column: pa.Array, field: pa.Field, *, literals: bool) -> pa.Array:
    if literals:
        return literal_values(column, field)
    if column.null_count == len(column) and not column.type.equals(field.type):  # a NULL alone has some type or other
        return pa.nulls(len(column), field.type)
    return column


def with_texts(rows: pa.Table, schema: pa.Schema, texts: Texts) -> pa.Table:
    """Return rows with the names and types of a schema, and with some texts in place of their NULL.

    Raises `Invalid`, naming the column, for a text that its type could only hold rounded or cut, or not at all.
    """
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    found = fit_rows(rows, nullable, literals=True)
    for column, by_row in texts.items():
        field = nullable.field(column)
        given = text_values(pa.array(by_row.values(), pa.string()), field)
        places = list(range(len(rows)))
        for at, row in enumerate(by_row):
            places[row] = len(rows) + at
        values = pa.concat_arrays([found.column(column).combine_chunks(), given.cast(field.type)])
        found = found.set_column(column, field, values.take(pa.array(places, pa.int64())))
    return found


def table_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table for a query's rows. Raises `Invalid`, naming one whose type Delta does not have."""
    fields = [pa.field(field.name, _stored(field.name, field.type)) for field in schema]
    return normal_schema(pa.schema(fields))


def _stored(name: str, kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        return _stored(name, kind.value_type)
    if types.is_null(kind):
        raise Invalid(f"column {name} is NULL in all rows: CAST(NULL AS …) says of which type")
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if kind.equals(pa.uint64()):
        return pa.decimal128(20, 0)
    if (
        types.is_time(kind)
        or types.is_interval(kind)
        or types.is_duration(kind)
        or isinstance(kind, pa.BaseExtensionType)
    ):
        raise Invalid(
            f"column {name} is {type_name(kind)}, which Delta has no type for: CAST it to VARCHAR or a number"
        )
    return kind
