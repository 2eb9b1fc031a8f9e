"""The public API: a branch of a lake, which is a lake of its own until it is published or discarded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pyarrow as pa

from alluvia.api.lake import Lake
from alluvia.api.lake_catalog import LakeCatalog
from alluvia.clock import datetime_of
from alluvia.delta.arguments import milliseconds
from alluvia.delta.refs import (
    BRANCH,
    DISCARDED,
    TAG,
    Keeper,
    check_branch,
    find_keeper,
    find_tagged,
    is_keeper_name,
    list_keepers,
    put_over,
    release,
)
from alluvia.errors import Invalid, TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.branches.branch_changes import BranchedTable, branched_tables
from alluvia.operations.branches.branch_diff import TableDiff, diff_rows, diff_table
from alluvia.operations.branches.branch_publish import PublishReport, publish_branch
from alluvia.operations.branches.branch_reads import Elsewhere
from alluvia.operations.catalog.schemas import has_schema
from alluvia.operations.references.branch_store import (
    NOT_THERE,
    BranchClock,
    BranchStore,
    branch_mark,
    delete_folder,
    delete_left,
)
from alluvia.operations.references.pinned_versions import keep_moment, kept_at
from alluvia.operations.transactions.lake_commit import ISOLATION, SERIALIZABLE
from alluvia.table_names import MAIN, NO_BRANCHES, SCHEMA_NAME


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch in a list. It shows what the lake held at `moment`; times are in UTC."""

    name: str
    moment: datetime
    created_at: datetime
    expires_at: datetime | None = None


