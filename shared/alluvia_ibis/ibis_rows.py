"""Rows between ibis and a lake, as Arrow. Pure."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, cast

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir
import pyarrow as pa
import sqlglot as sg
import sqlglot.expressions as sge
from ibis.backends.sql.compilers.duckdb import DuckDBCompiler

from alluvia.errors import Invalid
from alluvia.sql.fitting import table_schema
from alluvia_ibis.access import Rows

MEMORY_VALUES_MAX = 20_000
"""So many values of rows in memory go into a query's text."""


class AlluviaCompiler(DuckDBCompiler):  # type: ignore[misc]  # ibis has no types
    """Compiles expressions for lakes."""

    __slots__ = ()

    def visit_InMemoryTable(self, op: Any, *, name: str, schema: Any, data: Any) -> Any:  # noqa: ARG002, N802
        rows = data.to_pyarrow(schema).to_pylist(maps_as_pydicts="strict")
        if len(rows) * len(schema) > MEMORY_VALUES_MAX:
            raise Invalid(
                f"the table in memory has {len(rows):,} rows of {len(schema)} columns, and a query takes "
                f"{MEMORY_VALUES_MAX:,} values: store it with create_table, and use that table"
            )
        names = list(schema.names)
        values = [[self._value(row[name], kind) for name, kind in schema.items()] for row in rows]
        none = [] if values else [[sge.Null()] * len(names)]
        source = sge.Values(
            expressions=[sge.Tuple(expressions=each) for each in values or none],
            alias=sge.TableAlias(
                this=sg.to_identifier(name, quoted=True),
                columns=[sg.to_identifier(each, quoted=True) for each in names],
            ),
        )
        typed = [self.cast(sg.column(each, quoted=True), kind).as_(each, quoted=True) for each, kind in schema.items()]
        selection = sg.select(*typed).from_(source)
        return selection if values else selection.where(sge.false())

    def visit_NonNullLiteral(self, op: Any, *, value: Any, dtype: Any) -> Any:  # noqa: N802
        if dtype.is_timestamp() or dtype.is_date() or dtype.is_time():
            return self.cast(value.isoformat(), dtype)
        return super().visit_NonNullLiteral(op, value=value, dtype=dtype)

    def visit_Time(self, op: Any, *, arg: Any) -> Any:  # noqa: N802
        # DuckDB casts a moment to a time with its extension for time zones alone. Moments are in UTC.
        if op.arg.dtype.is_timestamp() and op.arg.dtype.timezone is not None:
            arg = self.cast(arg, dt.timestamp)
        return self.cast(arg, dt.time)

    def _value(self, value: Any, dtype: Any) -> Any:
        """Return one value of a row. The select around the rows gives columns their types."""
        if value is None:
            return sge.Null()
        if dtype.is_floating() and value - value == 0:  # finite: with an exponent, DuckDB reads no decimal
            return sge.Literal.number(f"{value!r}e0" if "e" not in repr(value) else repr(value))
        literal = ops.Literal(value, dtype)
        return self.visit_Literal(literal, value=literal.value, dtype=dtype)


def is_in_memory(obj: Any) -> bool:
    """Whether rows are in this process, and no expression over tables."""
    return not isinstance(obj, ir.Expr) or isinstance(obj.op(), ops.InMemoryTable)


def in_memory(obj: Any, schema: Any = None) -> Rows:
    """Return rows in this process as Arrow, with the columns of a schema of ibis if there is one.

    Lists of dicts and dicts of lists get their types from Arrow; data frames from ibis.
    """
    if isinstance(obj, ir.Expr):
        rows = obj.op().data.to_pyarrow(obj.schema())
    elif isinstance(obj, pa.Table | pa.RecordBatchReader):
        rows = obj
    elif isinstance(obj, list | dict):
        wanted = None if schema is None else schema.to_pyarrow()
        if wanted is not None:
            named = set(obj) if isinstance(obj, dict) else {name for row in obj for name in row}
            _check_same(sorted(named), wanted.names)
        rows = pa.Table.from_pylist(obj, wanted) if isinstance(obj, list) else pa.Table.from_pydict(obj, wanted)
    else:
        frame = ibis.memtable(obj).op()
        rows = frame.data.to_pyarrow(frame.schema)
    if schema is None:
        return cast("Rows", rows)
    rows = rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows
    _check_same(rows.column_names, schema.names)
    return rows.select(list(schema.names)).cast(schema.to_pyarrow())


