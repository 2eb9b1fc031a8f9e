"""A handle on one table: its log, and what a warm process remembers of it. Safe for use from several threads."""

from __future__ import annotations

from datetime import UTC, datetime
from threading import RLock

from alluvia.clock import Clock
from alluvia.errors import Invalid, VersionExpired
from alluvia.log.log import Log
from alluvia.log.replay import State
from alluvia.store import Store
from alluvia.table.properties import OLDEST_READABLE
from alluvia.table.protocols import check_writable
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import TRANSACTION_AGE_MS_MAX, Transaction
from alluvia.table.window import DedupWindow
from alluvia.table.writer import FileWriter


class TableHandle:
    """The table at `root` (a key prefix ending in `/`) of a store. Opening it is put off until it is needed."""

    def __init__(self, store: Store, root: str, name: str, clock: Clock) -> None:
        self.store = store
        self.root = root
        self.name = name
        self.clock = clock
        self.log = Log(store, root, clock)
        self.lock = RLock()
        self.window: DedupWindow | None = None

    def newest(self) -> Snapshot:
        """Return the newest version, looking for new commits. Raises `TableNotFound`."""
        with self.lock:
            return self._snapshot(self.log.refresh())

    def at_hand(self) -> Snapshot:
        """Return the newest version that this handle knows, without a request if it knows one."""
        with self.lock:
            if self.log.state is None or self.log.stale:
                return self._snapshot(self.log.open())
            return self._snapshot(self.log.state)

    def snapshot(self, version: int | None = None, timestamp: datetime | str | None = None) -> Snapshot:
        """Return the newest version, the one with a number, or the newest at a moment (naive times are UTC).

        Raises `VersionNotFound`, and `VersionExpired`, naming the oldest version left, where retention has removed it.
        """
        if version is not None and timestamp is not None:
            msg = "version, timestamp: give one of them, not both"
            raise Invalid(msg)
        newest = self.newest()
        if version is None and timestamp is None:
            return newest
        with self.lock:
            wanted = version if version is not None else self.log.version_at(_milliseconds(timestamp))
            if wanted == newest.version:
                return newest
            oldest = int(oldest_readable(newest.state))
            if 0 <= wanted < oldest:
                raise VersionExpired(expired_message(self.name, wanted, oldest))
            return self._snapshot(self.log.at(wanted))

    def transaction(self, base: Snapshot, age_ms_max: int = TRANSACTION_AGE_MS_MAX) -> Transaction:
        """Begin a transaction on a snapshot. Raises `Unsupported` for a table that this library must not write."""
        check_writable(base.state.protocol, base.state.metadata)
        return Transaction(self.log, base.state, self.lock, age_ms_max)

    def writer(self, snapshot: Snapshot) -> FileWriter:
        """Return a writer of data files for a snapshot's table."""
        return FileWriter.of(snapshot, self.store, self.clock)

    def _snapshot(self, state: State) -> Snapshot:
        return Snapshot(state, self.root, self.name)


def oldest_readable(state: State) -> int:
    """Return the oldest version whose files vacuum has left, by the table's own record."""
    domain = state.domains.get(OLDEST_READABLE)
    text = domain.configuration if domain is not None else state.metadata.configuration.get(OLDEST_READABLE, "0")
    return int(text)


def expired_message(name: str, version: int, oldest: int) -> str:
    """Say that a version can no longer be read."""
    return f"version {version} of {name} has expired; the oldest version that can be read is {oldest}"


def _milliseconds(moment: datetime | str | None) -> int:
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError as error:
            msg = f"timestamp: {moment!r} is no ISO 8601 time"
            raise Invalid(msg) from error
    if not isinstance(moment, datetime):
        msg = f"timestamp: expected a datetime or ISO 8601 text, got {type(moment).__name__}"
        raise Invalid(msg)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
