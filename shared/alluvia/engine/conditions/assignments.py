"""New values of columns as SQL expressions over a table's rows, as text: what `Table.update` takes.

Like conditions, Arrow computes the simplest ones, and DuckDB all others. A value must fit its column exactly, or widen
to it: text never becomes a number implicitly, and a number never loses digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.delta.schema.caller_rows import conform
from alluvia.delta.schema.names import fold
from alluvia.engine.conditions.columnar import Compute, computed_value
from alluvia.engine.conditions.condition import columns_used
from alluvia.engine.conditions.fast_parser import plain_value
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import did_you_mean

if TYPE_CHECKING:
    from alluvia.engine.conditions.sql_assignments import SqlValues

_Values = Callable[[pa.Table], pa.Array | pa.ChunkedArray]


@dataclass(frozen=True, slots=True)
class Assignments:
    """`names` are the columns that get new values, `columns` those that the expressions look at."""

    names: tuple[str, ...]
    columns: tuple[str, ...]
    _schema: pa.Schema
    _compute: Mapping[str, _Values]

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return the new values for some rows, which need `columns`: a table of `names`, in the schema's types.

        Raises `Invalid`, naming the column, where an expression fails, gives null for a column that must not be null,
        or a value that does not fit its column.
        """
        columns = [compute(rows) for compute in self._compute.values()]
        fields = [self._schema.field(name) for name in self.names]
        given = pa.Table.from_arrays(columns, names=list(self.names))
        return conform(given, pa.schema(fields))


def assignments(given: Mapping[str, str], schema: pa.Schema) -> Assignments:
    """Read new values for columns of `schema`: SQL expressions over its columns, by column.

    Raises `Invalid`, naming the column, for an unknown one, for what is not a single expression, or for one whose type
    does not fit. All expressions see the rows as they were.
    """
    if not isinstance(given, Mapping) or not given:
        raise Invalid("update: give the columns to set, with an SQL expression for each, such as {'status': '0'}")
    texts: dict[str, object] = {}
    for asked, text in given.items():
        name = _column(asked, schema)
        if name in texts:
            raise Invalid(f"column {name} is set twice")
        texts[name] = text
    return _plain(texts, schema) or _by_duckdb(texts, schema)


def _plain(texts: Mapping[str, object], schema: pa.Schema) -> Assignments | None:
    """Return the assignments where Arrow can compute all of them."""
    compute: dict[str, _Values] = {}
    used: set[str] = set()
    for name, text in texts.items():
        if not isinstance(text, str):
            return None
        expression = plain_value(text)
        computed = None if expression is None else computed_value(expression, schema, schema.field(name).type)
        if expression is None or computed is None:
            return None
        compute[name] = _or_duckdb(computed, name, text, schema)
        used.update(columns_used(expression, schema))
    columns = tuple(name for name in schema.names if name in used)
    return Assignments(tuple(texts), columns, schema, compute)


def _or_duckdb(compute: Compute, name: str, text: str, schema: pa.Schema) -> _Values:
    def computed(rows: pa.Table) -> pa.Array | pa.ChunkedArray:
        [batch] = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
        try:
            return compute(batch)
        except pa.ArrowInvalid:  # a number overflows, and DuckDB knows which
            values = _sql_values(schema)
            values.read(name, text)
            return values.compute(name, rows)

    return computed


def _by_duckdb(texts: Mapping[str, object], schema: pa.Schema) -> Assignments:
    values = _sql_values(schema)
    used = {column for name, text in texts.items() for column in columns_used(values.read(name, text), schema)}
    columns = tuple(name for name in schema.names if name in used)
    compute = {name: partial(values.compute, name) for name in texts}
    return Assignments(tuple(texts), columns, schema, compute)


def _sql_values(schema: pa.Schema) -> SqlValues:
    from alluvia.engine.conditions.sql_assignments import SqlValues  # loads DuckDB

    return SqlValues(schema)


def _column(asked: object, schema: pa.Schema) -> str:
    if asked in schema.names:
        return str(asked)
    matches = [name for name in schema.names if fold(name) == fold(str(asked))]
    if not matches:
        near = did_you_mean(str(asked), schema.names)
        raise Invalid(f"column {asked} is not in the table: {near or 'add it with evolve(add=…) first'}")
    return str(matches[0])
