"""CREATE VIEW and DROP VIEW."""

from __future__ import annotations

from alluvia.errors import Invalid, TableExists, TableNotFound
from alluvia.operations.catalog.views import find_view, write_view
from alluvia.query.views import reads_view
from alluvia.sql.grammar.nodes import CreateView, DropView
from alluvia.sql.scope import Done, SqlScope


def create_view(scope: SqlScope, node: CreateView) -> Done:
    """Keep a SELECT under a name. It must run now, over tables and views that are there."""
    lake = scope.lake
    if node.name in lake:
        raise TableExists(f"there is a table {node.name}: choose another name for the view")
    known = find_view(lake.store, node.name)
    if known is not None and not node.or_replace:
        if node.if_not_exists:
            return {"view": node.name, "version": known.version}
        raise TableExists(f"view {node.name} already exists: CREATE OR REPLACE VIEW, or choose another name")
    query = node.query.text
    with scope.query(node.query):  # which says what is wrong with it
        pass
    if known is not None and reads_view(lake, query, node.name):
        raise Invalid(f"view {node.name} cannot read itself, also not by way of other views")
    view = write_view(lake.store, lake.clock, node.name, query, known=known)
    return {"view": view.name, "version": view.version}


def drop_view(scope: SqlScope, node: DropView) -> Done:
    """Drop a view. Queries that name it fail from then on, also views that do."""
    lake = scope.lake
    known = find_view(lake.store, node.name)
    if known is None:
        if node.if_exists:
            return {"view": node.name, "version": None}
        what = f"{node.name} is a table: DROP TABLE it" if node.name in lake else f"the lake has no view {node.name!r}"
        raise TableNotFound(what)
    view = write_view(lake.store, lake.clock, node.name, "", known=known)
    return {"view": view.name, "version": view.version}
