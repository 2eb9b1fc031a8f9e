"""A condition on one table's rows, as text: what `Table.scan(where=…)` takes; or on pairs, as in `Table.upsert`.

DuckDB computes which rows match, on a confined database without other data. Arrow does the filtering, so that types do
not change. The condition is parsed once, and `now()` is the same for pruning and for every batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

import duckdb
import pyarrow as pa

from alluvia.duck.connection import evaluator
from alluvia.duck.failures import Context, details_of, translate
from alluvia.duck.relation import free_name
from alluvia.errors import Invalid
from alluvia.expressions.complements import complement
from alluvia.expressions.constants import Constants
from alluvia.expressions.functions import UNNESTING
from alluvia.expressions.operands import ColumnFinder
from alluvia.expressions.parse import parse
from alluvia.expressions.predicates import column_predicate
from alluvia.expressions.references import Reference, find_references, names_in_use
from alluvia.expressions.scopes import Scope, table_item
from alluvia.expressions.tree import Node, is_constant, walk, without_locations
from alluvia.table.arguments import check_text
from alluvia.table.schema.names import fold
from alluvia.table.skipping.predicate import Predicate

_ROWS = "SELECT * FROM rows"
_WHERE = f"{_ROWS} WHERE "
_MASK = "SELECT CAST((\n"
_MASK_END = "\n) AS BOOLEAN) AS mask FROM rows"


@dataclass(frozen=True, slots=True)
class Condition:
    """`predicate` is what pruning understands of it, `columns` the columns that `mask` and `filter` need in a batch.

    `complement` holds for every row that the condition does not hold for, and may hold for more.
    """

    predicate: Predicate
    complement: Predicate
    columns: tuple[str, ...]
    _text: str
    _connection: duckdb.DuckDBPyConnection
    _expression: Node

    def fields_of(self, struct: str, schema: pa.Schema) -> tuple[str, ...]:
        """Return the fields of a struct column that the condition looks at, given all of them; all where it is bare."""
        references = [node["column_names"] for node in walk(self._expression) if node.get("class") == "COLUMN_REF"]
        named = [names[1:2] for names in references if fold(names[0]) == struct]
        if any(not names for names in named):
            return tuple(schema.names)
        used = {fold(names[0]) for names in named}
        return tuple(name for name in schema.names if fold(name) in used)

    @property
    def words(self) -> frozenset[str]:
        """Return the texts and numbers in the condition, as text."""
        values = (node["value"] for node in walk(self._expression) if is_constant(node))
        known = (value["value"] for value in values if not value["is_null"])
        return frozenset(str(value) for value in known if isinstance(value, (str, int, float)) and str(value))

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which the condition holds. Raises `Invalid` where it fails on a value."""
        return batch.filter(self.mask(batch))

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether the condition holds; null where it is null. Raises `Invalid`, as `filter`."""
        return self._mask(self._text, batch)

    def lenient_mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return what `mask` does, and null for a row on whose values the condition fails."""
        return self._mask(f"TRY({self._text}\n)", batch)

    def _mask(self, text: str, batch: pa.RecordBatch) -> pa.BooleanArray:
        shown = batch.select(list(self.columns) or batch.schema.names[:1])
        return _mask(self._connection, text, pa.Table.from_batches([shown])).combine_chunks().cast(pa.bool_())


def condition(text: str, schema: pa.Schema) -> Condition:
    """Read a condition on the columns of `schema`.

    Raises `Invalid`, with DuckDB's message, unless it is one expression over them, without subqueries.
    """
    expression = _expression(text)
    columns = columns_used(expression, schema)
    connection = evaluator()
    row = connection.execute("BEGIN").execute("SELECT epoch_us(now())").fetchone()
    # Two rows show whether the condition gives one value a row.
    _mask(connection, text, pa.table([pa.nulls(2, field.type) for field in schema], schema.names))
    taken = names_in_use(expression) | {fold(name) for name in schema.names}
    constants = Constants(int(row[0]) if row else 0, taken)
    known = _columns(schema)
    predicate = constants.together(lambda: column_predicate(expression, known, constants))
    excluded = complement(expression, known, constants)
    return Condition(predicate, excluded, columns, text, connection, expression)


def _expression(text: str) -> Node:
    """Return the condition's tree; whatever else the text brings along is refused."""
    check_text("where", text, "id = 1")
    root = parse(_WHERE + text).root
    mask = parse(_MASK + text + _MASK_END).root
    expression: Node | None = root.get("where_clause")
    if without_locations({**root, "where_clause": None}) != _rest() or expression is None:
        raise Invalid("where: give one condition, without FROM, ORDER BY or other clauses")
    if without_locations(mask["select_list"][0].get("child")) != without_locations(expression):
        raise Invalid("where: give one condition, without an alias")
    find_references(root)
    if looks_beyond_its_row(expression):
        raise Invalid("where: a condition cannot use subqueries or window functions: use Lake.sql for those")
    return expression


@cache
def _rest() -> Node:
    """Return the tree of a query without its condition, and without positions."""
    rest: Node = without_locations({**parse(_WHERE + "true").root, "where_clause": None})
    return rest


def looks_beyond_its_row(expression: Node) -> bool:
    """Whether an expression needs more than one row, or gives more or less than one value for it."""
    return any(
        node.get("class") in ("SUBQUERY", "WINDOW", "STAR")
        or (node.get("class") == "FUNCTION" and fold(node["function_name"]) in UNNESTING)
        for node in walk(expression)
    )


def columns_used(expression: Node, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that an expression on the relation `rows` names, in the schema's order."""
    references = [node["column_names"] for node in walk(expression) if node.get("class") == "COLUMN_REF"]
    used = {fold(name) for names in references for name in names[:2]}
    return tuple(name for name in schema.names if fold(name) in used)


def _columns(schema: pa.Schema) -> ColumnFinder:
    rows = _rows(known_as(schema.names))
    return ColumnFinder(rows, Scope((table_item(rows, schema),), frozenset()), schema)


@lru_cache(maxsize=16)
def _rows(known_as: str) -> Reference:
    return find_references(parse(_ROWS + known_as).root).tables[0]


def known_as(columns: Iterable[str]) -> str:
    """Return what makes the relation `rows` go by a name that no column has, so that `rows.x` means the column's."""
    return f" AS {free_name('rows', columns)}"


def _mask(connection: duckdb.DuckDBPyConnection, text: str, rows: pa.Table) -> pa.ChunkedArray:
    connection.register("rows", rows.to_reader())  # a table would come by way of a dataset, in twice the time
    try:
        query = _MASK + text + _MASK_END + known_as(rows.column_names)
        mask = connection.execute(query).to_arrow_table().column(0)
    except duckdb.Error as error:
        raise translate(details_of(error), Context(text, lambda position: position - len(_MASK))) from None
    finally:
        connection.unregister("rows")
    if len(mask) != len(rows):
        raise Invalid("where: a condition cannot use aggregates or unnest: use Lake.sql for those")
    return mask


NEW = "new"


@dataclass(frozen=True, slots=True)
class PairCondition:
    """A condition on a table's row and a new row: the columns of each that `mask` needs."""

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
