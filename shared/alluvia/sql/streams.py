"""CREATE STREAM and DROP STREAM."""

from __future__ import annotations

from alluvia.errors import TableNotFound
from alluvia.sql.grammar.nodes import CreateStream, DropStream
from alluvia.sql.scope import Done, SqlScope


def create_stream(scope: SqlScope, node: CreateStream) -> Done:
    """Create a stream of a table's changes."""
    made = scope.lake.create_stream(
        node.name,
        node.source,
        node.version,
        node.timestamp,
        offset=node.offset,
        initial_rows=node.initial_rows,
        appends_only=node.appends_only,
        exist_ok=node.if_not_exists,
    )
    return {"stream": node.name, "source": node.source, "position": made.info().position}


def drop_stream(scope: SqlScope, node: DropStream) -> Done:
    """Drop a stream. Queries that name it fail from then on."""
    try:
        scope.lake.drop_stream(node.name)
    except TableNotFound:
        if not node.if_exists:
            raise
    return {"stream": node.name}
