"""The face that people import: a lake of tables, and one table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

import pyarrow as pa

from alluvia.clock import Clock, SystemClock
from alluvia.errors import Invalid
from alluvia.log.actions import AddFile
from alluvia.log.paths import LOG_FOLDER
from alluvia.operations import append, create, evolve, history, scan, vacuum
from alluvia.operations import checkpoint as checkpoints
from alluvia.operations import ingest as ingestion
from alluvia.operations import merge as merging
from alluvia.store import Store, open_store
from alluvia.table.handle import TableHandle
from alluvia.table.schema import parse_type
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Commit

REJECTS = "_rejects"
_NAME = re.compile(rf"[a-z][a-z0-9_]{{0,127}}(/{REJECTS})?")
_TIME = pa.timestamp("us", tz="UTC")
_EVENT_START = [
    pa.field("event_id", pa.string(), nullable=False),
    pa.field("ts", _TIME, nullable=False),
    pa.field("event", pa.string()),
    pa.field("source", pa.string()),
]
_EVENT_END = [pa.field("properties", pa.string()), pa.field("received_at", _TIME, nullable=False)]


def connect(uri: str, *, clock: Clock | None = None, **options: str) -> Lake:
    """Open the lake at a URI: `s3://bucket/prefix`, a path, `file:///path` or `memory://name`. Makes no request.

    Options for S3: `endpoint_url`, `region`, `access_key_id`, `secret_access_key`, `session_token`. Raises `Invalid`.
    """
    clock = clock or SystemClock()
    return Lake(open_store(str(uri), clock, **options), clock)


class Lake:
    """Tables below one place. Safe for use from several threads."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self._handles: dict[str, TableHandle] = {}
        self._lock = Lock()

    @property
    def uri(self) -> str:
        """Return where the lake is."""
        return self.store.uri

    def table(self, name: str) -> Table:
        """Return a table by name, without a request; `TableNotFound` comes on first use if there is none.

        `<name>/_rejects` is the table of a table's rejected events.
        """
        return Table(self, self._handle(name))

    def tables(self, *, rejects: bool = False) -> list[str]:
        """Return the names of the tables, in order; those of rejected events too if asked for."""
        found = []
        for name in self.store.list_folders(""):
            candidates = [name, f"{name}/{REJECTS}"] if rejects else [name]
            found += [each for each in candidates if _NAME.fullmatch(each) and self._has_log(each)]
        return found

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

        `schema` is a pyarrow schema, or a mapping of column names to Delta's type names. `partition_by` takes columns
        and `year`, `month`, `day` or `hour` of a time, such as `day(ts)`.
        """
        if not isinstance(schema, pa.Schema):
            schema = pa.schema([(column, parse_type(kind)) for column, kind in schema.items()])
        handle = self._handle(name)
        metadata = create.plan_create(
            schema,
            partition_by=partition_by,
            sort_by=sort_by,
            properties=properties or {},
            table_id=self.clock.new_id(),
            now_ms=self.clock.now_ms(),
        )
        create.create(handle, metadata, exist_ok=exist_ok)
        return Table(self, handle)

    def create_events(
        self,
        name: str,
        columns: pa.Schema | None = None,
        *,
        partition_by: Sequence[str] = ("day(ts)",),
        sort_by: Sequence[str] = ("event", "ts"),
        properties: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> Table:
        """Create a table for ingestion: `event_id, ts, event, source`, declared columns, `properties, received_at`.

        Fields of an event that are no column land in `properties`, JSON text.
        """
        fields = [*_EVENT_START, *(columns or []), *_EVENT_END]
        schema = pa.schema(fields)
        return self.create_table(name, schema, partition_by, sort_by, properties, exist_ok=exist_ok)

    def sql(self, query: str) -> pa.Table:
        """Run one SELECT over the lake's tables, by DuckDB. Raises `Invalid` with DuckDB's message, `TableNotFound`."""
        from alluvia.sql import run

        return run(self, query).read_all()

    def _handle(self, name: str) -> TableHandle:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            msg = f"table name {name!r}: use lower-case letters, digits and underscores, starting with a letter"
            raise Invalid(msg)
        with self._lock:
            if name not in self._handles:
                self._handles[name] = TableHandle(self.store, f"{name}/", name, self.clock)
            return self._handles[name]

    def _has_log(self, name: str) -> bool:
        return next(self.store.list(f"{name}/{LOG_FOLDER}"), None) is not None


class Table:
    """One table of a lake. Methods that write return what they committed."""

    def __init__(self, lake: Lake, handle: TableHandle) -> None:
        self.lake = lake
        self.handle = handle

    @property
    def name(self) -> str:
        """Return the table's name."""
        return self.handle.name

    def snapshot(self, version: int | None = None, timestamp: datetime | str | None = None) -> Snapshot:
        """Return the newest version, or the one with a number, or the newest at a moment.

        Raises `VersionNotFound`, or `VersionExpired`, naming the oldest version that is left.
        """
        return self.handle.snapshot(version, timestamp)

    def append(self, rows: Any, txn: tuple[str, int] | None = None) -> Commit:
        """Append a pyarrow Table or RecordBatchReader, or a list of dicts, in one commit; once for each `txn`."""
        return append.append(self.handle, rows, txn)

    def commit_files(
        self, adds: Sequence[AddFile], txn: tuple[str, int] | None = None, age: timedelta | None = None
    ) -> Commit:
        """Commit data files that were written for this table by its `handle.writer`, once for each `txn`.

        `age` is how old the transaction may grow; one hour by default.
        """
        age_ms_max = None if age is None else int(age / timedelta(milliseconds=1))
        return append.commit_files(self.handle, adds, txn, age_ms_max=age_ms_max)

    def ingest(self, rows: pa.Table) -> ingestion.Ingested:
        """Append events whose `event_id` is new within the table's window, in one commit."""
        return ingestion.ingest(self.handle, rows)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
    ) -> pa.RecordBatchReader:
        """Read rows: the columns asked for, those for which the SQL condition `where` holds, of the newest version."""
        snapshot = self.snapshot(version, timestamp)
        if where is None:
            return scan.scan(snapshot, self.lake.store, columns)
        from alluvia.sql import condition

        parsed = condition(where, snapshot.schema)
        return scan.scan(snapshot, self.lake.store, columns, parsed.predicate, parsed.filter, parsed.columns)

    def history(self, limit: int | None = None) -> list[history.HistoryEntry]:
        """Return the commits that the log holds, newest first."""
        return history.history(self.handle, limit)

    def evolve(
        self, add: pa.Schema | Mapping[str, str] | None = None, properties: Mapping[str, str] | None = None
    ) -> Commit:
        """Add nullable columns, set properties, or both."""
        return evolve.evolve(self.handle, add, properties)

    def merge(
        self, *, target_size: int | None = None, full: bool = False, memory_mb: int | None = None
    ) -> merging.MergeReport:
        """Rewrite small files into sorted bigger ones, without data change, and checkpoint if that is due."""
        return merging.merge(self.handle, target_size=target_size, full=full, memory_mb=memory_mb)

    def vacuum(self, retention: timedelta | None = None, *, dry_run: bool = False) -> vacuum.VacuumReport:
        """Delete what no version within the retention needs."""
        return vacuum.vacuum(self.handle, retention, dry_run=dry_run)

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version, and return that version."""
        self.handle.newest()
        return checkpoints.checkpoint(self.handle)
