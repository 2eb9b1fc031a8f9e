"""CREATE and DROP of schemas, views, streams, tags and branches, and PUBLISH BRANCH."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.clock import datetime_of
from alluvia.delta.arguments import lasting, milliseconds, moment_ago
from alluvia.delta.refs import BRANCH, TAG, find_keeper
from alluvia.delta.schema.comments import check_comment
from alluvia.engine.queries.pivots import open_pivots
from alluvia.errors import BranchConflict, Conflict, Invalid, TableExists, TableNotFound, VersionNotFound
from alluvia.operations.branches.branch_report import published_row
from alluvia.operations.catalog.catalog import check_whole_lake
from alluvia.operations.catalog.schemas import check_schema, has_schema
from alluvia.operations.catalog.views import find_view, write_view
from alluvia.query.views import reads_view
from alluvia.sql.grammar.nodes import (
    CreateBranch,
    CreateSchema,
    CreateStream,
    CreateTag,
    CreateView,
    DropBranch,
    DropSchema,
    DropStream,
    DropTag,
    DropView,
    PublishBranch,
)
from alluvia.sql.scope import Done, SqlScope
from alluvia.table_names import schema_of

if TYPE_CHECKING:
    from alluvia.api.lake import Lake


def create_schema(scope: SqlScope, node: CreateSchema) -> Done:
    """Create a schema."""
    scope.lake.create_schema(node.name, exist_ok=node.if_not_exists)
    return {"schema": node.name}


def drop_schema(scope: SqlScope, node: DropSchema) -> Done:
    """Drop a schema, with what is in it if the statement says so."""
    lake = scope.lake
    if scope.rights is not None:
        held = [name for name in lake.tables() if schema_of(name) == node.name]
        scope.rights.check_sees_all("DROP SCHEMA", held)
    try:
        lake.drop_schema(node.name, cascade=node.cascade)
    except TableNotFound:
        if not node.if_exists or has_schema(lake.store, node.name):
            raise
    return {"schema": node.name}


def create_view(scope: SqlScope, node: CreateView) -> Done:
    """Keep a SELECT under a name. It must run now, over tables and views that are there."""
    lake = scope.lake
    if node.name in lake:
        raise TableExists(f"there is a table {node.name}: choose another name for the view")
    if lake.catalog.find_stream(node.name) is not None:
        raise TableExists(f"there is a stream {node.name}: choose another name for the view")
    known = find_view(lake.store, node.name)
    if known is not None and not node.or_replace:
        if node.if_not_exists:
            return {"view": node.name, "version": known.version}
        raise TableExists(f"view {node.name} already exists: CREATE OR REPLACE VIEW, or choose another name")
    if known is None:
        check_schema(lake.store, node.name)
    query = node.query.text
    if pivots := open_pivots(query):
        raise Invalid(f"CREATE VIEW: a PIVOT in a view must name its values: PIVOT … ON {pivots[0].expression} IN (…)")
    with scope.query(node.query):  # which says what is wrong with it
        pass
    if known is not None and reads_view(lake.catalog, query, node.name):
        raise Invalid(f"view {node.name} cannot read itself, also not by way of other views")
    view = write_view(lake.store, lake.clock, node.name, query, known=known, comment=check_comment(node.comment))
    return {"view": view.name, "version": view.version}


def drop_view(scope: SqlScope, node: DropView) -> Done:
    """Drop a view. Queries that name it fail from then on, also views that do."""
    lake = scope.lake
    known = find_view(lake.store, node.name)
    if known is None:
        if node.name in lake:
            raise TableNotFound(f"{node.name} is a table: DROP TABLE {node.name} drops it")
        if node.if_exists:
            return {"view": node.name, "version": None}
        raise TableNotFound(f"the lake has no view {node.name!r}")
    view = write_view(lake.store, lake.clock, node.name, "", known=known)
    return {"view": view.name, "version": view.version}


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
        (scope.lake if node.table is None else scope.lake.table(node.table)).drop_tag(node.name)
    except VersionNotFound:
        if not node.if_exists:
            raise
    return {"tag": node.name, "table": node.table}


PUBLISHED = pa.schema(
    [
        ("table", pa.string()),
        ("change", pa.string()),
        ("how", pa.string()),
        ("version", pa.int64()),
        ("files_added", pa.int64()),
        ("files_removed", pa.int64()),
        ("conflict", pa.string()),
    ]
)
"""The columns of what PUBLISH BRANCH answers: a row for each table that the branch has changed."""


def create_branch(scope: SqlScope, node: CreateBranch) -> Done:
    """Cut a branch from the lake."""
    lake = scope.lake
    check_whole_lake(lake.store, "CREATE BRANCH")
    expires = None if node.retain is None else lasting(node.retain, "RETAIN")
    if not (node.if_not_exists and _is_there(lake, node.name)):
        try:
            lake.branch(node.name, _begin(lake, node), expires=expires)
        except Invalid:
            if not (node.if_not_exists and _is_there(lake, node.name)):  # another caller has cut it meanwhile
                raise
    return {"branch": node.name}


def drop_branch(scope: SqlScope, node: DropBranch) -> Done:
    """Discard a branch, with all that was written on it and not published."""
    check_whole_lake(scope.lake.store, "DROP BRANCH")
    if find_keeper(scope.lake.store, None, BRANCH, node.name) is not None or not node.if_exists:
        scope.lake.drop_branch(node.name)
    return {"branch": node.name}


def publish_branch(scope: SqlScope, node: PublishBranch) -> pa.Table:
    """Publish a branch, or say what that would do. Raises `BranchConflict`."""
    check_whole_lake(scope.lake.store, "PUBLISH BRANCH")
    branch = scope.lake.on_branch(node.name)
    try:
        report = branch.publish(isolation=node.isolation, dry_run=node.dry_run)
    except Conflict as error:
        raise BranchConflict(f"branch {node.name} cannot be published: {error}") from error
    return pa.Table.from_pylist(list(map(published_row, report.tables)), PUBLISHED)


def _begin(lake: Lake, node: CreateBranch) -> datetime | None:
    if node.offset is not None:
        return moment_ago(node.offset, lake.clock)
    if node.tag is None:
        return None if node.timestamp is None else datetime_of(milliseconds(node.timestamp))
    tag = find_keeper(lake.store, None, TAG, node.tag)
    if tag is None or not tag.is_live(lake.clock.now_ms()):
        raise VersionNotFound(f"the lake has no tag {node.tag!r:.100}")
    return datetime_of(tag.moment)


def _is_there(lake: Lake, name: str) -> bool:
    keeper = find_keeper(lake.store, None, BRANCH, name)
    return keeper is not None and keeper.is_live(lake.clock.now_ms())
