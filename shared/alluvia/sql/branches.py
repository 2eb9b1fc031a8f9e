"""CREATE BRANCH, DROP BRANCH and PUBLISH BRANCH."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.commit.handle import milliseconds
from alluvia.delta.durations import lasting, moment_ago
from alluvia.delta.refs import BRANCH, TAG, find_keeper
from alluvia.errors import BranchConflict, Conflict, Invalid, VersionNotFound
from alluvia.operations.branches.branch_report import published_row
from alluvia.sql.grammar.nodes import CreateBranch, DropBranch, PublishBranch
from alluvia.sql.scope import Done, SqlScope

if TYPE_CHECKING:
    from alluvia.api.lake import Lake

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
    lake.check_whole("CREATE BRANCH")
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
    scope.lake.check_whole("DROP BRANCH")
    if find_keeper(scope.lake.store, None, BRANCH, node.name) is not None or not node.if_exists:
        scope.lake.discard_branch(node.name)
    return {"branch": node.name}


def publish_branch(scope: SqlScope, node: PublishBranch) -> pa.Table:
    """Publish a branch, or say what that would do. Raises `BranchConflict`."""
    scope.lake.check_whole("PUBLISH BRANCH")
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
        return None if node.timestamp is None else _time(milliseconds(node.timestamp))
    tag = find_keeper(lake.store, None, TAG, node.tag)
    if tag is None or not tag.is_live(lake.clock.now_ms()):
        raise VersionNotFound(f"the lake has no tag {node.tag!r:.100}")
    return _time(tag.moment)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _is_there(lake: Lake, name: str) -> bool:
    found = find_keeper(lake.store, None, BRANCH, name)
    return found is not None and found.is_live(lake.clock.now_ms())
