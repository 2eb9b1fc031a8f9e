"""UPDATE and DELETE with subqueries: a query finds the rows, confined as any other, and an operation changes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from alluvia.duck.relation import RowPlaces, free_name, quote_name
from alluvia.expressions.condition import columns_used
from alluvia.expressions.masking import masked
from alluvia.expressions.sql_condition import read_expression
from alluvia.expressions.tree import walk
from alluvia.operations.delete import delete_metrics
from alluvia.operations.folding import check_edit
from alluvia.operations.found_rows import FoundEdit, FoundRows, kept
from alluvia.operations.row_changes import change_rows
from alluvia.sql.nodes import Delete
from alluvia.sql.scope import Done, SqlScope
from alluvia.sql.tokens import Sql
from alluvia.table.snapshot import Snapshot


def delete(scope: SqlScope, node: Delete, where: Sql) -> Done:
    """Delete the rows that match."""
    handle, condition = scope.catalog.handle(node.table), scope.expression(where)
    snapshot = handle.newest()
    check_edit(snapshot, "delete", _columns(condition, node.alias, snapshot))
    with _found(scope, node.table, node.alias, [], condition) as found:
        if found.reads_itself:  # a subquery may count rows that are to be merged
            check_edit(snapshot, "delete", None)
        predicate = masked(condition)
        done = change_rows(handle, "delete", lambda now: FoundEdit(now, found, "DELETE", predicate, delete_metrics))
    return {"rows_deleted": done.rows_deleted, "version": done.version}


def _columns(condition: str, alias: str, snapshot: Snapshot) -> Sequence[str]:
    """Return the columns that a condition may name, also within its subqueries."""
    expression = read_expression(condition, subqueries=True)
    if any(each.get("column_names") == [alias] for each in walk(expression)):
        return snapshot.schema.names
    return columns_used(expression, snapshot.schema)


@contextmanager
def _found(scope: SqlScope, table: str, alias: str, values: Sequence[str], condition: str) -> Iterator[FoundRows]:
    """Find the rows of a table for which a condition holds, with some values, in the order of files and positions."""
    snapshot = scope.newest(table)
    names = [*snapshot.schema.names, *snapshot.physical_schema.names]
    places = RowPlaces(free_name("alluvia_file", names), free_name("alluvia_position", names))
    name, known_as = ".".join(map(quote_name, table.split("/"))), quote_name(alias)
    shown = ", ".join([f"{known_as}.{places.file}", f"{known_as}.{places.position}", *values])
    text = f"FROM {name} AS {known_as} SELECT {shown} WHERE (\n{condition}\n) ORDER BY 1, 2"
    with scope.located(text, places) as result, kept(result.scans, result.schema, result) as found:
        yield found
