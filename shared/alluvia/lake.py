"""The face that people import: a lake of tables, and one table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from alluvia import notebook, other_names
from alluvia.clock import Clock, SystemClock
from alluvia.errors import AlluviaError, NotInstalled
from alluvia.ingest.tables import EVENTS_PARTITIONED, EVENTS_SORTED, event_schema
from alluvia.log.actions import AddFile
from alluvia.log.files.file_set import ActionSet
from alluvia.operations import append, drop, evolve, scan
from alluvia.operations import checkpoint as checkpoints
from alluvia.operations import ingest as ingestion
from alluvia.operations.catalog import Catalog
from alluvia.store import Store, open_store, open_wide_store
from alluvia.table.arguments import check_place, schema_of
from alluvia.table.handle import TableHandle
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Commit

if TYPE_CHECKING:
    from alluvia.operations import history, restore, vacuum
    from alluvia.operations import optimize as optimizing
    from alluvia.operations.edits import RowChanges
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
    """Open a Delta table where it lies, whoever made it: a path or URI as `connect` takes it. Makes no request.

    Files that its log names by absolute paths are read wherever they lie in its file system or bucket, as those of a
    shallow clone do (a lake reads only what lies below its own root). `TableNotFound` comes on first use.
    """
    check_place("uri", uri)
    clock = clock or SystemClock()
    parent, name = _split_uri(str(uri))
    lake = Lake(open_wide_store(parent, clock, **options), clock)
    return Table(lake, TableHandle(lake.store, f"{name}/" if name else "", name or parent, clock))


def _split_uri(uri: str) -> tuple[str, str]:
    """Return the place that a table lies in, and its folder there (empty where the place is a bucket's root)."""
    if "://" not in uri:
        path = Path(os.path.abspath(Path(uri).expanduser()))  # noqa: PTH100 - resolve() would follow links
        return str(path.parent), path.name
    scheme, _, rest = uri.partition("://")
    parent, _, name = rest.rstrip("/").rpartition("/")
    if scheme == "file":
        return f"{scheme}://{parent or '/'}", unquote(name)
    return (f"{scheme}://{parent}", name) if parent else (f"{scheme}://{name}", "")


class Lake(Catalog):
    """Tables below one place. Safe for use from several threads."""

    def __init__(self, store: Store, clock: Clock | None = None) -> None:
        if clock is None:
            msg = "lakes come from alluvia.connect(uri)"
            raise TypeError(msg)
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
        """Return a table by name, without a request; `TableNotFound` comes on first use if there is none.

        `<name>/_rejects` is the table of a table's rejected events.
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
        exist_ok: bool = False,
    ) -> Table:
        """Create a table, in one request. Raises `TableExists` or `Invalid`.

        `schema` is a pyarrow schema, or a mapping of column names to Delta's type names or pyarrow's types.
        `partition_by` takes columns and `year`, `month`, `day` or `hour` of a time, such as `day(ts)`.
        """
        handle = self.create(name, schema_of(schema), partition_by, sort_by, properties, exist_ok=exist_ok)
        return Table(self, handle)

    def convert(
        self,
        path: str,
        name: str,
        *,
        partition_types: Mapping[str, str | pa.DataType] | None = None,
        sort_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Make a table of a directory of Parquet files, Hive partitions included, by naming the files in its log.

        The directory becomes the table, so it must lie where the table of that name does: `path` is `name`, from the
        lake's root, or the whole path or URI of that place. From then on the directory is the table's alone: files
        that come into it otherwise are no part of the table, and vacuum deletes them after a day. Types of partition
        columns are those of `partition_types`, else inferred (`long`, `date`, `timestamp`, `string`). Raises
        `TableExists`, and `Invalid`, naming the file and the column, for what cannot be a table.
        """
        from alluvia.operations import convert

        handle = self.handle(name)
        convert.check_place(self.store, path, handle)
        convert.convert(handle, partition_types=partition_types, sort_by=sort_by, properties=properties)
        return Table(self, handle)

    def drop_table(self, name: str) -> Commit:
        """Drop a table and its rejected events, in one commit each, deleting nothing. Raises `TableNotFound`.

        `undrop` brings it back until vacuum has taken its files; a new table of the name may be created at once.
        """
        return drop.drop_table(self.handle(name), self.rejects_handle(name))

    def undrop(self, name: str, version: int | None = None) -> drop.UndropReport:
        """Bring back the table of a name that was dropped last, or in the commit of a version, with its rejects.

        Raises `TableExists` while there is a table of that name, `VersionExpired` once vacuum has taken its files.
        """
        return drop.undrop_table(self.handle(name), self.rejects_handle(name), version)

    def create_events(
        self,
        name: str,
        columns: pa.Schema | None = None,
        *,
        partition_by: Sequence[str] = EVENTS_PARTITIONED,
        sort_by: Sequence[str] = EVENTS_SORTED,
        properties: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> Table:
        """Create a table for ingestion: `event_id, ts, event, source`, declared columns, `properties, received_at`.

        Fields of an event that are no column land in `properties`, JSON text.
        """
        return self.create_table(name, event_schema(columns), partition_by, sort_by, properties, exist_ok=exist_ok)

    def sql(self, query: str) -> pa.Table:
        """Run one SELECT over the lake's tables, by DuckDB. Raises `Invalid` with DuckDB's message, `TableNotFound`."""
        from alluvia.query.engine import run

        return run(self, query).read_all()


class Table:
    """One table of a lake. Methods that write return what they committed."""

    def __init__(self, lake: Lake, handle: TableHandle | None = None) -> None:
        if handle is None:
            msg = "tables come from lake.table(name), and from alluvia.open_table(uri)"
            raise TypeError(msg)
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
        """Return the newest version, or the one with a number, or the newest at a moment.

        Raises `VersionNotFound`, or `VersionExpired`, naming the oldest version that is left.
        """
        return self._handle.snapshot(version, timestamp)

    def append(self, rows: Any, txn: tuple[str, int] | None = None, *, evolve: bool = False) -> Commit:
        """Append a pyarrow Table or RecordBatchReader, or a list of dicts, in one commit; once for each `txn`.

        With `evolve`, columns that the table does not have are added to it, nullable, in the same commit.
        """
        if evolve:
            from alluvia.operations import append_evolving

            return append_evolving.append_evolving(self._handle, rows, txn)
        return append.append(self._handle, rows, txn)

    def commit_files(
        self, adds: Sequence[AddFile], txn: tuple[str, int] | None = None, age: timedelta | None = None
    ) -> Commit:
        """Commit data files that were written for this table by a `FileWriter`, once for each `txn`.

        `age` is how old the transaction may grow; one hour by default.
        """
        age_ms_max = None if age is None else int(age / timedelta(milliseconds=1))
        return append.commit_files(self._handle, adds, txn, age_ms_max=age_ms_max)

    def ingest(self, rows: pa.Table, contents: Sequence[bytes] | None = None) -> ingestion.Ingested:
        """Append events whose `event_id` is new to their source within the table's window, in one commit.

        contents: a hash of 4 bytes for each row, by which the same event is told from another of its id; without it,
        the row's columns count. Rows that bring other content under a known id are not stored: see `Ingested.clashes`.
        """
        return ingestion.ingest(self._handle, rows, contents)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> pa.RecordBatchReader:
        """Read rows: the columns asked for, those for which the SQL condition `where` holds, of the newest version."""
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

    def to_pandas(self, *args: Any, **options: Any) -> Any:
        """Read rows into a pandas DataFrame; takes what `to_arrow` takes. Raises `NotInstalled`."""
        _optional("pandas")
        return self.to_arrow(*args, **options).to_pandas()

    def to_polars(self, *args: Any, **options: Any) -> Any:
        """Read rows into a polars DataFrame; takes what `to_arrow` takes. Raises `NotInstalled`."""
        return _optional("polars").from_arrow(self.to_arrow(*args, **options))

    def count(self, version: int | None = None, timestamp: datetime | str | None = None) -> int:
        """Return the number of rows; reads no data file where statistics say it."""
        from alluvia.operations import count

        return count.count(self.snapshot(version, timestamp), self.lake.store)

    def delete(self, where: str) -> RowChanges:
        """Delete the rows for which an SQL condition holds; `"true"` deletes all."""
        from alluvia.operations.delete import delete

        return delete(self._handle, where)

    def update(self, values: Mapping[str, str], where: str | None = None) -> RowChanges:
        """Set columns to SQL expressions in the rows for which a condition holds; in all rows without one."""
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
        """Put rows into the table by the key columns `on`, one row for each key.

        A row with the key of a new one is updated, `matched="update"` (in `columns`, by default all that the new rows
        have), deleted, `"delete"`, or left, `"ignore"`; with `when`, only where that SQL condition holds. Where
        `delete_when` holds it is deleted, whatever `matched` says. New rows whose key no row has are inserted,
        `unmatched="insert"` (the default unless `matched="delete"`), or not, `"ignore"`; with `insert_when`, where that
        holds. Conditions name the new row's columns `new.<column>`, also such as the table does not have.
        """
        from alluvia.operations.upsert import Rules, upsert

        return upsert(self._handle, rows, on, Rules(matched, columns, when, delete_when, unmatched, insert_when))

    def restore(self, version: int | None = None, timestamp: datetime | str | None = None) -> restore.RestoreReport:
        """Make the table what it was at a version or at a moment, without rewriting data."""
        from alluvia.operations import restore

        return restore.restore(self._handle, version, timestamp)

    def changes(self, from_version: int, to_version: int | None = None) -> pa.RecordBatchReader:
        """Read the rows that versions inserted and deleted, both ends included, with `_change_type`, and when."""
        from alluvia.operations import changes

        return changes.changes(self._handle, from_version, to_version)

    def history(self, limit: int | None = None) -> list[history.HistoryEntry]:
        """Return the commits that the log holds, newest first."""
        from alluvia.operations import history

        return history.history(self._handle, limit)

    def evolve(
        self, add: pa.Schema | Mapping[str, str] | None = None, properties: Mapping[str, str] | None = None
    ) -> Commit:
        """Add nullable columns, set properties, or both."""
        return evolve.evolve(self._handle, add, properties)

    def optimize(
        self,
        *,
        target_size: int | None = None,
        full: bool = False,
        memory_mb: int | None = None,
        go_on: Callable[[], bool] = lambda: True,
        turn: AbstractContextManager[object] | None = None,
    ) -> optimizing.OptimizeReport:
        """Rewrite small files into sorted bigger ones, without data change, and checkpoint if that is due.

        `go_on` is asked before each group of files: once it says no, the rest is left. `turn` is held while rows are
        rewritten, so that several tables at once share one limit of memory.
        """
        from alluvia.operations import optimize as optimizing

        return optimizing.optimize(
            self._handle,
            target_size=target_size,
            full=full,
            memory_mb=memory_mb,
            go_on=go_on,
            turn=turn,
        )

    def vacuum(self, retention: timedelta | None = None, *, dry_run: bool = False) -> vacuum.VacuumReport:
        """Delete what no version within the retention needs."""
        from alluvia.operations import vacuum

        return vacuum.vacuum(self._handle, retention, dry_run=dry_run)

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version, and return that version."""
        self._handle.newest()
        return checkpoints.checkpoint(self._handle)

    def verify(self, *, full: bool = False, progress: Progress | None = None) -> VerifyReport:
        """Look for damage, and report all that is wrong with it; `full` reads every row. Nothing is ever written.

        `progress` is told what is being read, `log` or `files`, how much is done, and how much there is. Damage is
        reported, not raised; `Unsupported` is, for a table with a feature that this library cannot read.
        """
        from alluvia.verify import verification as verify

        return verify.verify(self._handle, full=full, progress=progress)


Table.optimize.__dict__.update(compact=other_names.compact, z_order=other_names.compact)


def _optional(package: str) -> Any:
    """Import a package that Alluvia does not depend on."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        msg = f"{package} is not installed: pip install {package}"
        raise NotInstalled(msg, name=package) from error
