"""Publish a branch: what it has changed becomes one transaction of its lake (docs/decisions/0046-branches.md).

The branch's files are copied into the tables' folders under their own names first, and its changes are committed from
the versions that the branch began with, so that the usual conflict rules decide about what others have committed since.
Compactions of files that the branch has changed are undone before.
Each commit records the branch, and nothing can be committed twice that records the same. So a publish that dies has
happened as a whole or not at all, and another one goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import orjson

from alluvia.commit.changes import Changes
from alluvia.commit.commit_records import table_at
from alluvia.commit.event_window.id_files import files_of, range_prints
from alluvia.commit.event_window.id_runs import FINGERPRINT_BYTES
from alluvia.commit.event_window.window import event_ids_of, parts
from alluvia.commit.intents import TRANSACTION
from alluvia.commit.transaction import FILE_AGE_MS_MAX
from alluvia.commit.versions import oldest_readable
from alluvia.delta.deletion_vectors.descriptors import stored_vector
from alluvia.delta.lineage import dropped_tables
from alluvia.delta.log.actions import Txn
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.properties import read_properties
from alluvia.delta.protocols import new_protocol
from alluvia.delta.refs import Keeper
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    Conflict,
    FilesCompacted,
    Invalid,
    ObjectNotFound,
    TableExists,
    TableNotFound,
    TransactionExpired,
    Unavailable,
    VersionExpired,
)
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.branches.branch_changes import CHANGED, DROPPED, REPLACED, BranchedTable
from alluvia.operations.branches.published_progress import with_published_progress
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.catalog.schemas import create_schema, missing_schemas
from alluvia.operations.catalog.views import check_no_view
from alluvia.operations.compaction.revert_compaction import UndoPlan, plan_undo
from alluvia.operations.planning.optimistic_retry import commit_planned
from alluvia.operations.references.branch_store import NOT_THERE, BranchStore
from alluvia.operations.tables.drop_plan import plan_drop, plan_replace
from alluvia.operations.tables.restore import check_present
from alluvia.operations.transactions.lake_commit import SERIALIZABLE, SNAPSHOT, commit_all
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia.operations.transactions.staging import StagedTable
from alluvia.store import Store

MARKER = "alluvia.branch:"
"""What the application id of a published branch begins with, in the tables that it has changed; its id follows."""
RECORD = "_alluvia/published.json"
FAST_FORWARD, REBASED, CONFLICT = "fast-forward", "rebased", "conflict"
TRIES_MAX = 10
"""A compaction may come again between its undoing and the publish, so many times."""


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """What publishing does to a table of the lake.

    `kind` is created, dropped, replaced or changed. `how` is `fast-forward` where the lake's table is as the branch
    found it, `rebased` where commits came since that do not stand in the way, else `conflict`. `version` is the
    lake's version that the commit made, where this process knows it.
    """

    name: str
    kind: str
    how: str
    files_added: int
    files_removed: int
    version: int | None = None
    conflict: Conflict | None = None


@dataclass(frozen=True, slots=True)
class PublishReport:
    """What a publish did, or in a dry run would do. `rollups` were written on the branch and are not published."""

    tables: tuple[PublishedTable, ...]
    rollups: tuple[str, ...] = ()
    dry_run: bool = False


def publish_branch(
    main: WritableCatalog,
    store: BranchStore,
    keeper: Keeper,
    tables: Sequence[BranchedTable],
    isolation: str = SERIALIZABLE,
    *,
    dry_run: bool = False,
) -> PublishReport:
    """Commit what a branch has changed to its lake, in one transaction.

    Raises a `Conflict` that names the table and the rule where commits of others stand in the way; in a dry run, the
    report has it. Schemas of tables that the branch has created are created before. A branch that was published before
    is not published again, and written to no more: else `Conflict`.
    """
    tips = {each.name: each.tip.version for each in tables}
    rollups = tuple(each.name for each in tables if each.is_rollup and each.kind is not None)
    app_id = f"{MARKER}{keeper.id}"
    own = [each for each in tables if each.kind is not None and not each.is_rollup]
    changed = [with_published_progress(each, tables, app_id) for each in own]
    published = _record(store) or _published(main, changed, app_id)
    if published is not None:
        _check_same(published, tips, changed)
        if not dry_run:
            _put_record(store, tips)
        return PublishReport((), rollups, dry_run)
    reads = isolation != SNAPSHOT
    copied_ms: int | None = None
    for tries in range(1, TRIES_MAX + 1):
        parts = [_Part(main, store, each, app_id, keeper.name, reads=reads) for each in changed]
        verdicts = tuple(each.verdict() for each in parts)
        if dry_run:
            return PublishReport(verdicts, rollups, dry_run=True)
        for each in verdicts:
            if each.conflict is not None:
                raise each.conflict
        if copied_ms is None or main.clock.now_ms() - copied_ms > FILE_AGE_MS_MAX:  # vacuum may have deleted the copies
            copied_ms = main.clock.now_ms()
            copied = sorted({*_own_files(store, changed)})
            main.store.map(lambda key: main.store.copy(store.folder + key, key), copied)
        for part in parts:
            part.undo_compactions()
        for schema in {schema for part in parts for schema in part.schemas}:
            create_schema(main.store, main.clock, schema, exist_ok=True)
        try:
            versions = commit_all([each.staged for each in parts], main.clock, main.clock.now_ms(), isolation)
        except Conflict:
            # Another call has published it, or a commit that came since the verdict stands in the way.
            published = _published(main, changed, app_id)
            if published is not None:
                _check_same(published, tips, changed)
                versions = {}
                break
            if tries == TRIES_MAX:
                raise
        else:
            break
    _put_record(store, tips)
    return PublishReport(tuple(replace(each, version=versions.get(each.name)) for each in verdicts), rollups)


class _Part:
    """What is to be committed to one table of the lake."""

    def __init__(
        self, main: WritableCatalog, store: BranchStore, table: BranchedTable, app_id: str, branch: str, *, reads: bool
    ) -> None:
        self._table = table
        self._store = store
        self._taken: Conflict | None = None
        self._undo: UndoPlan | None = None
        self.schemas: list[str] = []
        marker = Txn(app_id, table.tip.version, main.clock.now_ms())
        try:
            self.staged = _staged(main, table, marker, branch, reads=reads)
        except TableExists as error:
            both = "it was created on the branch and, since the branch was cut, also on the lake"
            self._taken = Conflict(both if table.name in main else str(error))
            return
        try:
            self.schemas = [] if table.base is not None else missing_schemas(main.store, [table.name])
        except Invalid as error:
            self._taken = Conflict(str(error))

    def verdict(self) -> PublishedTable:
        """Return what the conflict rules say of what was committed to the lake's table since the branch was cut."""
        table, how, conflict = self._table, FAST_FORWARD, None
        try:
            if self._taken is not None:
                raise self._taken
            winners = [] if table.base is None else _winners(self.staged)
            how = REBASED if winners else FAST_FORWARD
            self._check(winners)
            self._check_events(winners)
        except Conflict as error:
            rule = "TableExists" if error is self._taken else type(error).__name__
            conflict = type(error)(f"table {table.name}: {error} ({rule})")
            how = CONFLICT
        return PublishedTable(
            table.name, table.kind or CHANGED, how, len(table.adds), len(table.removed), conflict=conflict
        )

    def _check(self, winners: Sequence[CommitActions]) -> None:
        changes = self.staged.changes(reads=False)
        try:
            self.staged.started.check(winners, changes)
        except (FilesCompacted, ConcurrentDeleteDelete):  # the one for changes of rows, the other for compactions
            self._undo = self._plan_undo(self.staged.inner.at_hand(), winners)
            if self._undo is None:
                raise

    def undo_compactions(self) -> None:
        """Undo the compactions on the lake of files that the branch has changed, if the verdict has found some."""
        if self._undo is None:
            return
        handle = self.staged.inner

        def plan(snapshot: Snapshot) -> Changes | None:
            undo = self._plan_undo(
                snapshot, [each for each in _winners(self.staged) if each.version <= snapshot.version]
            )
            return None if undo is None else undo.changes(handle.clock.now_ms())

        commit_planned(handle, plan)

    def _plan_undo(self, now: Snapshot, winners: Sequence[CommitActions]) -> UndoPlan | None:
        """Return the compactions to undo; None where that does not help, or vacuum has taken what they had read."""
        base = self._table.base
        assert base is not None  # noqa: S101 - what is created replaces nothing
        plan = plan_undo(base, winners, now.state, [file.key for file in self._table.removed])
        if plan is None or plan.oldest < oldest_readable(now.state):
            return None
        try:
            self.staged.started.check([*winners, plan.winner(now.version + 1)], self.staged.changes(reads=False))
            check_present(self.staged.inner, now, plan.adds)
        except (Conflict, VersionExpired):
            return None
        return plan

    def _check_events(self, winners: Sequence[CommitActions]) -> None:
        """Raise `ConcurrentAppend` where events were ingested both on the branch and on the lake."""
        root = f"{self._table.name}/"
        ours = {*_prints(self._store, root, self._table.event_infos)} if winners else set()
        both = ours & {*_prints(self.staged.store, root, winners)} if ours else set()
        if both:
            raise ConcurrentAppend(f"{len(both)} events that the branch ingested are on the lake as well")