class Branch(Lake):
    """A lake as it was when the branch was cut, with what has been written on the branch since. Thread-safe.

    What works on a lake works on a branch, but for what belongs to the lake as a whole: erasing, converting folders,
    published queries, and branches of their own.
    """

    def __init__(self, main: Lake, keeper: Keeper) -> None:
        self.main = main
        self.keeper = keeper
        self._known: set[str] = set()

        def check_there() -> None:
            check_branch(main.store, main.clock, keeper.name, keeper.id)

        store = BranchStore(main.store, keeper.id, self._base_of, self._moment, check_there)
        clock = BranchClock(main.clock, branch_mark(keeper.id))
        super().__init__(store, clock, LakeCatalog(store, clock, self._branch_tables, keeper.id, self._shown))
        self.branch_store = store
        self.branch_name = keeper.name

    @property
    def name(self) -> str:
        """Return the branch's name."""
        return self.keeper.name

    @property
    def expires_at(self) -> datetime | None:
        """Return when the branch expires, in UTC; None if it does not."""
        return None if self.keeper.expires_ms is None else datetime_of(self.keeper.expires_ms)

    def __repr__(self) -> str:
        return f"<Branch {self.name!r} of {self.main.uri!r}>"

    def _shown(self, names: list[str]) -> list[str]:
        """Return those of some tables that the branch shows. One LIST for each that this process has not looked up."""
        new = [name for name in names if name not in self._known]
        self._known |= {name for name, is_shown in zip(new, self.store.map(self._shows, new), strict=True) if is_shown}
        return [name for name in names if name in self._known]

    def diff(self, table: str | None = None, *, key: Sequence[str] | None = None) -> list[TableDiff]:
        """Return what the branch has changed, by table, or of one table: columns, and how many rows came and went.

        Only files that the branch has added or removed are read, where the log does not say it. `key` has the columns
        by which a changed row is found again; by default those of an event's id, in tables of events.
        """
        diffs = (diff_table(each, self.store, key) for each in self._written(table))
        return [each for each in diffs if each is not None]

    def diff_rows(self, table: str, *, key: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Return the rows of a table that the branch has added and removed, with the column `_change_type`.

        That is `insert` or `delete`, and `update_preimage` or `update_postimage` of a row that is found again by `key`.
        Raises `Invalid` for a table that the branch has not changed.
        """
        changed = [each for each in self._written(table) if each.kind is not None]
        if not changed:
            raise Invalid(f"branch {self.name} has not changed table {table!r}: there are no rows to show")
        return diff_rows(changed[0], self.store, key)

    def _written(self, table: str | None = None) -> list[BranchedTable]:
        self._check_there()
        tables = [each for each in branched_tables(self.catalog, self.branch_store) if table in (None, each.name)]
        self._check_there()  # a discard says so before it deletes any of them
        return tables

    def publish(self, *, isolation: str = SERIALIZABLE, dry_run: bool = False) -> PublishReport:
        """Commit what was written on the branch to the lake, in one transaction: all of it, or nothing.

        Raises a `Conflict` that names the table and the rule, where others have committed since what the branch's
        changes rest on: files that they change too, and rows that others have added and that the branch's deletes,
        updates and upserts may have found. With the `isolation` `"snapshot"`, such rows do not count. With `dry_run`,
        the report says what would happen. The branch can still be read afterwards, until it is discarded; what is
        written on it then stays there. Rollups follow their sources on the lake by themselves.
        """
        if isolation not in ISOLATION:
            raise Invalid(f"isolation: expected one of {', '.join(ISOLATION)}, got {isolation!r}")
        return publish_branch(
            self.main.catalog, self.branch_store, self.keeper, self._written(), isolation, dry_run=dry_run
        )

    def drop(self) -> None:
        """Delete the branch, and all that was written on it and not published."""
        drop_branch(self.main, self.name, self.keeper.id)

    def _shows(self, table: str) -> bool:
        if any(taken_ms <= self._moment() for taken_ms in self.main.catalog.handle(table).log.stored_ms().values()):
            return True
        store = self.branch_store
        return store.first_own(table) is not None or store.base(table) != NOT_THERE

    def _base_of(self, table: str) -> int:
        try:
            return kept_at(self.main.catalog.handle(table), self._kept()).version
        except TableNotFound:
            return NOT_THERE

    def _moment(self) -> int:
        """Return the moment that the branch shows, in ms by the store's clock. The first call may cost a request."""
        return self._kept().moment

    def _check_there(self) -> None:
        """Raise `Invalid` for a branch that was discarded, or has expired."""
        live_keeper(self.main, self.name, self.keeper.id)

    def _kept(self) -> Keeper:
        if self.keeper.moment_ms is None and not self.keeper.stored_ms:
            self.keeper = _found(self.main, self.name, self.keeper.id)
        return self.keeper


def elsewhere(lake: Lake, branch: str) -> Elsewhere:
    """Return the tables of a branch of a lake, or of the lake of a branch, as queries there read them."""
    main = lake.main if isinstance(lake, Branch) else lake
    if branch == MAIN:
        return Elsewhere(main.catalog, MAIN, "", str)
    try:
        opened = main.on_branch(branch)
    except Invalid as error:
        raise TableNotFound(str(error)) from error
    return Elsewhere(opened.catalog, branch, opened.keeper.id, opened.branch_store.place)


def create_branch(lake: Lake, name: str, at: datetime | str | None, expires: timedelta | None) -> Branch:
    """Cut a branch; `at` is a time, or the name of a tag of the lake. See `Lake.branch`."""
    if name in NO_BRANCHES or (SCHEMA_NAME.fullmatch(name) and has_schema(lake.store, name)):
        raise Invalid(f"branch name {name!r} has another meaning in queries: choose another name")
    at_ms = None if at is None else _moment_ms(lake, at)
    expires_ms = None if expires is None else lake.clock.now_ms() + int(expires / timedelta(milliseconds=1))
    return Branch(lake, keep_moment(lake.catalog, BRANCH, name, at_ms, expires_ms=expires_ms))


def live_keeper(lake: Lake, name: str, branch_id: str | None = None) -> Keeper:
    """Return the keeper of a branch. Raises `Invalid` if there is no such branch, or it has expired. A GET and a HEAD.

    With `branch_id`, a later branch of that name is another one.
    """
    keeper = _found(lake, name, branch_id)
    if DISCARDED in keeper.details:
        raise Invalid(f"branch {name!r} is being discarded: call lake.drop_branch({name!r}) again to finish")
    if not keeper.is_live(lake.clock.now_ms()):
        raise Invalid(f"branch {name!r} has expired: discard it, and cut another with lake.branch({name!r})")
    return keeper


def drop_branch(lake: Lake, name: str, branch_id: str | None = None) -> None:
    """Delete a branch. Raises `Invalid` if there is none.

    First its keeper says so, and it expires: nobody opens or publishes it then, no write on it counts any more, and if
    this call dies, another one or vacuum deletes the rest.
    """
    keeper = _found(lake, name, branch_id)
    while True:
        tagged = find_tagged(lake.store, None, BRANCH, name)
        if tagged is None or tagged[0].id != keeper.id or DISCARDED in tagged[0].details:
            break
        known, now_ms = tagged[0], lake.clock.now_ms()
        put_over(
            lake.store,
            replace(
                known,
                moment_ms=known.moment,
                expires_ms=now_ms if known.expires_ms is None else min(now_ms, known.expires_ms),
                details={**known.details, DISCARDED: "true"},
            ),
            tagged[1],
        )
    delete_folder(lake.store, keeper.id)
    left = find_keeper(lake.store, None, BRANCH, name)
    if left is not None and left.id == keeper.id:  # else another branch has its name by now
        release(lake.store, keeper)
    delete_left(lake.store)


def list_branches(lake: Lake) -> list[BranchInfo]:
    """Return the branches of a lake, in the order of their names. One LIST, and one GET for each."""
    return [
        BranchInfo(each.name, datetime_of(each.moment), datetime_of(each.created_ms),
                   None if each.expires_ms is None else datetime_of(each.expires_ms))
        for each in list_keepers(lake.store, None, BRANCH)
    ]  # fmt: skip


def _found(lake: Lake, name: str, branch_id: str | None = None) -> Keeper:
    keeper = find_keeper(lake.store, None, BRANCH, name)
    if keeper is None or branch_id not in (None, keeper.id):
        raise Invalid(f"there is no branch {name!r}: lake.branch({name!r}) cuts it, lake.branches() lists the branches")
    return keeper


def _moment_ms(lake: Lake, at: datetime | str) -> int:
    now_ms = lake.clock.now_ms()
    try:
        moment_ms = milliseconds(at)
    except Invalid:
        tag = find_keeper(lake.store, None, TAG, at) if isinstance(at, str) and is_keeper_name(at) else None
        if tag is None or not tag.is_live(now_ms):
            raise Invalid(f"at: {at!r:.100} is neither an ISO 8601 time nor a tag of the lake") from None
        moment_ms = tag.moment
    if moment_ms > now_ms:
        raise Invalid(f"at: {at} is in the future: give a time in the past, or leave it out")
    if moment_ms < 0:
        raise Invalid(f"at: {at} is before 1970, when no lake held anything")
    return moment_ms
