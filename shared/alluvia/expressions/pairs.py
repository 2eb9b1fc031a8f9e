"""A condition on a table's row and the matching new row, as text: the argument of `Table.upsert`.

The table's columns go by their names, the new row's by `new.<column>`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.expressions.condition import Condition, condition
from alluvia.table.schema.names import fold

NEW = "new"


@dataclass(frozen=True, slots=True)
class PairCondition:
    """`columns` are those of the table that `mask` needs, `new_columns` those of the new rows."""

    columns: tuple[str, ...]
    new_columns: tuple[str, ...]
    _condition: Condition

    def mask(self, rows: pa.Table, new: pa.Table) -> pa.BooleanArray:
        """Return for each pair of rows whether the condition holds; null where it is null. Raises `Invalid`."""
        arrays = [_array(rows[name]) for name in self.columns]
        shown = list(self.new_columns) or new.column_names[:1]
        struct = pa.StructArray.from_arrays([_array(new[name]) for name in shown], names=shown)
        batch = pa.RecordBatch.from_arrays([*arrays, struct], names=[*self.columns, NEW])
        return self._condition.mask(batch)


def pair_condition(text: str, schema: pa.Schema, new: pa.Schema) -> PairCondition:
    """Read a condition on the columns of `schema`, and on those of `new` as `new.<column>`. Raises `Invalid`."""
    if NEW in (fold(name) for name in schema.names):
        msg = f"the table has a column {NEW!r}, so a condition cannot refer to the new row's columns: leave it out"
        raise Invalid(msg)
    struct = pa.struct(list(new))
    parsed = condition(text, pa.schema([*schema, pa.field(NEW, struct)]))
    return PairCondition(tuple(name for name in parsed.columns if name != NEW), parsed.fields_of(NEW, new), parsed)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