def _check_same(given: Sequence[str], wanted: Sequence[str]) -> None:
    if sorted(given) != sorted(wanted):
        raise Invalid(f"the rows have the columns {', '.join(given)}, and the schema has {', '.join(wanted)}")


def columns_for(rows: pa.Schema) -> pa.Schema:
    """Return the columns of a table that is to hold some rows. Raises `Invalid` for a type that Delta does not have."""
    stored = table_schema(rows)
    return pa.schema([field.with_nullable(given.nullable) for field, given in zip(stored, rows, strict=True)])


def for_columns(rows: Rows, columns: pa.Schema) -> Rows:
    """Return rows as a table takes them: columns by their names, where the table has all of them, else by position.

    Columns that the rows lack are null. Numbers and times get the types of the columns, where no value changes by
    that; of other types, the table judges. Raises `Invalid`, naming the column.
    """
    names = rows.schema.names
    if not set(names) <= set(columns.names):
        if len(names) != len(columns):
            unknown = next(name for name in names if name not in columns.names)
            raise Invalid(f"column {unknown}: the table has no such column, only {', '.join(columns.names)}")
        names = columns.names
    given = dict(zip(names, rows.schema.types, strict=True))
    fields = [field.with_type(_type_for(field, given.get(field.name, field.type))) for field in columns]
    schema = pa.schema([field.with_nullable(True) for field in fields])  # the table says which may be null
    batches = (
        _batch_for(batch, names, schema) for batch in (rows.to_batches() if isinstance(rows, pa.Table) else rows)
    )
    if isinstance(rows, pa.Table):
        return pa.Table.from_batches(batches, schema)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _type_for(column: pa.Field, given: pa.DataType) -> pa.DataType:
    return column.type if _converts(given, column.type) else given


def _converts(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_dictionary(source):
        source = source.value_type
    for alike in (_is_number, pa.types.is_timestamp, pa.types.is_string):
        if alike(source) and alike(target):
            return True
    return pa.types.is_null(source)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _batch_for(batch: pa.RecordBatch, names: list[str], schema: pa.Schema) -> pa.RecordBatch:
    given = dict(zip(names, batch.columns, strict=True))
    columns = []
    for field in schema:
        column = given.get(field.name)
        try:
            columns.append(pa.nulls(len(batch), field.type) if column is None else column.cast(field.type))
        except pa.ArrowException as error:
            raise Invalid(f"column {field.name}: a value does not fit {field.type}: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def fitted(
    columns: pa.Schema, batches: Generator[pa.RecordBatch], wanted: pa.Schema, rows_max: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an answer with the types that ibis expects, at most a number of them in a batch.

    Raises `Invalid`, naming the column, for a value that has no such type.
    """
    if len(columns) != len(wanted):
        raise Invalid(f"the answer has {len(columns)} columns, and {len(wanted)} were expected: look at its SQL")
    with closing(batches):
        for batch in batches:
            pairs = zip(batch.columns, wanted, strict=True)
            fit = pa.RecordBatch.from_arrays([_cast(column, field) for column, field in pairs], schema=wanted)
            for start in range(0, fit.num_rows, rows_max):
                yield fit.slice(start, rows_max)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type.equals(field.type):
        return column
    try:
        if pa.types.is_interval(column.type) and pa.types.is_duration(field.type):
            return _durations(column).cast(field.type)
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise Invalid(
            f"column {field.name}: ibis expects {field.type}, and the answer has {column.type}: cast it ({error})"
        ) from error


def _durations(column: pa.Array) -> pa.Array:
    """Return intervals as microseconds. Raises `ArrowInvalid` for one with months, which have no length."""
    intervals = column.to_pylist()
    if any(each is not None and each.months for each in intervals):
        raise pa.ArrowInvalid("an interval has months")
    micros = [each and (each.days * 86_400_000_000 + each.nanoseconds // 1000) for each in intervals]
    return pa.array(micros, pa.duration("us"))
