"""A handle on one table: its log, and what a warm process caches of it. Thread-safe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING

from alluvia.clock import Clock
from alluvia.commit.commit_offers import Crowd
from alluvia.commit.commit_records import Decisions, table_at
from alluvia.commit.transaction import TRANSACTION_AGE_MS_MAX, Transaction, carry_out_claim
from alluvia.delta.lineage import DroppedTable, dropped_tables, first_version, in_gap, is_dropped, version_gaps
from alluvia.delta.log.actions import Metadata
from alluvia.delta.log.log import Log, version_at
from alluvia.delta.log.replay import CommitMissing, State
from alluvia.delta.partitioning.spec import check_types
from alluvia.delta.places import attached_from, external_folders, read_only_message
from alluvia.delta.properties import EXTERNAL, OLDEST_READABLE
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Corrupt, Invalid, ReadOnly, TableNotFound, VersionExpired, VersionNotFound
from alluvia.store import Store
from alluvia.store.wrapper import ReadOnlyStore

if TYPE_CHECKING:
    from alluvia.commit.event_window.window import DedupWindow
    from alluvia.delta.data_files.writer import FileWriter, RowCheck

OVERDUE = 10
"""A checkpoint is overdue after this many times the commits of `delta.checkpointInterval`."""


class TableHandle:
    """The table at `root` (a key prefix ending in `/`) of a store. Opening it is put off until it is needed.

    `overdue` is told when this handle commits and no checkpoint has come for long. A handle that `follows` stands for
    the table elsewhere if the log here says that one is attached.
    """

    def __init__(
        self,
        store: Store,
        root: str,
        name: str,
        clock: Clock,
        overdue: Callable[[TableHandle], None] = lambda _: None,
        *,
        follows: bool = True,
    ) -> None:
        self.store = store
        self.root = root
        self.name = name
        self.clock = clock
        self.log = Log(store, root, clock)
        self.log.committed = self._committed
        self.lock = self.log.lock
        self.window: DedupWindow | None = None
        self.origin = ""
        self.crowd = Crowd()
        self._overdue = overdue
        self._last: Snapshot | None = None
        self._checked: Metadata | None = None
        self._named = _Named(name)
        self._follows = follows
        self._here: tuple[Store, str, Log] | None = None
        """Of an attached table: this lake's store, and the root and the log here that say where it is."""
        self._place: str | None = None

    def copy(self) -> TableHandle:
        """Return another handle that knows what this one knows, without a request; it shares no lock with this one."""
        other = TableHandle(self.store, self.root, self.name, self.clock)
        with self.lock:
            other.log = self.log.copy()
            other.lock = other.log.lock
            other.window = self.window.copy() if self.window is not None else None
            other._here, other._place, other._follows = self._here, self._place, self._follows
        return other

    def own(self) -> TableHandle:
        """Return a handle of the log at the table's own place, also where that says that the table is elsewhere."""
        if not self._follows:
            return self
        with self.lock:
            store, root, log = (self.store, self.root, self.log) if self._here is None else self._here
            own = TableHandle(store, root, self.name, self.clock, self._overdue, follows=False)
            own.log, own.lock = log, log.lock
            return own

    @property
    def committed(self) -> TableHandle:
        """Return the handle without what a transaction has staged."""
        return self

    @property
    def attached_place(self) -> str | None:
        """Return where an attached table is, once it has been opened; None for any other."""
        return self._place

    @property
    def takes_offers(self) -> bool:
        """Whether writers that meet here commit together; where nothing lies between, trying again is as fast."""
        return self.store.parallel

    def newest(self, *, dropped: bool = False) -> Snapshot:
        """Return the newest version, looking for new commits. Raises `TableNotFound`.

        With `dropped` also that of a table that was dropped: no files, but all that vacuum needs.
        """
        with self.lock, self._named:
            state = self._followed()
            return self._snapshot(state) if dropped else self._there(state)

    def at_hand(self, *, dropped: bool = False) -> Snapshot:
        """Return the newest version that this handle knows, without a request if it knows one.

        With `dropped` also that of a table that was dropped, which is looked for.
        """
        if dropped:
            return self.newest(dropped=True)
        with self.lock, self._named:
            state = self.log.state
            if state is None or self.log.stale or self.is_read_only:
                return self._there(self._followed())
            if state.metadata is self._checked:
                return self.as_of(state)
            if is_dropped(state.metadata.configuration):
                state = self.log.refresh()
            return self._there(state)

    def known_state(self) -> State:
        """Return the newest state that this handle knows, also of a table that was dropped; opened if it knows none.

        Raises `ReadOnly` for an attached table, whose transactions are those of another lake.
        """
        with self.lock, self._named:
            state = self.log.open() if self.log.state is None or self.log.stale else self.log.state
            self._check_own(self._place or attached_from(state.metadata))
            return state

    def fitting(self, columns: Iterable[str]) -> Snapshot:
        """Return the current version, or the newest if it lacks a column: another writer may have added it."""
        snapshot = self.at_hand()
        return snapshot if set(columns) <= set(snapshot.schema.names) else self.newest()

    def snapshot(self, version: int | None = None, timestamp: datetime | str | None = None) -> Snapshot:
        """Return the newest version, the one with a number, or the newest at a moment (naive times are UTC).

        Raises `VersionNotFound`, and `VersionExpired`, naming the oldest version left, where retention has removed it.
        A version that has a number and a keeper stays (`kept_versions`).
        """
        if version is not None and timestamp is not None:
            raise Invalid("version, timestamp: give one of them, not both")
        if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
            raise Invalid(f"version: expected a whole number, got {version!r}")
        newest = self.newest()
        if version is None and timestamp is None:
            return newest
        with self.lock, self._named:
            oldest = oldest_readable(newest.state)
            wanted = version if version is not None else self._version_at(newest, milliseconds(timestamp), oldest)
            if wanted == newest.version:
                return newest
            if in_gap(version_gaps(newest.properties), wanted):
                raise VersionNotFound(other_table_message(self.name, wanted))
            if 0 <= wanted < oldest and wanted not in self.kept_versions(oldest):
                raise VersionExpired(expired_message(self.name, wanted, oldest))
            try:
                return self.as_of(self.log.at(wanted))
            except CommitMissing as error:
                if not self.store.is_branch:
                    raise
                # The clean-up of the lake's log knows what a branch began with, and no version before that.
                raise VersionExpired(f"version {wanted} of {self.name} has expired on the lake: {error}") from error

    def kept_versions(self, oldest: int) -> set[int]:
        """Return the versions below the oldest readable one that tags, clones and branches keep.

        Two LISTs, and a GET for each of them; where there are any of the whole lake, one LIST of the log more.
        """
        from alluvia.delta.refs import keepers_of, meant  # most readers do without

        kept = keepers_of(self.store, self.root, self.name)
        live = [keeper for keeper in kept.live(self.clock.now_ms()) if not keeper.pending]
        stored_ms = self.log.stored_ms() if any(keeper.table is None for keeper in live) else {}
        versions = (meant(keeper, kept.pins, stored_ms, oldest) for keeper in live)
        return {version for version in versions if version is not None and version < oldest}

    def readable(self, version: int | None = None, timestamp: datetime | str | None = None) -> Snapshot:
        """Return what a reader sees: as `snapshot`, with transactions that have happened but are not in the log yet.

        Those are in the newest version's log within milliseconds, unless who commits them has died.
        """
        snapshot = self.snapshot(version, timestamp)
        if version is not None or timestamp is not None:
            return snapshot
        at = table_at(self.log, snapshot.state)
        return self.as_of(at.shown) if at.claims else snapshot

    def oldest(self) -> int:
        """Return the oldest version that can be read. Raises `TableNotFound`. One LIST besides the look for commits."""
        newest = self.newest()
        with self.lock, self._named:
            first = first_version(version_gaps(newest.properties))
            return max(oldest_readable(newest.state), self.log.oldest(), first)

    def waiting_events(self) -> Mapping[bytes, set[bytes]]:
        """Return the events, by fingerprint with their contents, that a transaction has yet to commit: none here."""
        return {}

    def carry_out(self, snapshot: Snapshot) -> bool:
        """Commit the transactions over several tables that have happened but are not in a snapshot, if there are any.

        Returns whether there are. One GET for each claim that stands.
        """
        claims = table_at(self.log, snapshot.state).claims
        for claim in claims:
            decision = Decisions.about(self.log, claim).read(claim)
            if decision is not None and decision.committed:
                carry_out_claim(self.log, claim, decision.claims)
        return bool(claims)

    def transaction(
        self,
        base: Snapshot,
        age_ms_max: int = TRANSACTION_AGE_MS_MAX,
        held: frozenset[str] = frozenset(),
        *,
        upkeep: bool = False,
    ) -> Transaction:
        """Begin a transaction on a snapshot. Raises `Unsupported` for a table that this library must not write.

        `held` are transactions over several tables that the snapshot holds before the log does. An external table takes
        only `upkeep`: vacuum and refresh.
        """
        self._check_own(self._place)
        if not upkeep:
            self.check_own()
        return Transaction(self.log, base.state, age_ms_max, held)

    def writer(self, snapshot: Snapshot, check: RowCheck | None = None) -> FileWriter:
        """Return a writer of data files for a snapshot's table; `check` raises for rows that may not be written."""
        from alluvia.delta.data_files.writer import FileWriter  # readers do without

        self._check_own(self._place)
        check_types(snapshot.partition_spec)  # of other writers' tables nobody has
        return FileWriter(self.store, snapshot.root, snapshot.partition_spec, snapshot.file_form, self.clock, check)

    def _committed(self, state: State, versions: int) -> None:
        if is_dropped(state.metadata.configuration):
            return
        interval = self._snapshot(state).settings.checkpoint_interval
        behind = state.version - (self.log.checkpoint_version or 0)
        # One writer a multiple of the interval, however many write.
        if behind >= OVERDUE * interval and state.version % interval < versions:
            self._overdue(self)

    def _version_at(self, newest: Snapshot, moment_ms: int, oldest: int) -> int:
        gaps = version_gaps(newest.properties)
        first = first_version(gaps)
        try:
            version = version_at(self.log, moment_ms, max(oldest, first))
        except VersionExpired:
            if first < max(oldest, self.log.oldest()):
                raise
            version = 0
        if in_gap(gaps, version):
            raise VersionNotFound(f"there was no table {self.name} at that time")
        return version

    def _followed(self) -> State:
        """Return the newest state, that of the table elsewhere if one is attached here. Raises `TableNotFound`.

        Of an attached table, the log here is looked at each time: it may have been detached.
        """
        here = self.log if self._here is None else self._here[2]
        state = here.refresh()
        place = attached_from(state.metadata) if self._follows else None
        if place != self._place:
            self._move_to(place, here)
        if place is None:
            configuration = state.metadata.configuration
            if self._follows and EXTERNAL in configuration and not is_dropped(configuration):
                for each in external_folders(state.metadata):
                    self.store.reach(each)
            return state
        try:
            newest_state = self.log.refresh()
        except TableNotFound as error:
            raise TableNotFound(f"table {self.name!r} is attached from {place}, where there is no table now") from error
        if is_dropped(newest_state.metadata.configuration):
            raise TableNotFound(f"table {self.name!r} is attached from {place}, where it was dropped")
        if attached_from(newest_state.metadata) is not None:
            raise Invalid(f"{place} is itself attached from {attached_from(newest_state.metadata)}: attach that")
        return newest_state

    def _move_to(self, place: str | None, here: Log) -> None:
        """Read from a place outside from now on, or again from the log here."""
        store, root = (self.store, self.root) if self._here is None else self._here[:2]
        self._here, self._place, self.window, self._last = None, None, None, None
        self.store, self.root, self.log = store, root, here
        if place is not None:
            outside = f"{store.reach(place)}/"
            self.store = ReadOnlyStore(store, outside, read_only_message(self.name, place))
            self._here, self._place, self.root = (store, root, here), place, outside
            self.log = Log(self.store, outside, self.clock)

    @property
    def is_read_only(self) -> bool:
        """Whether the table is attached or external, once it has been opened."""
        state = self.log.state
        return self._place is not None or (state is not None and EXTERNAL in state.metadata.configuration)

    def check_own(self) -> None:
        """Raise `ReadOnly` for a table that is attached or external, once it has been opened."""
        self._check_own(self._place)
        if self.is_read_only:
            msg = f"table {self.name!r} is external: it can only be read here; refresh it when its files change"
            raise ReadOnly(msg)

    def _check_own(self, place: str | None) -> None:
        if place is not None:
            raise ReadOnly(read_only_message(self.name, place))

    def _there(self, state: State) -> Snapshot:
        """Return a state as a version of the table, also where only a transaction that has happened creates it."""
        if is_dropped(state.metadata.configuration):
            state = table_at(self.log, state).shown
        return self.as_of(state)

    def as_of(self, state: State) -> Snapshot:
        """Return a state of the log as a version of the table. Raises `TableNotFound` if that was dropped."""
        if state.metadata is not self._checked:
            if is_dropped(state.metadata.configuration):
                raise TableNotFound(dropped_message(self.name))
            self._check_own(attached_from(state.metadata))
            self._checked = state.metadata
        return self._snapshot(state)

    def _snapshot(self, state: State) -> Snapshot:
        known = self._last
        if known is None or known.state is not state:
            known = self._last = Snapshot(state, self.root, self.name, self.store, known)
            known.origin = self.origin
        return known


class _Named:
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


def milliseconds(moment: datetime | str | None) -> int:
    """Return a moment in ms since the Unix epoch; without a time zone it is UTC. Raises `Invalid`."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError as error:
            raise Invalid(f"timestamp: {moment!r} is not an ISO 8601 time") from error
    if not isinstance(moment, datetime):
        raise Invalid(f"timestamp: expected a datetime or ISO 8601 text, got {type(moment).__name__}")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
