"""A table as a warm process keeps it: its log, and what is cached of it. Thread-safe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from alluvia.clock import Clock
from alluvia.commit.commit_offers import Contention
from alluvia.commit.commit_records import committed, table_at
from alluvia.commit.intents import pending
from alluvia.commit.transaction import TRANSACTION_AGE_MS_MAX, Transaction, carry_out_claim
from alluvia.commit.versions import Naming, Versions, readable_version
from alluvia.delta.arguments import check_version
from alluvia.delta.lineage import is_dropped
from alluvia.delta.log.log import Log
from alluvia.delta.log.replay import CommitMissing, State
from alluvia.delta.partitioning.spec import check_types
from alluvia.delta.places import attached_from, external_folders, read_only_message
from alluvia.delta.properties import EXTERNAL
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, ReadOnly, TableNotFound, VersionExpired
from alluvia.store import Store
from alluvia.store.wrapper import ReadOnlyStore

if TYPE_CHECKING:
    from alluvia.commit.event_window.window import DedupWindow
    from alluvia.delta.data_files.writer import FileWriter, RowCheck

OVERDUE = 10
"""A checkpoint is overdue after this many times the commits of `delta.checkpointInterval`."""


class WarmTable:
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
        overdue: Callable[[WarmTable], None] = lambda _: None,
        *,
        origin: str = "",
        follows: bool = True,
        log: Log | None = None,
    ) -> None:
        self.store = store
        self.root = root
        self.name = name
        self.clock = clock
        if log is None:
            log = Log(store, root, clock)
            log.committed = self._committed
        self.log = log
        self.lock = log.lock
        self.window: DedupWindow | None = None
        self.origin = origin
        self.contention = Contention()
        self._overdue = overdue
        self._versions = Versions(store, root, name, origin)
        self._named = Naming(name)
        self._follows = follows
        self._here: tuple[Store, str, Log] | None = None
        """Of an attached table: this lake's store, and the root and the log here that say where it is."""
        self._place: str | None = None

    def copy(self) -> WarmTable:
        """Return another handle that knows what this one knows, without a request; it shares no lock with this one."""
        with self.lock:
            other = WarmTable(self.store, self.root, self.name, self.clock, log=self.log.copy())
            other.window = self.window.copy() if self.window is not None else None
            other._here, other._place, other._follows = self._here, self._place, self._follows
        return other

    def own(self) -> WarmTable:
        if not self._follows:
            return self
        with self.lock:
            store, root, log = (self.store, self.root, self.log) if self._here is None else self._here
            return WarmTable(store, root, self.name, self.clock, self._overdue, follows=False, log=log)

    @property
    def is_staged(self) -> bool:
        return False

    @property
    def committed(self) -> WarmTable:
        return self

    @property
    def attached_place(self) -> str | None:
        return self._place

    def newest(self, *, dropped: bool = False) -> Snapshot:
        with self.lock, self._named:
            state = self._followed()
            return self._versions.unchecked(state) if dropped else self._there(state)

    def at_hand(self, *, dropped: bool = False) -> Snapshot:
        if dropped:
            return self.newest(dropped=True)
        with self.lock, self._named:
            state = self.log.state
            if state is None or self.log.stale or self.is_read_only:
                return self._there(self._followed())
            if self._versions.is_checked(state):
                return self._versions.as_of(state)
            if is_dropped(state.metadata.configuration):
                state = self.log.refresh()
            return self._there(state)

    def known_state(self) -> State:
        with self.lock, self._named:
            state = self.log.open() if self.log.state is None or self.log.stale else self.log.state
            self._check_own(self._place or attached_from(state.metadata))
            return state

    def snapshot(self, version: int | None = None, timestamp: datetime | str | None = None) -> Snapshot:
        check_version(version, timestamp)
        newest = self.newest()
        if version is None and timestamp is None:
            return newest
        with self.lock, self._named:
            wanted = readable_version(self, newest, version, timestamp)
            if wanted == newest.version:
                return newest
            try:
                return self.as_of(self.log.at(wanted))
            except CommitMissing as error:
                if not self.store.is_branch:
                    raise
                # The clean-up of the lake's log knows what a branch began with, and no version before that.
                raise VersionExpired(f"version {wanted} of {self.name} has expired on the lake: {error}") from error

    def readable(
        self,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        where: str | None = None,  # noqa: ARG002
    ) -> Snapshot:
        snapshot = self.snapshot(version, timestamp)
        if version is not None or timestamp is not None:
            return snapshot
        at = table_at(self.log, snapshot.state)
        return self.as_of(at.shown) if at.claims else snapshot

    def waiting_events(self) -> Mapping[bytes, set[bytes]]:
        return {}

    def carry_out(self, snapshot: Snapshot) -> bool:
        standing = pending(snapshot.state.domains)
        decisions = committed(self.log, standing)
        for claim in standing:
            if claim.transaction_id in decisions:
                carry_out_claim(self.log, claim, decisions[claim.transaction_id].claims)
        return bool(decisions)

    def transaction(
        self,
        base: Snapshot,
        age_ms_max: int = TRANSACTION_AGE_MS_MAX,
        *,
        upkeep: bool = False,
    ) -> Transaction:
        self._check_own(self._place)
        if not upkeep:
            self.check_own()
        return Transaction(self.log, base.state, age_ms_max)

    def writer(self, snapshot: Snapshot, check: RowCheck | None = None) -> FileWriter:
        from alluvia.delta.data_files.writer import FileWriter  # readers do without

        self._check_own(self._place)
        check_types(snapshot.partition_spec)  # of other writers' tables nobody has
        spec, form = snapshot.partition_spec, snapshot.file_form
        return FileWriter(self.store, snapshot.root, spec, form, self.clock, check, apart=snapshot.expires)

    def _committed(self, state: State, versions: int) -> None:
        if is_dropped(state.metadata.configuration):
            return
        interval = self._versions.unchecked(state).settings.checkpoint_interval
        behind = state.version - (self.log.checkpoint_version or 0)
        # One writer a multiple of the interval, however many write.
        if behind >= OVERDUE * interval and state.version % interval < versions:
            self._overdue(self)

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
        self._here, self._place, self.window = None, None, None
        self.store, self.root, self.log = store, root, here
        if place is not None:
            outside = f"{store.reach(place)}/"
            self.store = ReadOnlyStore(store, outside, read_only_message(self.name, place))
            self._here, self._place, self.root = (store, root, here), place, outside
            self.log = Log(self.store, outside, self.clock)
        self._versions = Versions(self.store, self.root, self.name, self.origin)

    @property
    def is_read_only(self) -> bool:
        state = self.log.state
        return self._place is not None or (state is not None and EXTERNAL in state.metadata.configuration)

    def check_own(self) -> None:
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
        return self._versions.as_of(state)
