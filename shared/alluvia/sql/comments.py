"""COMMENT ON a table, a view, or a column of either."""

from __future__ import annotations

from alluvia.delta.schema.comments import check_comment
from alluvia.engine.duck.literals import quote_table
from alluvia.errors import Invalid, TableNotFound
from alluvia.operations.catalog.views import View, find_view, write_view
from alluvia.operations.tables.column_changes import found_column
from alluvia.sql.grammar.cursor import Sql
from alluvia.sql.grammar.nodes import Comment
from alluvia.sql.scope import Done, SqlScope


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
    commit = scope.table(node.name).set_comment(node.text, node.column)
    return {"table": node.name, "version": commit.version}


def _of_view(scope: SqlScope, node: Comment, view: View) -> Done:
    if scope.transaction is not None:
        raise Invalid(
            f"{node.name} is a view, and COMMENT on one cannot be part of a transaction: send it in a text of its own"
        )
    text, columns = check_comment(node.text), dict(view.column_comments)
    if node.column is None:
        changed = text, columns
    else:
        with scope.query(Sql(f"FROM {quote_table(node.name)} LIMIT 0")) as result:
            column = found_column(result.schema, node.column, "comment")
        columns.pop(column, None)
        changed = view.comment, columns if text is None else {**columns, column: text}
    if changed == (view.comment, view.column_comments):
        return {"view": view.name, "version": view.version}
    store, clock = scope.lake.store, scope.lake.clock
    written = write_view(
        store, clock, view.name, view.query, known=view, comment=changed[0], column_comments=changed[1]
    )
    return {"view": view.name, "version": written.version}
