"""The versions of a table: which of them can be read, and states of its log as versions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING

from alluvia.delta.arguments import milliseconds
from alluvia.delta.lineage import DroppedTable, dropped_tables, first_version, in_gap, is_dropped, version_gaps
from alluvia.delta.log.actions import Metadata
from alluvia.delta.log.log import version_at
from alluvia.delta.log.replay import State
from alluvia.delta.places import attached_from, read_only_message
from alluvia.delta.properties import OLDEST_READABLE
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Corrupt, ReadOnly, TableNotFound, VersionExpired, VersionNotFound
from alluvia.store import Store

if TYPE_CHECKING:
    from alluvia.commit.handle import ReadableTable


class Versions:
    """States of a table's log as its versions, of which the last one is kept. Not thread-safe."""

    def __init__(self, store: Store, root: str, name: str, origin: str = "") -> None:
        self._store = store
        self._root = root
        self._name = name
        self._origin = origin
        self._last: Snapshot | None = None
        self._checked: Metadata | None = None

    def is_checked(self, state: State) -> bool:
        """Whether a state is known to be neither that of a dropped table nor that of an attached one."""
        return state.metadata is self._checked

    def as_of(self, state: State) -> Snapshot:
        """Return a state as a version. Raises `TableNotFound` for a dropped table, `ReadOnly` for an attached one."""
        if not self.is_checked(state):
            if is_dropped(state.metadata.configuration):
                raise TableNotFound(dropped_message(self._name))
            if (place := attached_from(state.metadata)) is not None:
                raise ReadOnly(read_only_message(self._name, place))
            self._checked = state.metadata
        return self.unchecked(state)

    def unchecked(self, state: State) -> Snapshot:
        """Return a state as a version, also of a table that was dropped."""
        known = self._last
        if known is None or known.state is not state:
            known = self._last = Snapshot(state, self._root, self._name, self._store, known)
            known.origin = self._origin
        return known


class Naming:
    """Has errors about the log's files, whose names are those of every log, name the table."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Corrupt):
            raise Corrupt(f"table {self._table}: {error}") from error


def oldest_readable(state: State) -> int:
    """Return the oldest version whose files vacuum has left, by the table's own record. Raises `Corrupt`."""
    domain = state.domains.get(OLDEST_READABLE)
    text = domain.configuration if domain is not None else state.metadata.configuration.get(OLDEST_READABLE, "0")
    if not text.isdecimal():
        raise Corrupt(f"{OLDEST_READABLE} is {text[:100]!r}, which is not a version: only this library may set it")
    return int(text)


def in_reach(state: State) -> list[DroppedTable]:
    """Return the tables that were dropped here and whose files vacuum has left."""
    return [t for t in dropped_tables(state.metadata.configuration) if t.version > oldest_readable(state)]


def expired_message(name: str, version: int, oldest: int) -> str:
    """Say that a version can no longer be read."""
    return f"version {version} of {name} has expired; the oldest version that can be read is {oldest}"


def other_table_message(name: str, version: int) -> str:
    """Say that a version of the log was not made by the table."""
    return f"version {version} belongs to an earlier table {name}, which was dropped"


def dropped_message(name: str) -> str:
    """Say that a table was dropped, and how to undrop it."""
    return f"there is no table {name!r}: it was dropped; undrop({name!r}) brings it back until vacuum deletes its files"


def version_with(table: ReadableTable, columns: Iterable[str]) -> Snapshot:
    """Return the current version, or the newest if it lacks a column: another writer may have added it."""
    snapshot = table.at_hand()
    return snapshot if set(columns) <= set(snapshot.schema.names) else table.newest()


def readable_version(
    table: ReadableTable, newest: Snapshot, version: int | None, timestamp: datetime | str | None
) -> int:
    """Return the version with a number, or the newest at a moment, if it can be read.

    Raises `VersionNotFound`, and `VersionExpired`, naming the oldest version left, where retention has removed it.
    """
    oldest = oldest_readable(newest.state)
    wanted = version if version is not None else _version_at(table, newest, milliseconds(timestamp), oldest)
    if wanted == newest.version:
        return wanted
    if in_gap(version_gaps(newest.properties), wanted):
        raise VersionNotFound(other_table_message(table.name, wanted))
    if 0 <= wanted < oldest and wanted not in kept_versions(table, oldest):
        raise VersionExpired(expired_message(table.name, wanted, oldest))
    return wanted


def _version_at(table: ReadableTable, newest: Snapshot, moment_ms: int, oldest: int) -> int:
    gaps = version_gaps(newest.properties)
    first = first_version(gaps)
    try:
        version = version_at(table.log, moment_ms, max(oldest, first))
    except VersionExpired:
        if first < max(oldest, table.log.oldest()):
            raise
        version = 0
    if in_gap(gaps, version):
        raise VersionNotFound(f"there was no table {table.name} at that time")
    return version


def kept_versions(table: ReadableTable, oldest: int) -> set[int]:
    """Return the versions below the oldest readable one that tags, clones and branches keep.

    Two LISTs, and a GET for each of them; where there are any of the whole lake, one LIST of the log more.
    """
    from alluvia.delta.refs import keepers_of, kept_version  # most readers do without

    kept = keepers_of(table.store, table.root, table.name)
    live = [keeper for keeper in kept.live(table.clock.now_ms()) if not keeper.pending]
    stored_ms = table.log.stored_ms() if any(keeper.table is None for keeper in live) else {}
    versions = (kept_version(keeper, kept.pins, stored_ms, oldest) for keeper in live)
    return {version for version in versions if version is not None and version < oldest}


def oldest_version(table: ReadableTable) -> int:
    """Return the oldest version that can be read. Raises `TableNotFound`. One LIST besides the look for commits."""
    newest = table.newest()
    with table.lock, Naming(table.name):
        first = first_version(version_gaps(newest.properties))
        return max(oldest_readable(newest.state), table.log.oldest(), first)
