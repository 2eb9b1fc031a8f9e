"""Drop a table, undrop it, and create another with its name. Each is one commit to the table's own log.

A drop removes every file from the table and marks the metadata. It deletes nothing, so it can be undone until vacuum
deletes the files. The commit changes the metadata and adds the guard feature to the protocol, so any concurrent writer,
of any library, loses a race that it must notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from alluvia.clock import datetime_of
from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import Commit, Transaction
from alluvia.commit.versions import dropped_message, expired_message, in_reach, oldest_readable
from alluvia.delta.lineage import DroppedTable, dropped_tables, is_dropped
from alluvia.delta.log.actions import Metadata, Protocol
from alluvia.delta.log.paths import LOG_FOLDER
from alluvia.delta.log.replay import State
from alluvia.delta.places import attached_from
from alluvia.delta.properties import EXTERNAL
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Conflict, Invalid, TableExists, TableNotFound, VersionExpired
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import check_whole_lake
from alluvia.operations.catalog.schemas import check_may_be_created
from alluvia.operations.planning.optimistic_retry import check_not_append_only
from alluvia.operations.references.clones import held
from alluvia.operations.tables.drop_plan import EMPTY, FirstVersion, plan_drop, plan_recreate, plan_undrop
from alluvia.operations.tables.restore import check_present
from alluvia.store import ObjectInfo, Store

TRIES_MAX = 100
DROP_HINT = LOG_FOLDER + ".alluvia_dropped."
"""Start of the names of empty objects, each written before a drop: without one, no table has been dropped here. They
sort before the commits, so that the listing which finds a table also finds them. Readers of logs skip them."""
_MARKS = "_alluvia/dropped/"
"""Start of the keys, from the lake's root, of empty objects that name tables which may have been dropped. They stay:
a mark of a table that exists again costs a look at its log where tables are listed."""
HINT_AGE_MS_MAX = 60 * 60 * 1000
"""A drop writes another hint after this long: vacuum deletes old ones where there is a table again."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A table that was dropped in a version of its log, and can be undropped."""

    name: str
    version: int
    dropped_at: datetime


@dataclass(frozen=True, slots=True)
class UndropReport:
    """What came back. `rejects_version` is the version of the rejects that came back with the table, if any did."""

    version: int
    timestamp_ms: int
    files: int
    rejects_version: int | None = None


def drop_table(handle: TableHandle, rejects: TableHandle | None = None) -> Commit:
    """Drop a table, and after it the table of its rejected events. Raises `TableNotFound`.

    The rejects of a table that another call has dropped without coming so far are dropped now. An append-only table
    that holds rows is refused with `Invalid`.
    """
    state = handle.log.refresh()
    before = _last_dropped(state)
    if before is None:
        commit, table_id = _drop(handle)
    else:
        commit, table_id = Commit(before.version, before.dropped_ms), before.table_id
    rejects_dropped = rejects is not None and drop_rejects(rejects, table_id)
    if before is not None and not rejects_dropped:
        raise TableNotFound(dropped_message(handle.name))
    return commit


def drop_rejects(rejects: TableHandle, parent_id: str) -> bool:
    """Drop the rejects of a table that was dropped. Returns whether there were any."""
    try:
        _drop(rejects, parent_id)
    except TableNotFound:
        return False
    return True


def _drop(handle: TableHandle, parent_id: str | None = None) -> tuple[Commit, str]:
    """Drop one table. Returns its id too; with the id of a parent it is dropped although it is append-only."""
    planned: list[str] = []
    hinted_ms = -HINT_AGE_MS_MAX

    def plan(state: State) -> Changes:
        nonlocal hinted_ms
        if is_dropped(state.metadata.configuration):
            raise TableNotFound(dropped_message(handle.name))
        if attached_from(state.metadata) is not None:
            check_whole_lake(handle.store, "detach")
        if EXTERNAL in state.metadata.configuration:
            check_whole_lake(handle.store, "dropping an external table")
        if len(state.files) and parent_id is None:
            check_not_append_only(Snapshot(state, handle.root, handle.name), "drop_table")
        if handle.clock.now_ms() - hinted_ms >= HINT_AGE_MS_MAX:
            hinted_ms = handle.clock.now_ms()
            put_hints(handle, marked=parent_id is None)
        planned[:] = [state.metadata.id]
        return plan_drop(state, handle.clock.now_ms(), parent_id)

    return _commit(handle, plan), planned[0]


def recreate(
    handle: TableHandle,
    rejects: TableHandle | None,
    metadata: Metadata,
    protocol: Protocol,
    first: FirstVersion = EMPTY,
) -> bool:
    """Start a new table in the log of a dropped one. False if there is a table already.

    Raises `TransactionExpired` where its first files are so old that vacuum may have deleted some.
    """
    drop_rejects_left(_settled(handle), rejects)

    def plan(state: State) -> Changes:
        if not is_dropped(state.metadata.configuration):
            raise TableExists(handle.name)
        now_ms = handle.clock.now_ms()
        first.check_young(handle.name, now_ms)
        return plan_recreate(state, metadata, protocol, now_ms, first)

    try:
        _commit(handle, plan)
    except TableExists:
        return False
    return True


def drop_rejects_left(state: State, rejects: TableHandle | None) -> None:
    """Drop the rejects of the table that was dropped in a state, if that has ended before it came so far."""
    before = _last_dropped(state)
    if before is not None and rejects is not None:
        drop_rejects(rejects, before.table_id)


