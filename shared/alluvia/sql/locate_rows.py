"""UPDATE and DELETE with subqueries: a query finds the rows, confined as any other, and an operation changes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.columnar import masked
from alluvia.engine.conditions.condition import columns_used
from alluvia.engine.conditions.sql_assignments import SqlValues, read_value
from alluvia.engine.conditions.sql_condition import read_expression
from alluvia.engine.duck.literals import free_name, quote_name
from alluvia.engine.duck.relation import RowPlaces
from alluvia.engine.queries.parse import Node, walk
from alluvia.operations.merge_query.folding import check_edit
from alluvia.operations.rows.delete import delete_metrics
from alluvia.operations.rows.located_edit import FoundClause, FoundEdit, FoundRows, FoundRules, kept
from alluvia.operations.rows.row_changes import change_rows
from alluvia.operations.rows.update import update_metrics
from alluvia.sql.binding import assigned
from alluvia.sql.fitting import fit_rows
from alluvia.sql.grammar.nodes import Delete, Update
from alluvia.sql.grammar.tokens import holds_query
from alluvia.sql.scope import Done, SqlScope

VALUES_FROM = 3
"""Before them come the file, the position and the clause."""


def delete(scope: SqlScope, node: Delete) -> Done:
    """Delete the rows that match."""
    condition, expression = _condition(scope, node)
    handle = scope.catalog.handle(node.table)
    snapshot = handle.newest()
    check_edit(snapshot, "delete", _columns(expression, node.alias, snapshot))
    rules = FoundRules("DELETE", [FoundClause("delete")], {"predicate": masked(condition)}, delete_metrics, fit_rows)
    with _found(scope, node, [], condition) as found:
        if found.reads_itself:  # a subquery may count rows that are to be merged
            check_edit(snapshot, "delete", None)
        done = change_rows(handle, "delete", lambda now: FoundEdit(now, found, rules))
    return {"rows_deleted": done.rows_deleted, "version": done.version}


def update(scope: SqlScope, node: Update) -> Done:
    """Set columns in the rows that match."""
    condition, _ = _condition(scope, node)
    handle = scope.catalog.handle(node.table)
    snapshot = handle.newest()
    check_edit(snapshot, "update", None)
    names, texts = [], []
    values = SqlValues(snapshot.schema)
    for name, value in assigned(node.assignments, snapshot.schema.names, node.table):
        text = scope.expression(value)
        if holds_query(value):
            read_value(name, text, subqueries=True)
        else:
            values.read(name, scope.expression(value, node.alias, snapshot.schema.names))
            text = values.typed(name)
        names.append(name)
        texts.append(f"(\n{text}\n)")
    clause = FoundClause("update", names, VALUES_FROM)
    rules = FoundRules("UPDATE", [clause], {"predicate": masked(condition)}, update_metrics, fit_rows)
    with _found(scope, node, texts, condition) as found:
        done = change_rows(handle, "update", lambda now: FoundEdit(now, found, rules))
    return {"rows_updated": done.rows_updated, "version": done.version}


def _condition(scope: SqlScope, node: Delete | Update) -> tuple[str, Node]:
    condition = "true" if node.where is None else scope.expression(node.where)
    return condition, read_expression(condition, subqueries=True)


def _columns(expression: Node, alias: str, snapshot: Snapshot) -> Sequence[str]:
    """Return the columns that a condition may name, also within its subqueries."""
    if any(each.get("column_names") == [alias] for each in walk(expression)):
        return snapshot.schema.names
    return columns_used(expression, snapshot.schema)


def _found(
    scope: SqlScope, node: Delete | Update, values: Sequence[str], condition: str
) -> AbstractContextManager[FoundRows]:
    return found_rows(scope, node.table, node.alias, places_in(scope.newest(node.table)), ["0", *values], condition)


def places_in(snapshot: Snapshot) -> RowPlaces:
    """Return names, which no column has, for the places of a table's rows."""
    names = [*snapshot.schema.names, *snapshot.physical_schema.names]
    return RowPlaces(free_name("alluvia_file", names), free_name("alluvia_position", names))


def quote_table(name: str) -> str:
    """Return a table's name as SQL has it."""
    return ".".join(map(quote_name, name.split("/")))


@contextmanager
def found_rows(
    scope: SqlScope,
    table: str,
    alias: str,
    places: RowPlaces,
    shown: Sequence[str],
    condition: str,
    joined: str = "",
) -> Iterator[FoundRows]:
    """Find the rows of a table, and of what it is `joined` with, for which a condition holds.

    `shown` of each are the number of the clause that says what becomes of it, and values.
    """
    known_as = quote_name(alias)
    columns = ", ".join([f"{known_as}.{places.file}", f"{known_as}.{places.position}", *shown])
    text = f"FROM {quote_table(table)} AS {known_as}{joined} SELECT {columns} WHERE (\n{condition}\n) ORDER BY 1, 2"
    with scope.located(text, places) as result, kept(result.scans, result.schema, result) as found:
        yield found
