"""UPDATE and DELETE: by a condition on rows alone, or with subqueries, where a query locates the rows first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.condition import columns_used
from alluvia.engine.conditions.sql_assignments import SqlValues, read_value
from alluvia.engine.conditions.sql_condition import read_expression
from alluvia.engine.duck.literals import free_name, quote_name, quote_table
from alluvia.engine.duck.relation import RowPlaces
from alluvia.engine.queries.parse import Node, walk
from alluvia.engine.queries.tokens import masked
from alluvia.operations.merge_query.folding import check_edit
from alluvia.operations.rows.edits import delete_metrics, update_metrics
from alluvia.operations.rows.located_merge import LocatedClause, LocatedMerge, LocatedRows, LocatedRules, kept
from alluvia.operations.rows.row_changes import change_rows
from alluvia.sql.binding import assigned
from alluvia.sql.grammar.cursor import holds_query
from alluvia.sql.grammar.nodes import Delete, Update, reads_more
from alluvia.sql.scope import Done, SqlScope


def update(scope: SqlScope, node: Update) -> Done:
    """Set columns in the rows that match."""
    if reads_more(node):
        return _update_located(scope, node)
    names = scope.columns(node.table, [name for name, _ in node.assignments]).names
    values = {
        name: scope.expression(value, node.alias, names)
        for name, value in assigned(node.assignments, names, node.table)
    }
    where = None if node.where is None else scope.expression(node.where, node.alias, names)
    done = scope.table(node.table).update(values, where)
    return {"rows_updated": done.rows_updated, "version": done.version}


def delete(scope: SqlScope, node: Delete) -> Done:
    """Delete the rows that match."""
    if reads_more(node):
        return _delete_located(scope, node)
    names = scope.columns(node.table).names
    where = "true" if node.where is None else scope.expression(node.where, node.alias, names)
    done = scope.table(node.table).delete(where)
    return {"rows_deleted": done.rows_deleted, "version": done.version}


def _delete_located(scope: SqlScope, node: Delete) -> Done:
    """Delete the rows that a query finds, confined as any other."""
    condition, expression = _condition(scope, node)
    handle = scope.catalog.handle(node.table)
    snapshot = handle.newest()
    check_edit(snapshot, "delete", _columns(expression, node.alias, snapshot))
    rules = LocatedRules("DELETE", [LocatedClause("delete")], {"predicate": masked(condition)}, delete_metrics)
    with _located(scope, node, [], condition) as rows:
        if rows.reads_itself:  # a subquery may count rows that are to be merged
            check_edit(snapshot, "delete", None)
        done = change_rows(handle, "delete", lambda now: LocatedMerge(now, rows, rules))
    return {"rows_deleted": done.rows_deleted, "version": done.version}


def _update_located(scope: SqlScope, node: Update) -> Done:
    """Set columns in the rows that a query finds."""
    condition, _ = _condition(scope, node)
    handle = scope.catalog.handle(node.table)
    snapshot = handle.newest()
    check_edit(snapshot, "update", None)
    names, texts = [], []
    values, columns = SqlValues(snapshot.schema), snapshot.schema.names
    for name, value in assigned(node.assignments, columns, node.table):
        text = scope.expression(value)
        if holds_query(value):
            read_value(name, text, subqueries=True)
        else:
            values.read(name, scope.expression(value, node.alias, columns))
            text = values.typed(name)
        names.append(name)
        texts.append(f"(\n{text}\n)")
    rules = LocatedRules("UPDATE", [LocatedClause("update", names)], {"predicate": masked(condition)}, update_metrics)
    with _located(scope, node, texts, condition) as rows:
        done = change_rows(handle, "update", lambda now: LocatedMerge(now, rows, rules))
    return {"rows_updated": done.rows_updated, "version": done.version}


def _condition(scope: SqlScope, node: Delete | Update) -> tuple[str, Node]:
    condition = "true" if node.where is None else scope.expression(node.where)
    return condition, read_expression(condition, subqueries=True)


def _columns(expression: Node, alias: str, snapshot: Snapshot) -> Sequence[str]:
    """Return the columns that a condition may name, also within its subqueries."""
    if any(each.get("column_names") == [alias] for each in walk(expression)):
        return snapshot.schema.names
    return columns_used(expression, snapshot.schema)


def _located(
    scope: SqlScope, node: Delete | Update, values: Sequence[str], condition: str
) -> AbstractContextManager[LocatedRows]:
    places = places_in(scope.newest(node.table))
    alias = quote_name(node.alias)
    shown = ", ".join([f"{alias}.{places.file}", f"{alias}.{places.position}", "0", *values])
    text = f"FROM {quote_table(node.table)} AS {alias} SELECT {shown} WHERE (\n{condition}\n) ORDER BY 1, 2"
    return located(scope, text, places)


@contextmanager
def located(scope: SqlScope, text: str, places: RowPlaces) -> Iterator[LocatedRows]:
    """Keep what a query finds: for each row the place that it has in the table named first, its clause, and values."""
    with scope.located(text, places) as result, kept(result.scans, result.schema, result) as rows:
        yield rows


def places_in(snapshot: Snapshot) -> RowPlaces:
    """Return names, which no column has, for the places of a table's rows."""
    names = [*snapshot.schema.names, *snapshot.physical_schema.names]
    return RowPlaces(free_name("alluvia_file", names), free_name("alluvia_position", names))