def undrop_table(handle: TableHandle, rejects: TableHandle | None = None, version: int | None = None) -> UndropReport:
    """Bring back the table that was dropped last, or in a version, and its rejects before it.

    Raises `TableNotFound` if none was dropped, `TableExists` if there is one or a view of that name now, and
    `VersionExpired` if vacuum has deleted its files.
    """
    state = _settled(handle)
    if not is_dropped(state.metadata.configuration):
        raise TableExists(f"there is a table {handle.name!r}: drop it first, then undrop the other one by its version")
    if _last_dropped(state) is None:
        raise TableNotFound(dropped_message(handle.name))
    wanted = _wanted(handle, state, version)
    check_may_be_created(handle.store, handle.name)
    back = None if rejects is None else _undrop_rejects(rejects, wanted.table_id)
    commit = _undrop(handle, wanted)
    return UndropReport(commit.version, commit.timestamp_ms, commit.files, None if back is None else back.version)


def _wanted(handle: TableHandle, state: State, version: int | None) -> DroppedTable:
    tables = dropped_tables(state.metadata.configuration)
    wanted = tables[-1] if version is None else next((table for table in tables if table.version == version), None)
    if wanted is None:
        oldest = oldest_readable(state)
        if version is not None and 0 < version <= oldest:
            raise VersionExpired(expired_message(handle.name, version - 1, oldest))
        known = ", ".join(str(table.version) for table in tables)
        raise Invalid(f"version: {handle.name!r} was not dropped in version {version}; it was in {known}")
    return wanted


def _undrop_rejects(rejects: TableHandle, parent_id: str) -> Commit | None:
    try:
        state = rejects.log.refresh()
        tables = dropped_tables(state.metadata.configuration)
        wanted = next((table for table in reversed(tables) if table.parent_id == parent_id), None)
        return None if wanted is None else _undrop(rejects, wanted)
    except (TableNotFound, VersionExpired):
        return None


def _undrop(handle: TableHandle, table: DroppedTable) -> Commit:
    """Bring back one table; rejects also where new ones have been kept since, which then join the old."""
    base = handle.log.at(table.version - 1)

    def plan(state: State) -> Changes:
        configuration = state.metadata.configuration
        back = table not in dropped_tables(configuration)
        if back or (table.parent_id is None and not is_dropped(configuration)):
            raise TableExists(f"another call has already restored or created {handle.name!r}")
        oldest = oldest_readable(state)
        if base.version < oldest:
            raise VersionExpired(expired_message(handle.name, base.version, oldest))
        changes = plan_undrop(state, base, table, handle.clock.now_ms())
        source = Snapshot(base, handle.root, handle.name, handle.store)
        check_present(handle, source, changes.adds)
        changes.adds = held(handle, source, changes.adds)
        return changes

    return _commit(handle, plan)


def _commit(handle: TableHandle, plan: Callable[[State], Changes]) -> Commit:
    """Commit what a plan makes of the newest state, dropped or not; after any lost race, what it makes of the next."""
    with handle.lock:
        for _ in range(TRIES_MAX):
            state = _settled(handle)
            changes = plan(state)
            try:
                commit = Transaction(handle.log, state).commit(changes, lambda _: None)
            except Conflict:
                continue
            if commit is not None:
                return commit
    raise Conflict(f"{handle.name}: lost {TRIES_MAX} races: try again when fewer writers are active")


def put_hints(handle: TableHandle, *, marked: bool) -> None:
    """Say that the table may be dropped from now on; `marked` also where a lake's tables are listed."""
    handle.store.put_new(f"{handle.root}{DROP_HINT}{handle.clock.new_id()}", b"1")
    if marked:
        handle.store.put(_MARKS + handle.name, b"1")


def _last_dropped(state: State) -> DroppedTable | None:
    """Return the table that was dropped last, if there is none now. Of one that was never created there is nothing."""
    tables = dropped_tables(state.metadata.configuration)
    return tables[-1] if tables and is_dropped(state.metadata.configuration) else None


def _settled(handle: TableHandle) -> State:
    """Return the newest state, dropped or not, with all transactions that have happened."""
    snapshot = handle.newest(dropped=True)
    return handle.newest(dropped=True).state if handle.carry_out(snapshot) else snapshot.state


def dropped_here(handle: TableHandle) -> list[Dropped]:
    """Return the tables of a name that can be brought back, the last dropped last."""
    if not all(find_log(handle.store, handle.root)):
        return []
    tables = in_reach(handle.log.refresh())
    return [Dropped(handle.name, t.version, datetime_of(t.dropped_ms)) for t in tables]


def find_log(store: Store, root: str) -> tuple[bool, bool]:
    """Return whether there is a log at a root, and whether its table may have been dropped; one LIST.

    A hint alone is what a transaction has left that failed before it created the table.
    """
    hinted = False
    for info in store.list(root + LOG_FOLDER):
        name = info.key[len(root) :]
        if name.startswith(DROP_HINT):
            hinted = True
        elif not name.startswith(LOG_FOLDER + "."):
            return True, hinted
    return False, hinted


def may_be_dropped(store: Store, folders: Iterable[str]) -> set[str]:
    """Return the names of a lake's tables that may have been dropped, by the folders at its root; one LIST at most."""
    if _MARKS.partition("/")[0] not in folders:
        return set()
    return {info.key.removeprefix(_MARKS) for info in store.list(_MARKS)}


def old_hints(paths: Iterable[ObjectInfo], before_ms: int) -> list[str]:
    """Return the hints among objects below a root that were written before a moment."""
    return [info.key for info in paths if info.key.startswith(DROP_HINT) and info.modified_ms < before_ms]
