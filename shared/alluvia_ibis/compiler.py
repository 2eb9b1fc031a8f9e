"""SQL as lakes take it: DuckDB's, with rows from memory as VALUES, and times as literals that prune files."""

from __future__ import annotations

from typing import Any

import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import sqlglot as sg
import sqlglot.expressions as sge
from ibis.backends.sql.compilers.duckdb import DuckDBCompiler

from alluvia.errors import Invalid

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
        found = sg.select(*typed).from_(source)
        return found if values else found.where(sge.false())

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
