"""The public API: one table of a lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alluvia import notebook
from alluvia.api import api_hints
from alluvia.api.lake_maintenance import TableMaintenance
from alluvia.api.lake_tags import TableTags
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import Commit
from alluvia.delta.log.actions import AddFile
from alluvia.delta.properties import DEDUP_WINDOW
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import AlluviaError, NotInstalled
from alluvia.inspection.listing import DataFiles

if TYPE_CHECKING:
    from alluvia.api.lake import Lake
    from alluvia.events.ingest import replay as replaying
    from alluvia.events.ingest import suggest as suggesting
    from alluvia.operations.append import ingest as ingestion
    from alluvia.operations.reading import history
    from alluvia.operations.rows.edits import RowChanges
    from alluvia.operations.tables import restore


class Table(TableMaintenance, TableTags):
    """One table of a lake. Methods that write return what they committed."""

    def __init__(self, lake: Lake, handle: TableHandle | None = None) -> None:
        if handle is None:
            raise TypeError("tables come from lake.table(name), and from alluvia.open_table(uri)")
        self.lake = lake
        self._handle = handle

    @property
    def name(self) -> str:
        """Return the table's name."""
        return self._handle.name

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the newest version. Looks for new commits, as `version` and `files` do."""
        return self.snapshot().schema

    @property
    def version(self) -> int:
        """Return the number of the newest version."""
        return self.snapshot().version

    @property
    def files(self) -> DataFiles:
        """Return the data files of the newest version; `len()` of them is cheap.

        Called, as in `table.files(where="ts >= '2026-01-31'")`, they give those that a condition leaves, for other
        engines: their URLs, sizes, partition values and deletion vectors.
        """
        return DataFiles(self._handle)

    def __repr__(self) -> str:
        state = self._handle.log.state
        return f"<Table {self.name!r} of {self.lake.uri!r}{'' if state is None else f', version {state.version}'}>"

    def _repr_html_(self) -> str:
        try:
            return self.snapshot()._repr_html_()
        except AlluviaError as error:
            return notebook.table(self.name, str(error), (), ())

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise api_hints.no_attribute("Table", name, api_hints.TABLE)

    def snapshot(
        self, version: int | None = None, timestamp: datetime | str | None = None, tag: str | None = None
    ) -> Snapshot:
        """Return the newest version, the version with a number, the newest at a given time, or the one with a tag.

        A tag is the table's, or else the lake's. Raises `VersionNotFound`, or `VersionExpired`, naming the oldest
        version that is left.
        """
        return self._handle.snapshot(version, timestamp) if tag is None else self._tagged(version, timestamp, tag)

    def append(self, rows: Any, txn: tuple[str, int] | None = None, *, evolve: bool = False) -> Commit:
        """Append a pyarrow Table or RecordBatchReader, or a list of dicts, in one commit, and only once per `txn`.

        With `evolve`, the same commit adds columns that the table does not have, as nullable columns.
        """
        from alluvia.operations.append import append

        return (append.append_evolving if evolve else append.append)(self._handle, rows, txn)

    def commit_files(
        self, adds: Sequence[AddFile], txn: tuple[str, int] | None = None, age: timedelta | None = None
    ) -> Commit:
        """Commit data files that a `FileWriter` wrote for this table, only once per `txn`.

        `age` is the maximum age of the transaction; one hour by default.
        """
        from alluvia.operations.append import append

        age_ms_max = None if age is None else int(age / timedelta(milliseconds=1))
        return append.commit_files(self._handle, adds, txn, age_ms_max=age_ms_max)

    def ingest(self, rows: pa.Table, contents: Sequence[bytes] | None = None) -> ingestion.Ingested:
        """Append events whose `event_id` is new to their source within the table's window, in one commit.

        contents: a 4-byte hash per row, which tells the same event from a different one with its id; without it, the
        row's columns are compared. Rows with different content under a known id are not stored: see `Ingested.clashes`.
        """
        from alluvia.operations.append import ingest as ingestion

        return ingestion.ingest(self._handle, rows, contents)

    def suggest(self, sample: int = 10_000) -> list[suggesting.Suggestion]:
        """Return the fields of the newest events, rejected ones too, that have no column, with the types that fit.

        `evolve(add={each.field: each.type})` makes columns of them.
        """
        from alluvia.events.ingest import suggest

        return suggest.suggest(self.lake, self.name, sample)

    def replay_rejects(self, where: str | None = None) -> replaying.Replayed:
        """Ingest the table's rejected events again, each once, after what they did not fit was changed.

        where: an SQL condition on the columns of `<name>/_rejects`. What still does not fit stays there. Raises
        `Conflict` where other writers change the tables all the time: a second call goes on with the rest.
        """
        from alluvia.events.ingest import replay
        from alluvia.events.sources.receiving import Rereader

        return replay.replay(self.lake, self.name, Rereader(self.lake.store).read, where)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
    ) -> pa.RecordBatchReader:
        """Read the rows of a version (the newest by default) that match the SQL condition `where`.

        The version has a number, a time at which it was the newest, or a tag.
        """
        from alluvia.operations.reading import scan

        return scan.scan(self._readable(version, timestamp, tag), self.lake.store, columns, where)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
    ) -> pa.Table:
        """Read rows, as `scan` does, into memory."""
        return self.scan(columns, where, version, timestamp, tag).read_all()

    def final(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
    ) -> pa.Table:
        """Read rows as the table's merge query folds them, whatever has been merged already; arguments as for `scan`.

        Raises `Invalid` for a table without a merge query.
        """
        from alluvia.operations.merge_query import folding

        return folding.final(self._readable(version, timestamp, tag), self.lake.evaluation(), columns, where)

    def to_pandas(self, *args: Any, **options: Any) -> Any:
        """Read rows into a pandas DataFrame; takes what `to_arrow` takes. Raises `NotInstalled`."""
        _optional("pandas")
        return self.to_arrow(*args, **options).to_pandas()

    def to_polars(self, *args: Any, **options: Any) -> Any:
        """Read rows into a polars DataFrame; takes what `to_arrow` takes. Raises `NotInstalled`."""
        return _optional("polars").from_arrow(self.to_arrow(*args, **options))

    def count(self, version: int | None = None, timestamp: datetime | str | None = None, tag: str | None = None) -> int:
        """Return the number of rows. Reads a data file only if its statistics do not say it."""
        from alluvia.operations.reading import scan

        return scan.count(self._readable(version, timestamp, tag), self.lake.store)

    def delete(self, where: str) -> RowChanges:
        """Delete the rows that match an SQL condition; `"true"` deletes all."""
        from alluvia.operations.rows.where_edits import delete

        return delete(self._handle, where)

    def update(self, values: Mapping[str, str], where: str | None = None) -> RowChanges:
        """Set columns to SQL expressions, in the rows that match a condition, or in all rows without one."""
        from alluvia.operations.rows.where_edits import update

        return update(self._handle, values, where)

    def upsert(
        self,
        rows: Any,
        on: Sequence[str],
        *,
        matched: str = "update",
        columns: Sequence[str] | None = None,
        when: str | None = None,
        delete_when: str | None = None,
        unmatched: str | None = None,
        insert_when: str | None = None,
    ) -> RowChanges:
        """Insert or update rows by the key columns `on`, with one new row per key.

        `matched` says what happens to a row with the key of a new row: `"update"` it (in `columns`, by default all
        columns of the new rows), `"delete"` it, or `"ignore"` it. `when` limits that to rows that match an SQL
        condition. Rows that match `delete_when` are deleted, whatever `matched` says. `unmatched` says what happens to
        new rows whose key no row has: `"insert"` (the default unless `matched="delete"`) or `"ignore"`; `insert_when`
        limits the inserts. Conditions refer to the new row's columns as `new.<column>`, including columns that the
        table does not have.
        """
        from alluvia.operations.rows.upsert import Rules, upsert

        return upsert(self._handle, rows, on, Rules(matched, columns, when, delete_when, unmatched, insert_when))

    def restore(
        self,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        *,
        offset: str | int | None = None,
        tag: str | None = None,
    ) -> restore.RestoreReport:
        """Restore the table to a version, a time, how long ago it was (`1 hour ago`), or a tag; rewrites no data."""
        from alluvia.operations.tables import restore

        return restore.restore(self._handle, version, timestamp, offset, tag)

    def changes(
        self, from_version: int, to_version: int | None = None, *, expired: bool = False
    ) -> pa.RecordBatchReader:
        """Read the rows that versions inserted and deleted (both ends included), with change type, version and time.

        Rows that expired are left out; with `expired` they have the change type `expire`.
        """
        from alluvia.operations.changes import changes

        return changes.changes(self._handle, from_version, to_version, expired=expired)

    def history(self, limit: int | None = None) -> list[history.HistoryEntry]:
        """Return the commits in the log, newest first, and whether their versions can still be read."""
        from alluvia.operations.reading import history

        return history.history(self._handle, limit)

    def evolve(
        self,
        add: pa.Schema | Mapping[str, str] | None = None,
        properties: Mapping[str, str | None] | None = None,
        *,
        rename: Mapping[str, str] | None = None,
        drop: Sequence[str] = (),
    ) -> Commit:
        """Add nullable columns, set properties (None removes one), rename columns and drop columns, in one commit.

        `rename` has new names by old ones. No data is rewritten: what files hold of a dropped column is deleted once
        they have been rewritten and vacuumed. A longer `alluvia.dedup_window` also holds for the table's rejects.
        """
        from alluvia.operations.tables import evolve

        if rename or drop:
            from alluvia.operations.tables import column_changes
            from alluvia.rollups.creating import check_not_used

            column_changes.check_changes(rename, drop)
            check_not_used(self.lake, self.name, [*(rename or {}), *drop])
        commit = evolve.evolve(self._handle, add, properties, rename, drop)
        if DEDUP_WINDOW in (properties or {}):
            self._lengthen_window_of_rejects()
        return commit

    def _lengthen_window_of_rejects(self) -> None:
        from alluvia.events.ingest.event_tables import find_rejects, lengthen_window

        rejects = find_rejects(self.lake, self._handle)
        if rejects is not None:
            lengthen_window(rejects, self._handle.at_hand())


def _optional(package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        msg = f"{package} is not installed: pip install {package}"
        raise NotInstalled(msg, name=package) from error
