"""A transaction over several tables, as users see it: `with lake.transaction() as tx:`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from alluvia.api import api_hints
from alluvia.api.lake import Lake
from alluvia.api.lake_catalog import planned
from alluvia.api.lake_creation import TableCreation
from alluvia.api.lake_table import Table
from alluvia.api.table_rows import TableRows
from alluvia.commit.handle import TableHandle
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, ReadOnly, TableNotFound
from alluvia.operations.catalog.catalog import NewTable, WritableCatalog
from alluvia.operations.catalog.request_batching import RequestGroups
from alluvia.operations.catalog.views import View
from alluvia.operations.transactions.lake_commit import ISOLATION
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia.table_names import STREAM_LOG, folder_name, split_branch

if TYPE_CHECKING:
    from alluvia.api.lake_stream import Stream
    from alluvia.operations.streams.stream_batches import StreamBatch
    from alluvia.operations.streams.streams import StreamState
    from alluvia.query.parameters import Parameters


class LakeTransaction(TableCreation["TransactionTable"]):
    """Reads tables at one moment, with its own changes on top, and commits to all of them or to none.

    Leaving the `with` block commits; an exception in it discards everything. Not for use by several threads.
    """

    def __init__(self, lake: Lake, tables: Sequence[str], isolation: str, *, whole_lake: bool = False) -> None:
        if isolation not in ISOLATION:
            raise Invalid(f"isolation: expected one of {', '.join(ISOLATION)}, got {isolation!r}")
        self._lake = lake
        self._isolation = isolation
        self._tables = StagedTables(lake.catalog, tables, whole_lake=whole_lake)
        self._catalog = _TransactionCatalog(lake.catalog, self._tables)
        self._over = False
        self.versions: Mapping[str, int] = {}
        """The versions that the commit made of the tables that it changed, by name; empty before it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._over:
            self.commit()
        self._over = True

    def table(self, name: str) -> TransactionTable:
        """Return a table as the transaction sees it. Raises `TableNotFound`."""
        self._check_open()
        return TransactionTable(self._lake, self._tables.handle(folder_name(name)))

    def drop_table(self, name: str) -> None:
        """Drop a table and its rejected events. Raises `TableNotFound`, and `Invalid` for a table with rollups."""
        from alluvia.rollups.creating import check_no_rollups

        name = folder_name(name)
        self._check_open()
        check_no_rollups(self._lake.catalog, name)
        self._tables.drop(name)

    def stream(self, name: str) -> Stream:
        """Return a stream. What is read of it counts as read if the transaction commits, and writes something else.

        Of two transactions that read the same changes and commit, one raises `Conflict`.
        """
        from alluvia.api.lake_stream import Stream

        self._check_open()
        return Stream(self._catalog, name)

    def note_written(self) -> None:
        """Have the streams that were read move with the commit, also if no table changes."""
        self._tables.wrote = True

    @property
    def catalog(self) -> WritableCatalog:
        """Return the tables as the transaction sees them, for queries."""
        self._check_open()
        return self._catalog

    def sql(self, text: str, parameters: Parameters | None = None) -> pa.Table:
        """Run SQL statements over the tables as the transaction sees them, and in it. Takes what `Lake.sql` takes.

        BEGIN, COMMIT and ROLLBACK are refused: the transaction is this one.
        """
        from alluvia.sql.run import execute_in

        self._check_open()
        return execute_in(self._lake, self, text, parameters)

    def commit(self) -> None:
        """Commit what was done, all of it or nothing. Raises `Conflict` where what was read has changed since."""
        self._check_open()
        self._over = True
        self.versions = self._tables.commit(self._isolation)

    def rollback(self) -> None:
        """Discard what was done."""
        self._over = True

    def _check_open(self) -> None:
        if self._over:
            raise Invalid("the transaction is over: begin another with lake.transaction()")


class TransactionTable(TableRows):
    """A table in a transaction. What it writes is committed with the transaction."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if hasattr(Table, name):
                raise Invalid(f"{name} cannot be part of a transaction: call it on lake.table(…)")
            raise api_hints.no_attribute("TransactionTable", name, api_hints.TABLE, dir(type(self)))


class _TransactionCatalog:
    """The tables of a lake as a transaction sees them."""

    def __init__(self, catalog: WritableCatalog, tables: StagedTables) -> None:
        self._catalog = catalog
        self._tables = tables
        self.store = catalog.store
        self.clock = catalog.clock
        self.rights = catalog.rights
        self.origin = catalog.origin
        self.ingestion: RequestGroups[Any, Any] = RequestGroups(catalog.clock)

    def __contains__(self, name: object) -> bool:
        return name in self._catalog

    def handle(self, name: str) -> TableHandle:
        if split_branch(name)[0]:
            return self._catalog.handle(name)
        try:
            return self._tables.handle(name)
        except ReadOnly:  # attached, or external: it is read as it is now, and cannot be part of what commits
            return self._catalog.handle(name)

    def log_handle(self, name: str) -> TableHandle:
        return self._catalog.log_handle(name) if STREAM_LOG.fullmatch(name) else self.handle(name)

    def create(self, name: str, new: NewTable, *, exist_ok: bool, replace: bool = False) -> TableHandle:
        metadata = planned(self.clock, name, new)
        if replace:
            from alluvia.rollups.creating import check_no_rollups

            check_no_rollups(self._catalog, name)
        return self._tables.create(name, metadata, exist_ok=exist_ok, replace=replace)

    def readable(self, names: Iterable[str]) -> dict[str, Snapshot]:
        wanted = set(names)
        asked = {name for name in wanted if not split_branch(name)[0]}
        snapshots = self._catalog.readable(wanted - asked)
        with suppress(TableNotFound, ReadOnly):  # then one by one
            self._tables.use(asked)
        for name in asked:
            with suppress(TableNotFound):
                snapshots[name] = self.handle(name).newest()
        return snapshots

    def find_view(self, name: str) -> View | None:
        return self._catalog.find_view(name)

    moves_streams = True

    def find_stream(self, name: str) -> StreamState | None:
        return self._catalog.find_stream(name)

    def read_stream(self, name: str, max_versions: int | None = None, max_rows: int | None = None) -> StreamBatch:
        return self._tables.read_stream(name, max_versions, max_rows)

    def note_read(self, scan: Scan) -> None:
        if split_branch(scan.snapshot.name)[0]:
            return  # the transaction has no such table
        if self._catalog.handle(scan.snapshot.name).is_read_only:
            return
        staged = self._tables.handle(scan.snapshot.name)
        if scan.snapshot.version == staged.newest().version:
            staged.read(scan)

    def tables(self, *, rejects: bool = False, dropped: bool = False) -> list[str]:
        there = self._catalog.tables(rejects=rejects, dropped=dropped)
        return self._tables.listed(there)
