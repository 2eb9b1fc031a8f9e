"""Branches over HTTP: list, cut, diff, publish and discard them, below `/v1/branches`. Loaded when one is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from alluvia.access.rights import READ
from alluvia.api.lake_branch import Branch
from alluvia.clock import datetime_of
from alluvia.delta.arguments import lasting
from alluvia.delta.refs import BRANCH, Keeper, find_keeper, list_keepers
from alluvia.errors import BranchConflict, Conflict, cut
from alluvia.operations.branches.branch_changes import BranchedTable, branched_tables
from alluvia.operations.branches.branch_diff import diff_table, files_read
from alluvia.operations.branches.branch_report import diff_row, published_row
from alluvia.progress import reporting_to
from alluvia.query.limits import QueryLimits, check_bytes
from alluvia.serverless.http import Response

from .answering import BranchNotFound, Caller, facts

_COUNTS = ("rows_added", "rows_removed", "rows_changed", "files_added", "files_removed")
_DETAILS = ("columns_added", "columns_removed", "columns_changed", "properties")


def list_branches(caller: Caller) -> Response:
    """List the branches."""
    now_ms = caller.lake.clock.now_ms()
    return facts({"branches": [_facts(each, now_ms) for each in list_keepers(caller.lake.store, None, BRANCH)]})


def cut_branch(caller: Caller, *, name: str, at: str | None, expires: str | None) -> Response:
    """Cut a branch: 201."""
    caller.lake.branch(name, at, expires=None if expires is None else lasting(expires, "expires"))
    made = _found(caller, name)
    return facts(_facts(made, caller.lake.clock.now_ms()), 201, Location=f"/v1/branches/{made.name}")


def show_branch(caller: Caller, name: str) -> Response:
    """Describe a branch."""
    return facts(_facts(_found(caller, name), caller.lake.clock.now_ms()))


def discard_branch(caller: Caller, name: str) -> Response:
    """Discard a branch."""
    _found(caller, name)
    caller.lake.drop_branch(name)
    return facts({"name": name, "discarded": True})


def publish_branch(caller: Caller, name: str, *, isolation: str, dry_run: bool) -> Response:
    """Publish a branch, or show the changes that it would make. Raises `BranchConflict`."""
    branch = _opened(caller, name)
    try:
        report = branch.publish(isolation=isolation, dry_run=dry_run)
    except Conflict as error:
        raise BranchConflict(f"branch {name} cannot be published: {error}") from error
    rows = list(map(published_row, report.tables))
    return facts({"name": name, "tables": rows, "rollups": report.rollups, "dry_run": report.dry_run})


def diff_branch(caller: Caller, name: str, *, table: str | None, key: str | None) -> Response:
    """Show the changes of a branch in the tables that the caller may read.

    For a table that the caller sees in part, everything that depends on rows and columns is null.
    """
    table = None if table is None else table.replace(".", "/")
    branch = _opened(caller, name)
    if table is not None and caller.rights is not None:
        caller.rights.check(READ, table)
    tables = [each for each in branched_tables(branch.catalog, branch.branch_store) if table in (None, each.name)]
    keys = None if key is None else [column.strip() for column in key.split(",")]
    return facts({"name": name, "tables": list(_differences(caller, branch, tables, keys))})


def _differences(
    caller: Caller, branch: Branch, tables: Iterable[BranchedTable], key: list[str] | None
) -> Iterable[Mapping[str, Any]]:
    rights, limits = caller.rights, caller.settings.limits.begun()
    seen = [each for each in tables if each.kind is not None and (rights is None or rights.may(READ, each.name))]
    whole = [each for each in seen if rights is None or not rights.restriction(each.name)]
    check_bytes(limits, rights, [(each.name, sum(file.size for file in files_read(each))) for each in whole])
    with reporting_to(_checking(limits)):
        for each in seen:
            limits.check()
            difference = diff_table(each, branch.store, key) if each in whole else None
            if difference is not None:
                yield diff_row(difference)
            else:
                known = {
                    "table": each.name,
                    "change": each.kind,
                    "base_version": None if each.base is None else each.base.version,
                    "version": each.tip.version,
                }
                yield known | dict.fromkeys((*_COUNTS, *_DETAILS))


def _checking(limits: QueryLimits) -> Any:
    return lambda what, done, total, unit="": limits.check()  # noqa: ARG005 - what a listener is told


def _opened(caller: Caller, name: str) -> Branch:
    _found(caller, name)
    return caller.lake.on_branch(name)


def _found(caller: Caller, name: str) -> Keeper:
    keeper = find_keeper(caller.lake.store, None, BRANCH, name)
    if keeper is None:
        raise BranchNotFound(f"there is no branch {cut(name, 100)!r}")
    return keeper


def _facts(keeper: Keeper, now_ms: int) -> dict[str, Any]:
    return {
        "name": keeper.name,
        "moment": _time(keeper.moment),
        "created": _time(keeper.created_ms),
        "expires": None if keeper.expires_ms is None else _time(keeper.expires_ms),
        "expired": not keeper.is_live(now_ms),
    }


def _time(ms: int) -> str:
    return datetime_of(ms).isoformat()
