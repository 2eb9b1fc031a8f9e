"""The public API: one table of a lake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alluvia import notebook, other_names
from alluvia.errors import AlluviaError, NotInstalled
from alluvia.inspection.listing import DataFiles
from alluvia.lake_tags import TableTags
from alluvia.log.actions import AddFile
from alluvia.table.arguments import check_number
from alluvia.table.handle import TableHandle
from alluvia.table.properties import ROLLUP
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Commit
from alluvia.table_names import REJECTS

if TYPE_CHECKING:
    from alluvia.ingest import replay as replaying
    from alluvia.ingest import suggest as suggesting
    from alluvia.lake import Lake
    from alluvia.operations import erase_report, history, restore, vacuum_report
    from alluvia.operations import expire as expiring
    from alluvia.operations import ingest as ingestion
    from alluvia.operations import optimize as optimizing
    from alluvia.operations.edits import RowChanges
    from alluvia.rollups import asking
    from alluvia.rollups import refresh as refreshing
    from alluvia.verify.report import VerifyReport
    from alluvia.verify.verification import Progress


class Table(TableTags):
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
            raise other_names.no_attribute("Table", name, other_names.TABLE)

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
        if evolve:
            from alluvia.operations import append_evolving

            return append_evolving.append_evolving(self._handle, rows, txn)
        from alluvia.operations import append

        return append.append(self._handle, rows, txn)

    def commit_files(
        self, adds: Sequence[AddFile], txn: tuple[str, int] | None = None, age: timedelta | None = None
    ) -> Commit:
        """Commit data files that a `FileWriter` wrote for this table, only once per `txn`.

        `age` is the maximum age of the transaction; one hour by default.
        """
        from alluvia.operations import append

        age_ms_max = None if age is None else int(age / timedelta(milliseconds=1))
        return append.commit_files(self._handle, adds, txn, age_ms_max=age_ms_max)

    def ingest(self, rows: pa.Table, contents: Sequence[bytes] | None = None) -> ingestion.Ingested:
        """Append events whose `event_id` is new to their source within the table's window, in one commit.

        contents: a 4-byte hash per row, which tells the same event from a different one with its id; without it, the
        row's columns are compared. Rows with different content under a known id are not stored: see `Ingested.clashes`.
        """
        from alluvia.operations import ingest as ingestion

        return ingestion.ingest(self._handle, rows, contents)

    def suggest(self, sample: int = 10_000) -> list[suggesting.Suggestion]:
        """Return the fields of the newest events, rejected ones too, that have no column, with the types that fit.

        `evolve(add={each.field: each.type})` makes columns of them.
        """
        from alluvia.ingest import suggest

        return suggest.suggest(self.lake, self.name, sample)

    def replay_rejects(self, where: str | None = None) -> replaying.Replayed:
        """Ingest the table's rejected events again, each once, after what they did not fit was changed.

        where: an SQL condition on the columns of `<name>/_rejects`. What still does not fit stays there. Raises
        `Conflict` where other writers change the tables all the time: a second call goes on with the rest.
        """
        from alluvia.ingest import replay

        return replay.replay(self.lake, self.name, where)

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
        from alluvia.operations import scan

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
        from alluvia.operations import folding

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
        from alluvia.operations import scan

        return scan.count(self._readable(version, timestamp, tag), self.lake.store)

    def delete(self, where: str) -> RowChanges:
        """Delete the rows that match an SQL condition; `"true"` deletes all."""
        from alluvia.operations.delete import delete

        return delete(self._handle, where)

    def update(self, values: Mapping[str, str], where: str | None = None) -> RowChanges:
        """Set columns to SQL expressions, in the rows that match a condition, or in all rows without one."""
        from alluvia.operations.update import update

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
        from alluvia.operations.upsert import Rules, upsert

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
        from alluvia.operations import restore

        return restore.restore(self._handle, version, timestamp, offset, tag)

    def changes(
        self, from_version: int, to_version: int | None = None, *, expired: bool = False
    ) -> pa.RecordBatchReader:
        """Read the rows that versions inserted and deleted (both ends included), with change type, version and time.

        Rows that expired are left out; with `expired` they have the change type `expire`.
        """
        from alluvia.operations import changes

        return changes.changes(self._handle, from_version, to_version, expired=expired)

    def history(self, limit: int | None = None) -> list[history.HistoryEntry]:
        """Return the commits in the log, newest first, and whether their versions can still be read."""
        from alluvia.operations import history

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
        they have been rewritten and vacuumed.
        """
        from alluvia.operations import evolve

        if rename or drop:
            from alluvia.operations import column_changes
            from alluvia.rollups.creating import check_not_used

            column_changes.check_changes(rename, drop)
            check_not_used(self.lake, self.name, [*(rename or {}), *drop])
        return evolve.evolve(self._handle, add, properties, rename, drop)

    def optimize(
        self,
        *,
        target_size: int | None = None,
        full: bool = False,
        order: str = "smallest",
        partition: Mapping[str, object] | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        memory_mb: int | None = None,
        dry_run: bool = False,
        go_on: Callable[[], bool] = lambda: True,
        turn: AbstractContextManager[object] | None = None,
    ) -> optimizing.OptimizeReport:
        """Rewrite small files into larger, sorted ones, without changing data, and write a checkpoint if one is due.

        `order` is `smallest`, `oldest` or `newest` first. `partition` restricts it to some values of fields of
        `partition_by`, such as `{"country": "de", "day(ts)": "2026-01-31"}`. `max_files` and `max_bytes` limit what is
        read. A dry run only plans: see the report's `plan`. `go_on` is called before each group of files; when it
        returns false, the rest is left. `memory_mb` is how much memory this process may take in all, in MB; what does
        not fit is sorted on disk. `turn` is held while rows are rewritten, so that several tables share that limit.
        """
        from alluvia.operations import optimize as optimizing

        return optimizing.optimize(
            self._handle,
            optimizing.OptimizeOptions(target_size, full, order, partition, max_files, max_bytes),
            memory_mb=memory_mb,
            dry_run=dry_run,
            go_on=go_on,
            turn=turn,
            evaluation=self.lake.evaluation,
        )

    def refresh(self, *, rebuild: bool = False, memory_mb: int | None = None) -> refreshing.RefreshReport:
        """Bring a rollup up to date with its source, exactly once for each version of the source.

        Groups that lost rows are computed again; new rows are added to theirs where all aggregates are count, sum, min,
        max, bool_and or bool_or. With `rebuild`, all groups are computed again: what has expired in the source is lost.
        Raises `Invalid` for a table that is not a rollup or has lost its source, and if the rollup can only be rebuilt
        but rows of its source have expired.
        """
        from alluvia.rollups import refresh as refreshing

        check_number("memory_mb", memory_mb)
        return refreshing.refresh(self.lake, self.name, self.lake.evaluation(memory_mb), rebuild=rebuild)

    @property
    def is_rollup(self) -> bool:
        """Return whether the table is a rollup."""
        return ROLLUP in self._handle.at_hand().properties

    def freshness(self) -> asking.Freshness:
        """Return which version of its source a rollup shows, and how many it is behind. Raises `Invalid`."""
        from alluvia.rollups import asking

        return asking.freshness(self.lake, self.snapshot())

    def expire(self, *, dry_run: bool = False) -> expiring.ExpireReport:
        """Remove the files whose rows are all older than `alluvia.ttl`; for rejects without one, that of their table.

        A dry run only says which. Removed files are deleted by vacuum, after the table's retention.
        """
        from alluvia.operations import expire as expiring

        self.lake.check_whole("expire")  # published, expired rows would count as deleted
        parent, found, _ = self.name.partition(f"/{REJECTS}")
        return expiring.expire(self._handle, ttl_of=self.lake.handle(parent) if found else None, dry_run=dry_run)

    def vacuum(
        self,
        retention: timedelta | None = None,
        *,
        dry_run: bool = False,
        time_limit: timedelta | None = None,
        names_max: int | None = None,
    ) -> vacuum_report.VacuumReport:
        """Delete what no version within the retention needs; a dry run says what would go, and why the rest stays.

        After `time_limit` it stops, and the next vacuum goes on. `names_max` limits the names of a kind in the report.
        """
        from alluvia.operations import vacuum

        return vacuum.vacuum(self._handle, retention, dry_run=dry_run, time_limit=time_limit, names_max=names_max)

    def erase(
        self, where: str, *, prove: bool = False, dry_run: bool = False, release_tags: bool = False
    ) -> erase_report.EraseReport:
        """Delete the rows that match, everything that still holds them, and what shows their values, rejects included.

        Files are rewritten, old ones deleted at once, and earlier versions can no longer be read. With `prove`, every
        object of the table is searched afterwards. A dry run only searches. A rollup is refreshed first, and rollups of
        the table once the rows are deleted. If it fails or stops, call it again. Tags whose versions hold such rows
        are deleted with `release_tags`. Raises `Invalid` for an append-only table, and, before anything is changed,
        for such tags without it, and clones and branches that hold such rows.
        """
        from alluvia.ingest import erasing

        self.lake.check_whole("erase")
        if dry_run:
            return erasing.prove_erased(self.lake, self._handle, where)
        if self.is_rollup:
            self.refresh()
        failed: dict[str, str] = {}

        def refresh_rollups() -> None:
            for name in self.lake.rollups(self.name, nested=True):
                try:
                    self.lake.table(name).refresh()
                except AlluviaError as error:  # which must not keep the rows from being erased
                    failed[name] = str(error)

        report = erasing.erase_rows(
            self.lake, self._handle, where, proof=prove, before_removal=refresh_rollups, release_tags=release_tags
        )
        return replace(report, rollups_failed=failed)

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version, and return that version."""
        from alluvia.operations import checkpoint as checkpoints

        self._handle.newest()
        return checkpoints.checkpoint(self._handle)

    def verify(self, *, full: bool = False, progress: Progress | None = None) -> VerifyReport:
        """Check the table for damage and report everything found; `full` reads every row. Writes nothing.

        `progress` is called with what is being read (`log` or `files`), how much is done, and the total. Damage is
        reported, not raised. Raises `Unsupported` for a table with a feature that this library cannot read.
        """
        from alluvia.verify import verification as verify

        return verify.verify(self._handle, full=full, progress=progress)


Table.optimize.__dict__.update(compact=other_names.compact, z_order=other_names.compact)


def _optional(package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        msg = f"{package} is not installed: pip install {package}"
        raise NotInstalled(msg, name=package) from error
