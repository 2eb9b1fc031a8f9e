"""COMMENT ON a table, a view, or a column of either."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alluvia.delta.schema.comments import check_comment
from alluvia.engine.duck.literals import quote_table
from alluvia.errors import Invalid, TableNotFound
from alluvia.operations.catalog.views import View, find_view, write_view
from alluvia.operations.tables.column_changes import found_column
from alluvia.sql.grammar.cursor import Sql
from alluvia.sql.grammar.nodes import Comment, Node
from alluvia.sql.scope import Done, SqlScope

if TYPE_CHECKING:
    from alluvia.api.lake import Lake


def comment(scope: SqlScope, node: Comment) -> Done:
    """Give a table, a view, or a column a comment, or remove it."""
    view = None if scope.has(node.name) else find_view(scope.lake.store, node.name)
    found = "table" if view is None else "view"
    if node.kind not in (found, "column") and (view is not None or scope.has(node.name)):
        raise Invalid(f"{node.name} is a {found}: write COMMENT ON {found.upper()} {node.name}")
    if view is not None:
        return _of_view(scope, node, view)
    if node.kind == "view":
        raise TableNotFound(f"the lake has no view {node.name!r}")
    _check_whole_column(scope, node)
    commit = scope.table(node.name).set_comment(node.text, node.column)
    return {"table": node.name, "version": commit.version}


def comments_on_view(lake: Lake, node: Node) -> bool:
    """Whether a statement is a comment on a column of a view: only the lake knows. One LIST for such a comment."""
    return isinstance(node, Comment) and node.kind == "column" and find_view(lake.store, node.name) is not None


def _check_whole_column(scope: SqlScope, node: Comment) -> None:
    """Raise `Invalid` for a field in a column, whose path looks like a schema, a table and a column."""
    table, dot, _ = node.name.partition(".")
    if node.column is None or not dot or scope.has(node.name):
        return
    kind = "table" if scope.has(table) else None if find_view(scope.lake.store, table) is None else "view"
    if kind is not None:
        place = f"{node.name}.{node.column}"
        raise Invalid(f"{place}: {table} is a {kind}: name a whole column of it, and no field in one")


def _of_view(scope: SqlScope, node: Comment, view: View) -> Done:
    if scope.transaction is not None:
        raise Invalid(
            f"{node.name} is a view, and COMMENT on one cannot be part of a transaction: send it without BEGIN, in a "
            "text of its own or of definitions alone"
        )
    of = f"column {node.column}" if node.column is not None else ""
    text, columns = check_comment(node.text, of), dict(view.column_comments)
    if node.column is None:
        changed = text, columns
    else:
        with scope.query(Sql(f"FROM {quote_table(node.name)} LIMIT 0")) as result:
            column = found_column(result.schema, node.column, "comment", of=f"the view {view.name}")
        columns.pop(column, None)
        changed = view.comment, columns if text is None else {**columns, column: text}
    if changed == (view.comment, view.column_comments):
        return {"view": view.name, "version": view.version}
    store, clock = scope.lake.store, scope.lake.clock
    written = write_view(
        store, clock, view.name, view.query, known=view, comment=changed[0], column_comments=changed[1]
    )
    return {"view": view.name, "version": written.version}
