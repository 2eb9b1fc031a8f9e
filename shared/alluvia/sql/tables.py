"""ALTER, DROP, RESTORE, OPTIMIZE, VACUUM and UNDROP: from statements to the operations on tables and on a lake."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.access.rights import ADMIN, READ, Rights
from alluvia.delta.properties import CONSTRAINT
from alluvia.delta.schema.names import fold
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import (
    AlluviaError,
    ColumnUsed,
    CommitUnknown,
    Conflict,
    Corrupt,
    Forbidden,
    Invalid,
    TableExists,
    TableNotFound,
    Unavailable,
    Unsupported,
    VersionExpired,
    VersionNotFound,
)
from alluvia.operations.catalog.views import find_view
from alluvia.operations.tables import clone as cloning
from alluvia.sql.grammar.nodes import AlterTable, Attach, Clone, DropTable, External, Maintain, Restore, RestoreLake
from alluvia.sql.scope import Done, SqlScope
from alluvia.table_names import STREAMS

if TYPE_CHECKING:
    from alluvia.api.lake import Lake


def alter_table(scope: SqlScope, node: AlterTable) -> Done:
    """Add, rename and drop columns, set properties, or add and drop constraints."""
    snapshot = scope.newest(node.table)
    if node.constraint is not None:
        return _constrain(scope, node)
    add = node.add
    if add is not None and node.if_not_exists:
        add = pa.schema([field for field in add if not _has(snapshot, field.name)])
        if not len(add):
            return {"table": node.table, "version": snapshot.version}
    for name, value in node.properties.items():
        if value is None and name not in snapshot.properties and not node.if_exists and not name.startswith("alluvia."):
            raise Invalid(f"table {node.table} has no property {name}: UNSET TBLPROPERTIES IF EXISTS allows that")
    drop = [name for name in node.drop if not node.if_exists or _has(snapshot, name)]
    try:
        commit = scope.table(node.table).evolve(
            add, node.properties or None, rename=node.rename, drop=drop, force=node.force
        )
    except ColumnUsed as error:
        raise Invalid(error.said("end the statement with FORCE", named=scope.rights is None)) from error
    named = {"named_in": ", ".join(commit.named_in)} if commit.named_in and scope.rights is None else {}
    return {"table": node.table, "version": commit.version, **named}


def _has(snapshot: Snapshot, name: str) -> bool:
    return fold(name) in map(fold, snapshot.schema.names)


def _constrain(scope: SqlScope, node: AlterTable) -> Done:
    from alluvia.operations.tables import evolve

    assert node.constraint is not None  # noqa: S101 - the caller has seen it
    name, condition = node.constraint
    handle = scope.catalog.handle(node.table)
    if condition is None:
        there = CONSTRAINT + name in handle.newest().properties
        if not there and node.if_exists:
            return {"table": node.table, "version": handle.newest().version}
        commit = evolve.drop_constraint(handle, name)
    else:
        commit = evolve.add_constraint(handle, name, condition.text)
    return {"table": node.table, "version": commit.version}


def drop_table(scope: SqlScope, node: DropTable) -> Done:
    """Drop a table."""
    try:
        scope.creator.drop_table(node.table)
    except TableNotFound:
        if not node.if_exists or find_view(scope.lake.store, node.table) is not None:
            raise
    return {"table": node.table}


def attach(scope: SqlScope, node: Attach) -> Done:
    """Attach a table that is elsewhere, or detach one."""
    if node.uri is None:
        try:
            scope.lake.detach(node.table)
        except TableNotFound:
            if not node.lenient:
                raise
        return {"table": node.table}
    try:
        scope.lake.attach(node.table, node.uri)
    except TableExists:
        if not node.lenient or not scope.has(node.table):  # a view
            raise
    return {"table": node.table, "version": scope.lake.catalog.handle(node.table).newest().version}


def external(scope: SqlScope, node: External) -> Done:
    """Declare an external table, or refresh one."""
    if node.location is None:
        refreshed = scope.lake.refresh_external(node.table)
        return {"table": node.table, "version": refreshed.version, "files": refreshed.files, "bytes": refreshed.bytes}
    try:
        scope.lake.create_external(node.table, node.location, node.kind, node.columns)
    except TableExists:
        if not node.if_not_exists or not scope.has(node.table):  # a view
            raise
    newest = scope.lake.catalog.handle(node.table).newest()
    return {"table": node.table, "version": newest.version, "files": newest.totals[0], "bytes": newest.totals[1]}


def clone(scope: SqlScope, node: Clone) -> Done:
    """Make a table of a version of another."""
    try:
        made = cloning.clone(
            scope.lake.catalog, node.source, node.table, node.version, node.timestamp, node.tag, deep=node.deep
        )
    except TableExists:
        if not node.if_not_exists or not scope.has(node.table):  # a view
            raise
        return {"table": node.table, "version": scope.newest(node.table).version}
    return {
        "table": node.table,
        "version": made.version,
        "source_version": made.source_version,
        "files": made.files,
        "bytes": made.bytes,
    }


def restore(scope: SqlScope, node: Restore) -> Done:
    """Restore a table to a version or a time."""
    done = scope.table(node.table).restore(node.version, node.timestamp, offset=node.offset, tag=node.tag)
    return {"table": node.table, "restored_version": done.restored_version, "version": done.version}


def restore_lake(scope: SqlScope, node: RestoreLake) -> Done:
    """Restore all tables to a time or a tag."""
    from alluvia.operations.transactions.lake_restore import restore_as_asked

    def check(name: str) -> None:
        if scope.rights is not None and (not scope.rights.may(ADMIN, name) or scope.rights.restriction(name)):
            raise Forbidden("RESTORE LAKE needs the scope admin, and all rows and columns, of all that it would change")

    try:
        done = restore_as_asked(
            scope.lake.catalog, node.timestamp, node.offset, node.tag, dry_run=node.dry_run, check=check
        )
    except AlluviaError as error:
        rights = None if isinstance(error, Forbidden) else scope.rights
        if rights is None or not _names_hidden(scope.lake, rights, str(error)):
            raise
        kind = next(each for each in _KINDS if isinstance(error, each))
        raise kind(
            "the lake cannot be restored because of a table that this caller may not read: somebody who may read all "
            "tables has to try it, to see which one and why"
        ) from error
    steps = ", ".join(f"{each.action} {each.name}" for each in done.steps)
    return {"restored_to": done.moment.isoformat(), "changed": len(done.steps), "steps": steps}


_KINDS = (
    VersionExpired, VersionNotFound, TableNotFound, TableExists, Conflict, Unavailable, CommitUnknown, Unsupported,
    Corrupt, Invalid, AlluviaError,
)  # fmt: skip


def _names_hidden(lake: Lake, rights: Rights, message: str) -> bool:
    """Whether a message names a table, or one whose rejects or files it is about, that a caller may not read."""
    from alluvia.operations.transactions.lake_restore import log_names

    names = (name.removeprefix(STREAMS) for name in log_names(lake.catalog))
    return any(re.search(rf"\b{name}\b", message) and not rights.may(READ, name) for name in names)


def maintain(scope: SqlScope, node: Maintain) -> Done:
    """Optimize, vacuum or undrop a table."""
    if node.action == "undrop":
        back = scope.lake.undrop(node.table, node.version)
        return {"table": node.table, "files": back.files, "version": back.version}
    table = scope.lake.table(node.table)
    if node.action == "optimize":
        done = table.optimize(full=node.full, backfill=node.backfill)
        return {
            "table": node.table,
            "files_removed": done.files_removed,
            "files_added": done.files_added,
            "version": done.version,
        }
    retention = None if node.hours is None else timedelta(hours=node.hours)
    freed = table.vacuum(retention, dry_run=node.dry_run, names_max=0)
    return {
        "table": node.table,
        "objects_deleted": sum(freed.counts.values()),
        "bytes_freed": freed.bytes_freed,
        "oldest_version": freed.oldest_version,
    }
