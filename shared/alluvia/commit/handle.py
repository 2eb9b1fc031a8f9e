"""Protocols of a table, for the operations that read and change it. Nothing inherits from an implementation.

`WarmTable` is a table of a lake; a transaction over several tables and queries of other branches have their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from alluvia.clock import Clock
from alluvia.commit.changes import Changes
from alluvia.commit.commit_offers import Contention
from alluvia.commit.transaction import TRANSACTION_AGE_MS_MAX, Commit, OnLost
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.log import Log
from alluvia.delta.log.replay import State
from alluvia.delta.snapshot import Snapshot
from alluvia.store import Store

if TYPE_CHECKING:
    from alluvia.commit.event_window.window import DedupWindow
    from alluvia.delta.data_files.writer import FileWriter, RowCheck


class ReadableTable(Protocol):
    """A table to be read, at `root` (a key prefix ending in `/`) of a store."""

    @property
    def store(self) -> Store:
        """The store that its files and its log are in."""

    @property
    def root(self) -> str:
        """Where they are in it."""

    @property
    def name(self) -> str:
        """The table's name."""

    @property
    def clock(self) -> Clock:
        """The clock for its times."""

    @property
    def log(self) -> Log:
        """Its log, which several handles may share."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock that threads which share the log hold while they use it."""

    @property
    def attached_place(self) -> str | None:
        """Where an attached table is, once it has been opened; None for any other."""

    @property
    def is_read_only(self) -> bool:
        """Whether the table is attached or external, once it has been opened."""

    @property
    def committed(self) -> ReadableTable:
        """The table without what a transaction has staged."""

    def newest(self, *, dropped: bool = False) -> Snapshot:
        """Return the newest version, looking for new commits. Raises `TableNotFound`.

        With `dropped` also that of a table that was dropped: no files, but all that vacuum needs.
        """

    def at_hand(self, *, dropped: bool = False) -> Snapshot:
        """Return the newest version that is known here, without a request if one is.

        With `dropped` also that of a table that was dropped, which is looked for.
        """

    def known_state(self) -> State:
        """Return the newest state that is known here, also of a table that was dropped; opened if none is known.

        Raises `ReadOnly` for an attached table, whose transactions are those of another lake.
        """

    def snapshot(self, version: int | None = None, timestamp: datetime | str | None = None) -> Snapshot:
        """Return the newest version, the one with a number, or the newest at a moment (naive times are UTC).

        Raises `VersionNotFound`, and `VersionExpired`, naming the oldest version left, where retention has removed it.
        A version that has a number and a keeper stays (`kept_versions`).
        """

    def readable(
        self, version: int | None = None, timestamp: datetime | str | None = None, where: str | None = None
    ) -> Snapshot:
        """Return what a reader sees: as `snapshot`, with transactions that have happened but are not in the log yet.

        Those are in the newest version's log within milliseconds, unless the process that commits them has died.
        `where` is the condition of the rows that will be read: a transaction notes which they are.
        """

    def as_of(self, state: State) -> Snapshot:
        """Return a state of the log as a version of the table. Raises `TableNotFound` if that was dropped."""

    def carry_out(self, snapshot: Snapshot) -> bool:
        """Commit the transactions over several tables that have happened but are not in a snapshot, if there are any.

        Returns whether there are. One GET for each claim that stands.
        """


class TableHandle(ReadableTable, Protocol):
    """A table to be read and changed."""

    window: DedupWindow | None
    """The ids of its events that are known here."""

    @property
    def contention(self) -> Contention:
        """Whether other writers have been met."""

    @property
    def is_staged(self) -> bool:
        """Whether changes are kept until a transaction over several tables commits."""

    def own(self) -> TableHandle:
        """Return a handle of the log at the table's own place, also where that says that the table is elsewhere."""

    def check_own(self) -> None:
        """Raise `ReadOnly` for a table that is attached or external, once it has been opened."""

    def waiting_events(self) -> Mapping[bytes, set[bytes]]:
        """Return the events, by fingerprint with their contents, that a transaction has yet to commit."""

    def transaction(
        self, base: Snapshot, age_ms_max: int = TRANSACTION_AGE_MS_MAX, *, upkeep: bool = False
    ) -> TableTransaction:
        """Begin a transaction on a snapshot. Raises `Unsupported` for a table that this library must not write.

        An external table takes only `upkeep`: vacuum and refresh.
        """

    def writer(self, snapshot: Snapshot, check: RowCheck | None = None) -> FileWriter:
        """Return a writer of data files for a snapshot's table; `check` raises for rows that may not be written."""


class TableTransaction(Protocol):
    """One change of a table, planned on a snapshot."""

    def commit(self, changes: Changes, on_lost: OnLost | None = None, *, backs_off: bool = True) -> Commit | None:
        """Commit the changes, or stage them. After a lost race, `on_lost` sees the winners, as `Transaction` has it."""

    def check(self, winners: Sequence[CommitActions], changes: Changes) -> frozenset[str]:
        """Raise a `Conflict` if commits that came first change what some changes rest on.

        Returns the files that hold now what was read.
        """
