"""The tables of a lake by name: one handle each, which stays warm, so that the next use of a table costs less."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from alluvia.access.rights import Rights
from alluvia.clock import Clock
from alluvia.commit.handle import TableHandle
from alluvia.commit.warm_table import WarmTable
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import Metadata
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Corrupt, Invalid, TableNotFound, Unsupported
from alluvia.operations.catalog.catalog import NewTable, WritableCatalog, rejects_handle
from alluvia.operations.catalog.lake_snapshot import LakeSnapshot
from alluvia.operations.catalog.request_batching import RequestGroups
from alluvia.operations.catalog.views import View, find_view
from alluvia.store import Store
from alluvia.table_names import REJECTS, STREAM_LOG, TABLE_OR_REJECTS, check_name, in_order, split_branch

if TYPE_CHECKING:
    from alluvia.operations.branches.branch_reads import Elsewhere
    from alluvia.operations.streams.stream_batches import StreamBatch
    from alluvia.operations.streams.streams import StreamState

HANDLES_MAX = 1000
"""Handles kept, the last used ones: a sweep opens many tables, and callers may name any number that do not exist."""
ABSENT_MS_MAX = 60 * 60 * 1000
"""The time for which a table without rejects is not asked for them again."""


class LakeCatalog:
    """Tables below one place. Safe for use from several threads.

    `branch_tables` finds the tables of another branch by its name. Of a branch, `origin` is its id, and `shown` returns
    those of some tables that it shows.
    """

    rights: Rights | None = None
    """What may be done with them, if not all may."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        branch_tables: Callable[[str], Elsewhere],
        origin: str = "",
        shown: Callable[[list[str]], list[str]] | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.origin = origin
        self.ingestion: RequestGroups[Any, Any] = RequestGroups(clock)
        self._branch_tables = branch_tables
        self._shown = shown
        self._handles: dict[str, WarmTable] = {}
        self._absent: dict[str, int] = {}
        self._lock = Lock()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(TABLE_OR_REJECTS.fullmatch(name)) and self._holds(name, dropped=False)

    def handle(self, name: str) -> TableHandle:
        """Return the handle of a table; of one on a branch, `fix:events`, one to read it by.

        No request, except to find the branch. Raises `Invalid` for what cannot be a table's name, and `TableNotFound`
        where there is no such branch.
        """
        branch, table = split_branch(name)
        if branch:
            return self._branch_tables(branch).handle(table)
        check_name(name)
        return self._handle(name)

    def log_handle(self, name: str) -> TableHandle:
        """Return the handle of a table or of a stream's log, as transactions name them. Raises `Invalid`."""
        return self._handle(name) if STREAM_LOG.fullmatch(name) else self.handle(name)

    def _handle(self, name: str) -> TableHandle:
        with self._lock:
            handle = self._handles.pop(name, None)
            if handle is None:
                overdue = _stream_overdue if STREAM_LOG.fullmatch(name) else _checkpoint_overdue
                handle = WarmTable(self.store, f"{name}/", name, self.clock, overdue, origin=self.origin)
                if len(self._handles) >= HANDLES_MAX:
                    del self._handles[next(iter(self._handles))]
            self._handles[name] = handle  # the last used comes last
            return handle

    def readable(self, names: Iterable[str]) -> dict[str, Snapshot]:
        """Return the tables of some names, those of each branch as they are at one moment, without those not there."""
        asked: dict[str, list[str]] = {}
        for name in dict.fromkeys(names):
            branch, table = split_branch(name)
            asked.setdefault(branch, []).append(table)
        snapshots = self._own_readable(asked.pop("", ()))
        for branch, tables in asked.items():
            with suppress(TableNotFound):
                snapshots |= self._branch_tables(branch).readable(tables)
        return snapshots

    def _own_readable(self, names: Iterable[str]) -> dict[str, Snapshot]:
        asked = [self.handle(name) for name in names]
        handles = []
        for handle in asked:
            with suppress(TableNotFound):
                if len(asked) == 1:
                    return {handle.name: handle.readable()}
                handle.at_hand()
                handles.append(handle)
        # An attached table is of another lake, whose transactions are not this one's.
        own = [handle for handle in handles if handle.attached_place is None]
        now = LakeSnapshot.of_tables(self.store, own)
        snapshots = {handle.name: handle.as_of(now.table(handle.name).shown) for handle in own}
        return snapshots | {handle.name: handle.readable() for handle in handles if handle.attached_place is not None}

    def find_view(self, name: str) -> View | None:
        """Return a view; None if there is none of that name. One LIST, and one GET where there is or was one."""
        return find_view(self.store, name)

    def note_read(self, scan: Scan) -> None:
        """Take note of a query's reads of a table: not needed here."""

    moves_streams = False
    """Whether what is read of a stream counts as read from then on."""

    def find_stream(self, name: str) -> StreamState | None:
        """Return a stream; None if there is none of that name. Two requests where there never was one."""
        from alluvia.operations.streams.streams import find_stream

        return find_stream(self, name)

    def read_stream(self, name: str, max_versions: int | None = None, max_rows: int | None = None) -> StreamBatch:
        """Return what a stream has not given yet. Raises what `streams.next_batch` does."""
        from alluvia.operations.streams.stream_batches import next_batch

        return next_batch(self, name, max_versions, max_rows)

    def tables(self, *, rejects: bool = False, dropped: bool = False) -> list[str]:
        """Return the names of the tables, in order, with those of rejected events and of dropped tables if asked for.

        On S3 this is one LIST per 1,000 tables: a folder with the name of a table counts as one. Only the logs of
        tables that may have been dropped are read and, once an hour, of rejects that this process has not opened.
        """
        from alluvia.operations.tables.drop import may_be_dropped  # what reads tables by name does without

        folders = list(self.store.list_folders(""))
        names = [name for name in folders if TABLE_OR_REJECTS.fullmatch(name)]
        doubtful = may_be_dropped(self.store, folders) if self.store.parallel else set(names)

        def there(name: str) -> bool:
            parent, _, is_rejects = name.partition("/")
            if parent not in doubtful and (not is_rejects or self.handle(name).log.state is not None):
                return True
            now_ms = self.clock.now_ms()
            if self.store.parallel and is_rejects and now_ms - self._absent.get(name, -ABSENT_MS_MAX) < ABSENT_MS_MAX:
                return False
            present = self._holds(name, dropped=dropped)
            if not present:
                self._absent[name] = now_ms
            return present

        wanted = [each for name in names for each in ((name, f"{name}/{REJECTS}") if rejects else (name,))]
        listed = in_order(name for name, present in zip(wanted, self.store.map(there, wanted), strict=True) if present)
        return listed if self._shown is None else self._shown(listed)

    def create(self, name: str, new: NewTable, *, exist_ok: bool, replace: bool = False) -> TableHandle:
        from alluvia.operations.tables.create import create

        metadata = planned(self.clock, name, new)
        if replace:
            raise Invalid("replace: a table is replaced in a transaction: call create_table on lake.transaction()")
        handle = self.handle(name)
        create(handle.own(), metadata, exist_ok=exist_ok, rejects=rejects_handle(self, name))
        return handle

    def _holds(self, name: str, *, dropped: bool) -> bool:
        from alluvia.operations.tables.drop import find_log

        try:
            there, may_be_gone = find_log(self.store, f"{name}/")
        except Unsupported:  # a link leads out of it: it exists, and opening it raises the error
            return True
        if not there or dropped or not may_be_gone:
            return there
        try:
            self.handle(name).readable()
        except TableNotFound:
            return False
        except Corrupt:  # it exists, and opening it raises the error
            return True
        return True


class OfCatalog(ABC):
    """A part of the API that works on the tables of one catalog."""

    @property
    @abstractmethod
    def catalog(self) -> WritableCatalog:
        """Return the tables as they are seen here, for operations and queries."""


def planned(clock: Clock, name: str, new: NewTable) -> Metadata:
    """Return the metadata of a new table. Raises `Invalid`, naming what is wrong."""
    from alluvia.operations.tables.create import check_constraints, plan_create

    check_name(name)
    metadata = plan_create(new, clock.new_id(), clock.now_ms())
    check_constraints(metadata)
    return metadata


def _stream_overdue(handle: WarmTable) -> None:
    from alluvia.operations.checkpointing import checkpoint_overdue

    checkpoint_overdue(handle, _vacuum)  # no round over tables comes here


def _vacuum(handle: TableHandle) -> None:
    from alluvia.operations.retention.vacuum import vacuum  # few writers need it

    vacuum(handle, names_max=0)  # as far as this process may delete


def _checkpoint_overdue(handle: WarmTable) -> None:
    from alluvia.operations.checkpointing import checkpoint_overdue

    checkpoint_overdue(handle)