def _staged(main: WritableCatalog, table: BranchedTable, marker: Txn, branch: str, *, reads: bool) -> StagedTable:
    """Return a lake's table with what the branch has changed staged on the version that the branch began with."""
    now_ms, tip, base = main.clock.now_ms(), table.tip, table.base
    published = {"branch": branch}
    if base is None:
        staged = StagedTables(main).create(table.name, table.metadata, exist_ok=False, check=check_no_view)
        staged.begin_again(replace(table.filled(staged.staged[0], marker), parameters=published))
        return staged
    handle = main.handle(table.name)
    handle.newest(dropped=True)  # follows the log from what this process knows
    staged = StagedTable(handle, handle.as_of(base), table.held)
    if table.kind == DROPPED:
        dropped = dropped_tables(tip.metadata.configuration)  # the last is this: rejects come back with their table
        changes = plan_drop(base, now_ms, dropped[-1].parent_id)
        staged.stage(replace(changes, parameters=published, txns=[*changes.txns, marker]))
    elif table.kind == REPLACED:
        settings = read_properties(tip.metadata.configuration)
        protocol = new_protocol(settings.writers, tip.metadata.schema_string, tip.metadata.configuration)
        begin = plan_replace(base, table.metadata, protocol, now_ms, table.undone)
        staged.stage(replace(table.filled(begin, marker), parameters={**begin.parameters, **published}))
    else:
        staged.stage(table.changes(marker, branch, now_ms, reads=reads))
    return staged


