"""Branches over HTTP: list, cut, diff, publish and discard them, below `/v1/branches`. Loaded when one is asked for.

A branch shows its tables with the rights of the lake. What concerns all of the lake takes a scope for all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from alluvia.access.rights import ADMIN, READ
from alluvia.api.lake_branch import Branch
from alluvia.delta.arguments import lasting
from alluvia.delta.refs import BRANCH, Keeper, find_keeper, list_keepers
from alluvia.errors import BranchConflict, Conflict, Forbidden, Invalid, cut
from alluvia.operations.branches.branch_changes import BranchedTable, branched_tables
from alluvia.operations.branches.branch_diff import diff_table, files_read
from alluvia.operations.branches.branch_report import diff_row, published_row
from alluvia.operations.transactions.lake_commit import SERIALIZABLE
from alluvia.progress import reporting_to
from alluvia.query.limits import QueryLimits, check_bytes
from alluvia.serverless.http import Request, Response
from alluvia.serverless.http import answer as json_answer

from .answering import NO_STORE, Caller
from .bodies import json_object
from .published import fields_of
from .rights import WRITES_ARE_OFF
from .statuses import BranchNotFound

NAME, AT, EXPIRES = "name", "at", "expires"
ISOLATION, DRY_RUN = "isolation", "dry_run"
TABLE, KEY = "table", "key"
BODY_BYTES_MAX = 10_000
_CUT, _PUBLISH = '{"name": "fix", "expires": "7d"}', '{"dry_run": true}'
_COUNTS = ("rows_added", "rows_removed", "rows_changed", "files_added", "files_removed")
_DETAILS = ("columns_added", "columns_removed", "columns_changed", "properties")


def take_branches(request: Request, name: str, caller: Caller) -> Response:  # noqa: ARG001
    """List the branches, or cut one."""
    return _cut(request, caller) if request.method == "POST" else _list(request, caller)


def take_branch(request: Request, name: str, caller: Caller) -> Response:
    """Tell of a branch, or discard it."""
    return _discard(request, name, caller) if request.method == "DELETE" else _tell(request, name, caller)


def _list(request: Request, caller: Caller) -> Response:
    _check_no_others(fields_of(request))
    _check_all(caller, READ, "to list branches")
    now_ms = caller.lake.clock.now_ms()
    return _told({"branches": [_facts(each, now_ms) for each in list_keepers(caller.lake.store, None, BRANCH)]})


def _cut(request: Request, caller: Caller) -> Response:
    """Cut a branch: 201."""
    _check_may_change(caller, "to cut a branch")
    _check_no_others(fields_of(request))
    body = json_object(request, "a branch", _CUT, (NAME, AT, EXPIRES), BODY_BYTES_MAX)
    texts = {field: _text_or_none(field, body.get(field)) for field in (NAME, AT, EXPIRES)}
    name, at, expires = texts.values()
    if name is None:
        raise Invalid(f"{NAME}: send the name of the branch, as in {_CUT}")
    caller.lake.branch(name, at, expires=None if expires is None else lasting(expires, EXPIRES))
    made = _found(caller, name)
    return _told(_facts(made, caller.lake.clock.now_ms()), 201, Location=f"/v1/branches/{made.name}")


def _tell(request: Request, name: str, caller: Caller) -> Response:
    _check_no_others(fields_of(request))
    _check_all(caller, READ, "to look at a branch")
    return _told(_facts(_found(caller, name), caller.lake.clock.now_ms()))


def _discard(request: Request, name: str, caller: Caller) -> Response:
    _check_may_change(caller, "to discard a branch")
    _check_no_others(fields_of(request))
    _found(caller, name)
    caller.lake.discard_branch(name)
    return _told({"name": name, "discarded": True})


def publish_branch(request: Request, name: str, caller: Caller) -> Response:
    """Publish a branch, or say what that would do. Raises `BranchConflict`."""
    _check_may_change(caller, "to publish a branch")
    _check_no_others(fields_of(request))
    body = json_object(request, "a publish", _PUBLISH, (ISOLATION, DRY_RUN), BODY_BYTES_MAX) if request.body() else {}
    isolation, dry_run = body.get(ISOLATION, SERIALIZABLE), body.get(DRY_RUN, False)
    if not isinstance(dry_run, bool):
        raise Invalid(f"{DRY_RUN}: send true or false")
    branch = _opened(caller, name)
    try:
        report = branch.publish(isolation=isolation, dry_run=dry_run)
    except Conflict as error:
        raise BranchConflict(f"branch {name} cannot be published: {error}") from error
    rows = list(map(published_row, report.tables))
    return _told({"name": name, "tables": rows, "rollups": report.rollups, "dry_run": report.dry_run})


def diff_branch(request: Request, name: str, caller: Caller) -> Response:
    """Tell what a branch has changed in the tables that the caller may read.

    Of a table that it sees in part, nothing is told that depends on rows and columns: that is null.
    """
    given = fields_of(request)
    table, key = given.pop(TABLE, None), given.pop(KEY, None)
    _check_no_others(given)
    table = None if table is None else table.replace(".", "/")
    branch = _opened(caller, name)
    if table is not None and caller.rights is not None:
        caller.rights.check(READ, table)
    tables = [each for each in branched_tables(branch, branch.branch_store) if table in (None, each.name)]
    keys = None if key is None else [column.strip() for column in key.split(",")]
    return _told({"name": name, "tables": list(_differences(caller, branch, tables, keys))})


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
            found = diff_table(each, branch.store, key) if each in whole else None
            if found is not None:
                yield diff_row(found)
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
    found = find_keeper(caller.lake.store, None, BRANCH, name)
    if found is None:
        raise BranchNotFound(f"there is no branch {cut(name, 100)!r}")
    return found


def _check_may_change(caller: Caller, what: str) -> None:
    """Raise `Forbidden` where nothing may be written, or the caller lacks the scope for all of the lake."""
    if not caller.settings.allow_writes:
        raise Forbidden(f"{what} writes, and only reads are allowed here. {WRITES_ARE_OFF}")
    _check_all(caller, ADMIN, what)


def _check_all(caller: Caller, operation: str, what: str) -> None:
    if caller.rights is not None:
        caller.rights.check_all(operation, what)


def _facts(keeper: Keeper, now_ms: int) -> dict[str, Any]:
    return {
        "name": keeper.name,
        "moment": _time(keeper.moment),
        "created": _time(keeper.created_ms),
        "expires": None if keeper.expires_ms is None else _time(keeper.expires_ms),
        "expired": not keeper.is_live(now_ms),
    }


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def _text_or_none(field: str, value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise Invalid(f"{field}: send text, as in {_CUT}")


def _check_no_others(fields: Mapping[str, str]) -> None:
    other = next(iter(fields), None)
    if other is not None:
        raise Invalid(f"{cut(other, 100)} is not a field of this request")


def _told(body: dict[str, Any], status: int = 200, **headers: str) -> Response:
    return json_answer(status, body, **{"Cache-Control": NO_STORE, **headers})
