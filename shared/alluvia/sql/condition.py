"""A condition on one table's rows, as text: what `Table.scan(where=…)` takes.

DuckDB computes which rows match, on a shut database that holds nothing else; Arrow filters, so that types stay as they
are. The condition is parsed once, and `now()` is the same for pruning and for every batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.sql.constants import Constants
from alluvia.sql.duck import confine, connect
from alluvia.sql.failures import Context, translate
from alluvia.sql.operands import Columns
from alluvia.sql.parse import parse
from alluvia.sql.predicates import column_predicate
from alluvia.sql.references import find_references, names_in_use
from alluvia.sql.scopes import Item, Scope
from alluvia.sql.tree import Node, walk, without_locations
from alluvia.table.predicate import Predicate

_WHERE = "SELECT * FROM rows WHERE "
_MASK = "SELECT CAST((\n"
_MASK_END = "\n) AS BOOLEAN) AS mask FROM rows"


@dataclass(frozen=True, slots=True)
class Condition:
    """`predicate` is what pruning understands of it, `columns` the columns that `filter` needs in a batch."""

    predicate: Predicate
    columns: tuple[str, ...]
    _text: str
    _connection: duckdb.DuckDBPyConnection

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which the condition holds. Raises `Invalid` where it fails on a value."""
        shown = batch.select(list(self.columns) or batch.schema.names[:1])
        mask = _mask(self._connection, self._text, pa.Table.from_batches([shown]))
        return batch.filter(mask.combine_chunks())


def condition(text: str, schema: pa.Schema) -> Condition:
    """Read a condition on the columns of `schema`.

    Raises `Invalid`, with DuckDB's message, unless it is one expression over them, without subqueries.
    """
    expression = _expression(text)
    used = {node["column_names"][0].lower() for node in walk(expression) if node.get("class") == "COLUMN_REF"}
    columns = tuple(name for name in schema.names if name.lower() in used)
    connection = connect({"threads": "1", "temp_directory": ""})
    row = connection.execute("BEGIN").execute("SELECT epoch_us(now())").fetchone()
    confine(connection)
    _mask(connection, text, schema.empty_table())
    taken = names_in_use(expression) | {name.lower() for name in schema.names}
    constants = Constants(int(row[0]) if row else 0, taken)
    predicate = column_predicate(expression, _columns(schema), constants)
    return Condition(predicate, columns, text, connection)


def _expression(text: str) -> Node:
    """Return the condition's tree; whatever else the text brings along is refused."""
    root = parse(_WHERE + text).root
    mask = parse(_MASK + text + _MASK_END).root
    plain = {**parse(_WHERE + "true").root, "where_clause": None}
    expression: Node | None = root.get("where_clause")
    same_rest = without_locations({**root, "where_clause": None}) == without_locations(plain)
    if not same_rest or expression is None:
        msg = "where: give one condition, without FROM, ORDER BY or other clauses"
        raise Invalid(msg)
    if without_locations(mask["select_list"][0].get("child")) != without_locations(expression):
        msg = "where: give one condition, without an alias"
        raise Invalid(msg)
    find_references(root)
    if any(node.get("class") in ("SUBQUERY", "WINDOW") for node in walk(expression)):
        msg = "where: a condition looks at one row, without subqueries and window functions: use Lake.sql for those"
        raise Invalid(msg)
    return expression


def _columns(schema: pa.Schema) -> Columns:
    rows = find_references(parse(_WHERE + "true").root).tables[0]
    return Columns(rows, Scope((Item("rows", rows),), frozenset()), {rows: schema})


def _mask(connection: duckdb.DuckDBPyConnection, text: str, rows: pa.Table) -> pa.ChunkedArray:
    connection.register("rows", rows)
    try:
        mask = connection.execute(_MASK + text + _MASK_END).to_arrow_table().column(0)
    except duckdb.Error as error:
        raise translate(error, Context(text, lambda position: position - len(_MASK))) from None
    finally:
        connection.unregister("rows")
    if len(mask) != len(rows):
        msg = "where: a condition looks at one row, without aggregates and unnest: use Lake.sql for those"
        raise Invalid(msg)
    return mask