def _winners(staged: StagedTable) -> list[CommitActions]:
    """Return what was committed to a lake's table since the branch was cut, also by transactions not carried out yet.

    Raises `TransactionExpired` where the log no longer has it.
    """
    log, base = staged.inner.log, staged.base.version
    with staged.inner.lock:
        state = log.refresh()
        known = log.since(base, event_ids=True)
    try:
        commits = log.read_commits(range(base + 1, state.version + 1)) if known is None else known
    except Unavailable as error:
        if not isinstance(error.__cause__, ObjectNotFound):
            raise
        msg = f"the lake's log no longer has all commits since version {base}, with which the branch began"
        raise TransactionExpired(msg) from error
    return [
        each
        for each in (*commits, *table_at(log, state).ahead)
        if each.info.get(TRANSACTION, {}).get("id") not in staged.held
    ]


def _prints(store: Store, root: str, commits: Iterable[CommitActions]) -> Iterator[bytes]:
    """Yield the fingerprints of the events that commits have added."""
    for commit in commits:
        yield from parts(event_ids_of(commit).prints, FINGERPRINT_BYTES)
        for files in files_of(commit):
            for number in range(files.ranges):
                yield from range_prints(files, store.get(root + files.name(number))).to_pylist()


def _own_files(store: BranchStore, tables: Iterable[BranchedTable]) -> Iterator[str]:
    """Yield the keys of what the published commits name and the branch has written."""
    for table in tables:
        if table.kind == DROPPED:
            continue
        paths = [file.path for file in table.adds]
        vectors = [stored_vector(file.deletion_vector) for file in table.adds if file.deletion_vector is not None]
        paths += [vector.path for vector in vectors if vector is not None]
        for commit in table.event_infos:
            paths += [files.name(number) for files in files_of(commit) for number in range(files.ranges)]
        yield from (key for key in (f"{table.name}/{path}" for path in paths) if store.place(key) != key)


def _published(main: WritableCatalog, tables: Iterable[BranchedTable], app_id: str) -> dict[str, int] | None:
    """Return the versions of a branch's tables that were published, by what the lake's tables record; None for none."""
    versions = {table.name: _recorded(main, table.name, app_id) for table in tables}
    return versions if any(version != NOT_THERE for version in versions.values()) else None


def _recorded(main: WritableCatalog, name: str, app_id: str) -> int:
    handle = main.handle(name)
    try:
        snapshot = handle.newest(dropped=True)
    except TableNotFound:
        return NOT_THERE
    if handle.carry_out(snapshot):  # a transaction that has happened, which may be the one that published the branch
        snapshot = handle.newest(dropped=True)
    txn = snapshot.state.txns.get(app_id)
    return NOT_THERE if txn is None else txn.version


def _record(store: BranchStore) -> dict[str, int] | None:
    with suppress(ObjectNotFound):
        return {str(name): int(version) for name, version in orjson.loads(store.get(RECORD)).items()}
    return None


def _put_record(store: BranchStore, versions: dict[str, int]) -> None:
    store.put_if_absent(RECORD, orjson.dumps(versions))


def _check_same(published: dict[str, int], tips: dict[str, int], changed: Iterable[BranchedTable]) -> None:
    """Raise `Conflict` if tables were written on a branch since it was published, also for the first time."""
    new = {each.name for each in changed} - published.keys()
    later = sorted(name for name, version in tips.items() if name in new or published.get(name, version) != version)
    if later:
        raise Conflict(
            f"the branch was published before {', '.join(later)} changed on it: make those changes on a new branch"
        )
