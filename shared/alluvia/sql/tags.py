"""CREATE TAG and DROP TAG."""

from __future__ import annotations

from alluvia.errors import VersionNotFound
from alluvia.sql.grammar.nodes import CreateTag, DropTag
from alluvia.sql.scope import Done, SqlScope


def create_tag(scope: SqlScope, node: CreateTag) -> Done:
    """Tag a version of a table, or all tables of the lake."""
    lake = scope.lake
    if node.table is None:
        lake.tag(node.name, node.timestamp, expires=node.retain, replace=node.or_replace)
        return {"tag": node.name, "table": None}
    table = lake.table(node.table)
    made = table.tag(node.name, node.version, node.timestamp, expires=node.retain, replace=node.or_replace)
    return {"tag": node.name, "table": node.table, "version": made.version}


def drop_tag(scope: SqlScope, node: DropTag) -> Done:
    """Delete a tag."""
    try:
        (scope.lake if node.table is None else scope.lake.table(node.table)).untag(node.name)
    except VersionNotFound:
        if not node.if_exists:
            raise
    return {"tag": node.name, "table": node.table}
