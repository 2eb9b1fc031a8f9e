"""The public API: a lake of tables, and one table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alluvia import notebook, other_names
from alluvia.clock import Clock, SystemClock
from alluvia.errors import AlluviaError, Invalid, NotInstalled
from alluvia.ingest.tables import EVENTS_PARTITIONED, EVENTS_SORTED, event_schema
from alluvia.log.actions import AddFile
from alluvia.log.files.file_set import ActionSet
from alluvia.operations import append, drop, evolve, scan
from alluvia.operations import checkpoint as checkpoints
from alluvia.operations import ingest as ingestion
from alluvia.operations.catalog import Catalog
from alluvia.store import Store, open_store, open_wide_store
from alluvia.store.uris import table_place
from alluvia.table.arguments import check_number, check_place, schema_of
from alluvia.table.handle import TableHandle
from alluvia.table.properties import ROLLUP
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import TRANSACTION_AGE_MS_MAX, Commit
from alluvia.table_names import REJECTS

if TYPE_CHECKING:
    from alluvia.operations import erase_report, history, restore, vacuum_report
    from alluvia.operations import expire as expiring
    from alluvia.operations import optimize as optimizing
    from alluvia.operations.edits import RowChanges
    from alluvia.operations.relations import Evaluate
    from alluvia.rollups import asking
    from alluvia.rollups import refresh as refreshing
    from alluvia.verify.report import VerifyReport
    from alluvia.verify.verification import Progress


def connect(uri: str | os.PathLike[str], *, clock: Clock | None = None, **options: str) -> Lake:
    """Open the lake at a URI: `s3://bucket/prefix`, a path, `file:///path` or `memory://name`. Makes no request.

    Options for S3: `endpoint_url`, `region`, `access_key_id`, `secret_access_key`, `session_token`. Raises `Invalid`.
    """
    check_place("uri", uri)
    clock = clock or SystemClock()
    return Lake(open_store(str(uri), clock, **options), clock)


def open_table(uri: str | os.PathLike[str], *, clock: Clock | None = None, **options: str) -> Table:
    """Open any Delta table by its path or URI, in the forms that `connect` accepts. Makes no request.

    Reads files that the log names by absolute path anywhere in the same file system or bucket, as a shallow clone
    needs (a lake reads only what is below its own root). If there is no table, the first use raises `TableNotFound`.
    """
    check_place("uri", uri)
    clock = clock or SystemClock()
    parent, name = table_place(str(uri))
    lake = Lake(open_wide_store(parent, clock, **options), clock)
    return Table(lake, TableHandle(lake.store, f"{name}/" if name else "", name or parent, clock))


class Lake(Catalog):
    """The tables below one path or URI. Thread-safe."""

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        if clock is None:
            raise TypeError("lakes come from alluvia.connect(uri)")
        super().__init__(store, clock)

    @property
    def uri(self) -> str:
        """Return where the lake is."""
        return self.store.uri

    def __getitem__(self, name: str) -> Table:
        return self.table(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def __repr__(self) -> str:
        return f"<Lake {self.uri!r}>"

    def _repr_html_(self) -> str:
        names = self.tables()
        return notebook.table(f"Lake {self.uri}", f"{len(names):,} tables", ("table",), [(name,) for name in names])

    def _ipython_key_completions_(self) -> list[str]:
        return self.tables()

    if not TYPE_CHECKING:  # else type checkers would take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            raise other_names.no_attribute("Lake", name, other_names.LAKE)

    def table(self, name: str) -> Table:
        """Return a table by name, without a request. If there is none, the first use raises `TableNotFound`.

        `<name>/_rejects` is the table of the rejected events.
        """
        return Table(self, self.handle(name))

    def dropped(self) -> list[drop.Dropped]:
        """Return the dropped tables that `undrop` can bring back."""
        return [table for name in self.tables(dropped=True) for table in drop.dropped_here(self.handle(name))]

    def create_table(
        self,
        name: str,
        schema: pa.Schema | Mapping[str, str],
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        *,
        cluster_by: Sequence[str] = (),
        exist_ok: bool = False,
    ) -> Table:
        """Create a table, in one request. Raises `TableExists` or `Invalid`.

        `schema` is a pyarrow schema, or a mapping of column names to Delta's type names or pyarrow's types.
        `partition_by` takes columns; `year`, `month`, `day` or `hour` of a time, such as `day(ts)`; and `bucket(16, c)`
        or `truncate(c, 2)` of text or whole numbers. Rows of a partition are sorted by the columns `sort_by`; or they
        are clustered by up to four columns, `cluster_by`, so that a query for values of any of them reads few files.
        """
        handle = self.create(
            name, schema_of(schema), partition_by, sort_by, properties, cluster_by=cluster_by, exist_ok=exist_ok
        )
        return Table(self, handle)

    def create_rollup(
        self,
        name: str,
        query: str,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        cluster_by: Sequence[str] = (),
        fill: bool = True,
    ) -> Table:
        """Create a table that is kept up to date with a query: `SELECT …, count(*) … FROM source GROUP BY …`.

        It is filled at once, unless `fill` is false, and afterwards by `refresh`. By default, its files are sorted by
        the columns of GROUP BY. Raises `TableExists`, `TableNotFound`, and `Invalid` for a query that cannot be kept,
        or fails on the rows that are there: then there is no rollup.
        """
        from alluvia.rollups import creating

        evaluate = self.evaluation()
        creating.create_rollup(self, name, query, evaluate, partition_by, sort_by, properties, cluster_by)
        table = self.table(name)
        if fill:
            try:
                table.refresh()
            except Invalid as error:
                self.drop_table(name)
                raise type(error)(f"{error}\nThe rollup was not created.") from error
        return table

    def rollups(self, source: str | None = None, *, nested: bool = False) -> list[str]:
        """Return the names of the rollups, or of those of one source; with `nested`, also of its rollups, and so on.

        Each comes after the rollup that is its source, so that they can be refreshed in this order.
        """
        from alluvia.rollups import creating

        return creating.rollups_of(self, source, nested=nested)

    def evaluation(self, memory_mb: int | None = None) -> Evaluate:
        """Return what computes rollups, within a memory limit in MB, and no longer than a transaction may take.

        DuckDB, in a process of its own, gets two thirds of it: the rest is for what the two processes hold besides.
        """
        from alluvia.query.evaluation import evaluation
        from alluvia.query.limits import QueryLimits

        memory_bytes = None if memory_mb is None else memory_mb * 1_000_000 * 2 // 3
        return evaluation(self.store, QueryLimits(TRANSACTION_AGE_MS_MAX / 1000, memory_bytes))

    def convert(
        self,
        path: str,
        name: str,
        *,
        partition_types: Mapping[str, str | pa.DataType] | None = None,
        sort_by: Sequence[str] = (),
        cluster_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Turn a directory of Parquet files, Hive partitions included, into a table, without rewriting the files.

        The directory becomes the table, so it must be where a table of that name belongs: `path` is `name`, relative
        to the lake's root, or the full path or URI of that place. From then on the directory belongs to the table:
        files added to it in other ways are not part of the table, and vacuum deletes them after a day. Types of
        partition columns come from `partition_types`, or are inferred (`long`, `date`, `timestamp`, `string`). Raises
        `TableExists`, and `Invalid`, naming the file and the column, if the files cannot form a table.
        """
        from alluvia.operations import convert

        handle = self.handle(name)
        convert.check_place(self.store, path, handle)
        convert.convert(
            handle, partition_types=partition_types, sort_by=sort_by, cluster_by=cluster_by, properties=properties
        )
        return Table(self, handle)

    def drop_table(self, name: str) -> Commit:
        """Drop a table and its rejected events, in one commit each. Deletes no files. Raises `TableNotFound`.

        `undrop` brings it back until vacuum deletes its files. The name is free immediately. A table with rollups is
        refused with `Invalid`.
        """
        from alluvia.rollups.creating import check_no_rollups

        check_no_rollups(self, name)
        return drop.drop_table(self.handle(name), self.rejects_handle(name))

    def undrop(self, name: str, version: int | None = None) -> drop.UndropReport:
        """Bring back the last dropped table of a name, or the one dropped in a given version, with its rejects.

        Raises `TableExists` if there is a table of that name, `VersionExpired` if vacuum has deleted its files.
        """
        return drop.undrop_table(self.handle(name), self.rejects_handle(name), version)

    def create_events(
        self,
        name: str,
        columns: pa.Schema | None = None,
        *,
        partition_by: Sequence[str] = EVENTS_PARTITIONED,
        sort_by: Sequence[str] | None = None,
        cluster_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> Table:
        """Create a table for ingestion: `event_id, ts, event, source`, declared columns, `properties, received_at`.

        Fields without a column go into `properties`, as JSON text. Rows are sorted by `event` and `ts` by default.
        """
        if sort_by is None:
            sort_by = () if cluster_by else EVENTS_SORTED
        schema = event_schema(columns)
        return self.create_table(
            name, schema, partition_by, sort_by, properties, cluster_by=cluster_by, exist_ok=exist_ok
        )

    def sql(self, query: str) -> pa.Table:
        """Run one SELECT over the lake's tables. Raises `TableNotFound`, or `Invalid` with DuckDB's message."""
        from alluvia.query.engine import run

        return run(self, query).read_all()


class Table:
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
    def files(self) -> ActionSet[AddFile]:
        """Return the data files of the newest version; `len()` of them is cheap."""
        return self.snapshot().files

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

    def snapshot(self, version: int | None = None, timestamp: datetime | str | None = None) -> Snapshot:
        """Return the newest version, the version with a number, or the newest version at a given time.

        Raises `VersionNotFound`, or `VersionExpired`, naming the oldest version that is left.
        """
        return self._handle.snapshot(version, timestamp)

    def append(self, rows: Any, txn: tuple[str, int] | None = None, *, evolve: bool = False) -> Commit:
        """Append a pyarrow Table or RecordBatchReader, or a list of dicts, in one commit, and only once per `txn`.

        With `evolve`, the same commit adds columns that the table does not have, as nullable columns.
        """
        if evolve:
            from alluvia.operations import append_evolving

            return append_evolving.append_evolving(self._handle, rows, txn)
        return append.append(self._handle, rows, txn)

    def commit_files(
        self, adds: Sequence[AddFile], txn: tuple[str, int] | None = None, age: timedelta | None = None
    ) -> Commit:
        """Commit data files that a `FileWriter` wrote for this table, only once per `txn`.

        `age` is the maximum age of the transaction; one hour by default.
        """
        age_ms_max = None if age is None else int(age / timedelta(milliseconds=1))
        return append.commit_files(self._handle, adds, txn, age_ms_max=age_ms_max)

    def ingest(self, rows: pa.Table, contents: Sequence[bytes] | None = None) -> ingestion.Ingested:
        """Append events whose `event_id` is new to their source within the table's window, in one commit.

        contents: a 4-byte hash per row, which tells the same event from a different one with its id; without it, the
        row's columns are compared. Rows with different content under a known id are not stored: see `Ingested.clashes`.
        """
        return ingestion.ingest(self._handle, rows, contents)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> pa.RecordBatchReader:
        """Read the rows of a version (the newest by default) that match the SQL condition `where`."""
        return scan.scan(self.snapshot(version, timestamp), self.lake.store, columns, where)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> pa.Table:
        """Read rows, as `scan` does, into memory."""
        return self.scan(columns, where, version, timestamp).read_all()

    def final(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> pa.Table:
        """Read rows as the table's merge query folds them, whatever has been merged already; arguments as for `scan`.

        Raises `Invalid` for a table without a merge query.
        """
        from alluvia.operations import folding

        return folding.final(self.snapshot(version, timestamp), self.lake.evaluation(), columns, where)

    def to_pandas(self, *args: Any, **options: Any) -> Any:
        """Read rows into a pandas DataFrame; takes what `to_arrow` takes. Raises `NotInstalled`."""
        _optional("pandas")
        return self.to_arrow(*args, **options).to_pandas()

    def to_polars(self, *args: Any, **options: Any) -> Any:
        """Read rows into a polars DataFrame; takes what `to_arrow` takes. Raises `NotInstalled`."""
        return _optional("polars").from_arrow(self.to_arrow(*args, **options))

    def count(self, version: int | None = None, timestamp: datetime | str | None = None) -> int:
        """Return the number of rows. Reads a data file only if its statistics do not say it."""
        return scan.count(self.snapshot(version, timestamp), self.lake.store)

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

    def restore(self, version: int | None = None, timestamp: datetime | str | None = None) -> restore.RestoreReport:
        """Restore the table to a version or a time, without rewriting data."""
        from alluvia.operations import restore

        return restore.restore(self._handle, version, timestamp)

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
        self, add: pa.Schema | Mapping[str, str] | None = None, properties: Mapping[str, str | None] | None = None
    ) -> Commit:
        """Add nullable columns, set properties (None removes one), or both."""
        return evolve.evolve(self._handle, add, properties)

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

    def erase(self, where: str, *, prove: bool = False, dry_run: bool = False) -> erase_report.EraseReport:
        """Delete the rows that match, everything that still holds them, and what shows their values, rejects included.

        Files are rewritten, old ones deleted at once, and earlier versions can no longer be read. With `prove`, every
        object of the table is searched afterwards. A dry run only searches. A rollup is refreshed first. If it fails
        or stops, call it again. Raises `Invalid` for an append-only table.
        """
        from alluvia.ingest import erasing

        if dry_run:
            return erasing.prove_erased(self.lake, self._handle, where)
        if self.is_rollup:
            self.refresh()
        return erasing.erase_rows(self.lake, self._handle, where, proof=prove)

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version, and return that version."""
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
