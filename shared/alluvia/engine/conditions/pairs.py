"""Conditions and values over a table's row and the source's row that pairs with it: what MERGE and upsert take.

Each row is known by its alias, `t.a`, and a column that only one of them has by its own name as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa

from alluvia.delta.schema.caller_rows import conform
from alluvia.delta.schema.names import fold
from alluvia.engine.conditions.columnar import definite
from alluvia.engine.conditions.condition import Condition, condition
from alluvia.engine.queries.parse import Node, walk
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass

Columns = tuple[str, ...]
Rows = Mapping[str, pa.Table]
"""Rows of each side, by its alias: those with one number are a pair. They need only the columns that are used."""


@dataclass(frozen=True, slots=True)
class Side:
    """Rows that an expression can name: those of the table, or those of the source.

    Without an alias, their columns go by their own names alone.
    """

    alias: str
    schema: pa.Schema

    def column(self, name: str) -> str | None:
        """Return the column that a name means; None if there is none."""
        return _by_folded_name(self.schema.names).get(fold(name))


class Pairs:
    """The names of expressions over some sides: rows of the table, of the source, or pairs of both.

    `bare` are the sides whose columns need no alias where their names are clear, by default all.
    """

    def __init__(self, sides: Sequence[Side], bare: Sequence[Side] | None = None) -> None:
        self.sides = tuple(sides)
        aliases = [fold(side.alias) for side in sides]
        if len(set(aliases)) < len(aliases):
            raise Invalid(f"the table and the source are both called {sides[0].alias}: give one another name with AS")
        shown = self.sides if bare is None else bare
        self._columns = {side.alias: _by_folded_name(side.schema.names) for side in sides}
        counts = Counter(fold(name) for side in shown for name in side.schema.names)
        self._bare = [
            (side, field)
            for side in shown
            for field in side.schema
            if counts[fold(field.name)] == 1 and fold(field.name) not in aliases
        ]
        self._bare_columns = {fold(field.name): (side, field.name) for side, field in self._bare}
        structs = [pa.field(side.alias, pa.struct(list(side.schema))) for side in sides if side.alias]
        self.schema = pa.schema([*structs, *(field.with_nullable(True) for _, field in self._bare)])

    def resolve(self, names: Sequence[str]) -> tuple[Side, str] | None:
        """Return what a name in an expression means: a side, and a column of it; None if it is not a plain column."""
        if len(names) == 1:
            return self._bare_columns.get(fold(names[0]))
        side = next((side for side in self.sides if fold(side.alias) == fold(names[0])), None)
        column = None if side is None or len(names) != 2 else self._columns[side.alias].get(fold(names[1]))
        return None if side is None or column is None else (side, column)

    def used(self, expression: Node) -> Mapping[str, Columns]:
        """Return the columns that an expression looks at, by the alias of their side."""
        by_side: dict[str, set[str]] = {side.alias: set() for side in self.sides}
        for node in walk(expression):
            if node.get("class") != "COLUMN_REF":
                continue
            names = node["column_names"]
            for bare in filter(None, (self.resolve([name]) for name in names[:2])):  # as `columns_used` counts them
                by_side[bare[0].alias].add(bare[1])
            for side in self.sides:
                if side.alias and fold(side.alias) == fold(names[0]):
                    column = self._columns[side.alias].get(fold(names[1])) if len(names) > 1 else None
                    by_side[side.alias].update(side.schema.names if column is None else [column])
                elif side.alias and fold(side.alias) in map(fold, names[1:2]):  # a field, but `columns_used` counts it
                    by_side[side.alias].update(side.schema.names[:1])
        return {side.alias: tuple(n for n in side.schema.names if n in by_side[side.alias]) for side in self.sides}

    def batch(self, used: Mapping[str, Columns], rows: Rows, count: int) -> pa.RecordBatch:
        """Return what an expression is computed on: the columns that it uses of `count` pairs."""
        arrays: dict[str, pa.Array] = {}
        for side in self.sides:
            if side.alias and used[side.alias]:
                columns = [_array(rows[side.alias][name]) for name in used[side.alias]]
                arrays[side.alias] = pa.StructArray.from_arrays(columns, names=list(used[side.alias]))
        for side, field in self._bare:
            if field.name in used[side.alias]:
                arrays[field.name] = _array(rows[side.alias][field.name])
        if not arrays:  # an expression of constants alone still has a value for each pair
            field = self.schema.field(0)
            arrays[field.name] = pa.nulls(count, field.type)
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _by_folded_name(names: Sequence[str]) -> dict[str, str]:
    """Return names by their folded form; the first one if several have the same form."""
    return {fold(name): name for name in reversed(names)}


class PairTest:
    """A condition on pairs of rows, or on rows of one side."""

    def __init__(self, text: str, pairs: Pairs) -> None:
        self._pairs = pairs
        self._condition: Condition = condition(text, pairs.schema)
        self.used = pairs.used(self._condition.expression)

    def check(self) -> None:
        """Raise `Invalid` where the condition does not fit the columns."""
        self.mask({side.alias: side.schema.empty_table() for side in self._pairs.sides}, 0)

    def mask(self, rows: Rows, count: int) -> pa.BooleanArray:
        """Return for each of `count` pairs whether the condition holds. Raises `Invalid` where it fails."""
        return definite(self._condition.mask(self._pairs.batch(self.used, rows, count)))


class PairValues:
    """New values for columns of a table, from pairs of rows or rows of one side."""

    def __init__(self, given: Mapping[str, str], pairs: Pairs, schema: pa.Schema) -> None:
        from alluvia.engine.conditions.sql_assignments import SqlValues  # loads DuckDB

        self._pairs = pairs
        self._schema = pa.schema([schema.field(name) for name in given])
        self._values = SqlValues(pairs.schema, self._schema)
        self._used = {name: pairs.used(self._values.read(name, text)) for name, text in given.items()}

    @property
    def names(self) -> Columns:
        """Return the columns that get values."""
        return tuple(self._schema.names)

    def typed(self, name: str) -> str:
        """Return the expression for a column, with a cast where it takes the column's type."""
        return self._values.typed(name)

    @property
    def used(self) -> Mapping[str, Columns]:
        """Return the columns that the values are computed from, by the alias of their side."""
        found = {}
        for side in self._pairs.sides:
            names = {name for used in self._used.values() for name in used[side.alias]}
            found[side.alias] = tuple(name for name in side.schema.names if name in names)
        return found

    def compute(self, rows: Rows, count: int) -> pa.Table:
        """Return the values for `count` pairs, in the table's types. Raises `Invalid`, naming the column."""
        arrays = [
            self._values.compute(name, pa.Table.from_batches([self._pairs.batch(used, rows, count)]))
            for name, used in self._used.items()
        ]
        return conform(pa.Table.from_arrays(arrays, names=self._schema.names), self._schema)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
