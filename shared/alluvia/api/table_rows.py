"""The public API: the rows and columns of one table, of a lake or in a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import wraps
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, overload

import pyarrow as pa

from alluvia import notebook
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import Commit
from alluvia.delta.arguments import schema_of
from alluvia.delta.properties import DEDUP_WINDOW, ROLLUP
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import AlluviaError, Invalid, NotInstalled
from alluvia.inspection.listing import DataFiles
from alluvia.operations.catalog.views import NamingViews

if TYPE_CHECKING:
    from alluvia.api.lake import Lake
    from alluvia.events.ingest.dict_events import Events, EventsOutcome
    from alluvia.operations.append import ingest as ingestion
    from alluvia.operations.references.tags import Tag
    from alluvia.operations.rows.edits import RowChanges
    from alluvia.operations.tables import restore
    from alluvia.operations.tables.evolve import Evolved


_Methods = TypeVar("_Methods")


def naming_views(methods: type[_Methods]) -> type[_Methods]:
    """Have the methods of a table say that there is a view of its name where there is no such table."""

    def named(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(self: TableRows, *args: Any, **options: Any) -> Any:
            with NamingViews(self.lake.store, self.name):
                return method(self, *args, **options)

        return call

    for name, method in list(vars(methods).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(methods, name, named(method))
    return methods


@naming_views
class TableRows:
    """Reads and changes the rows and columns of one table, of a lake or in a transaction.

    Methods that write return what they committed.
    """

    def __init__(self, lake: Lake, handle: TableHandle) -> None:
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
    def comment(self) -> str | None:
        """Return the table's comment, which is the `description` in Delta's log."""
        return self.snapshot().comment

    @property
    def column_comments(self) -> dict[str, str]:
        """Return the comments of the columns that have one, by name."""
        return self.snapshot().column_comments

    @property
    def version(self) -> int:
        """Return the number of the newest version."""
        return self.snapshot().version

    @property
    def is_rollup(self) -> bool:
        """Return whether the table is a rollup."""
        return ROLLUP in self._handle.at_hand().properties

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

    @overload
    def ingest(self, events: pa.Table, contents: Sequence[bytes] | None = None) -> ingestion.Ingested: ...
    @overload
    def ingest(self, events: Events, *, key: str | None = None, create: bool = True) -> EventsOutcome: ...
    def ingest(
        self,
        events: pa.Table | Events,
        contents: Sequence[bytes] | None = None,
        *,
        key: str | None = None,
        create: bool = True,
    ) -> ingestion.Ingested | EventsOutcome:
        """Store events, each once: one dict, or a list or an iterator of dicts, like those posted to a server.

        Fields without a column go into `properties`, an event that does not fit becomes a reject with its reason, and
        one without an `event_id` gets an id. If there is a `key`, the id is made of it and the position, so that
        repeating the call adds none. 10,000 events or 4 MiB are one commit. A missing table is created, unless `create`
        is false.

        Of a pyarrow Table, whose rows have the table's columns, those are appended whose `event_id` is new to their
        source within the table's window, in one commit. contents: a 4-byte hash per row, which tells the same event
        from a different one with its id; without it, the row's columns are compared. Rows with different content under
        a known id are not stored: see `Ingested.clashes`.
        """
        if isinstance(events, pa.Table):
            from alluvia.operations.append import ingest as ingestion

            return ingestion.ingest(self._handle, events, contents)
        if self._handle.is_staged:
            raise Invalid("events: in a transaction, ingest takes a pyarrow table; dicts go in by lake.table(…).ingest")
        from alluvia.events.ingest.dict_events import ingest_dicts

        return ingest_dicts(self.lake.catalog, self.name, events, key, create=create)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
        *,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Read the rows of a version (the newest by default) that match the SQL condition `where`, at most `limit`.

        The version has a number, a time at which it was the newest, or a tag.
        """
        from alluvia.operations.reading import scan

        return scan.scan(self._readable(version, timestamp, tag, where), self.lake.store, columns, where, limit)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
        *,
        limit: int | None = None,
    ) -> pa.Table:
        """Read rows, as `scan` does, into memory."""
        return self.scan(columns, where, version, timestamp, tag, limit=limit).read_all()

    def to_pandas(self, *args: Any, **options: Any) -> Any:
        """Read rows into a pandas DataFrame; takes what `to_arrow` takes. Raises `NotInstalled`."""
        _optional("pandas")
        return self.to_arrow(*args, **options).to_pandas()

    def to_polars(self, *args: Any, **options: Any) -> Any:
        """Read rows into a polars DataFrame; takes what `to_arrow` takes. Raises `NotInstalled`."""
        return _optional("polars").from_arrow(self.to_arrow(*args, **options))

    def count(
        self,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
        *,
        where: str | None = None,
    ) -> int:
        """Return the number of rows, or of those that match the SQL condition `where`.

        Without a condition, it reads a data file only if its statistics do not say the number.
        """
        from alluvia.operations.reading import scan

        snapshot = self._readable(version, timestamp, tag, where)
        if where is None:
            return scan.count(snapshot, self.lake.store)
        return sum(len(batch) for batch in scan.scan(snapshot, self.lake.store, snapshot.schema.names[:1], where))

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

    def evolve(
        self,
        add: pa.Schema | Mapping[str, str] | None = None,
        properties: Mapping[str, str | None] | None = None,
        *,
        rename: Mapping[str, str] | None = None,
        drop: Sequence[str] = (),
        force: bool = False,
    ) -> Evolved:
        """Add nullable columns, set properties (None removes one), rename columns and drop columns, in one commit.

        `rename` has new names by old ones. No data is rewritten: what files hold of a dropped column is deleted once
        they have been rewritten and vacuumed. A longer `alluvia.dedup_window` also holds for the table's rejects.

        A column that is added to a table with text `properties` is a promoted field: old and new rows have it in both
        (`optimize(backfill=True)` moves the old ones). The answer names the views, rollups, merge queries and published
        queries whose SQL names such a field.

        Raises `Invalid`, naming it, where SQL of the lake (the above, and row filters of tokens) would fail or mean
        something else with the new columns, such as an alias of a new column's name. `force` changes them all the same.
        """
        from alluvia.operations.tables import evolve

        if rename or drop:
            from alluvia.operations.tables import column_changes
            from alluvia.rollups.creating import check_not_used

            column_changes.check_changes(rename, drop)
            check_not_used(self.lake.catalog, self.name, [*(rename or {}), *drop])
        if (add or rename or drop) and not force:
            from alluvia.query.field_uses import check_change

            check_change(self.lake.catalog, self._handle, add, properties, rename, drop)
        commit = evolve.evolve(self._handle, add, properties, rename, drop)
        if DEDUP_WINDOW in (properties or {}) and not self._handle.is_staged:  # else the next reject does
            from alluvia.events.ingest.event_tables import find_rejects, lengthen_window

            rejects = find_rejects(self.lake.catalog, self._handle)
            if rejects is not None:
                lengthen_window(rejects, self._handle.at_hand())
        if not add:
            return commit
        added = set(schema_of(add).names)
        promoted = tuple(field.column for field in self._handle.at_hand().promoted if field.column in added)
        if not promoted or self._handle.is_staged:
            return replace(commit, promoted=promoted)
        from alluvia.query.field_uses import field_uses

        return replace(commit, promoted=promoted, named_in=tuple(field_uses(self.lake.catalog, self.name, promoted)))

    def set_comment(self, comment: str | None, column: str | None = None) -> Commit:
        """Give the table, or a column of it, a comment; None removes it. Raises `Invalid` for a missing column."""
        from alluvia.operations.tables import comments

        return comments.set_comment(self._handle, comment, column)

    def tags(self) -> list[Tag]:
        """Return the table's own tags, in the order of their names. Those of the lake count for its tables as well."""
        from alluvia.operations.references import tags

        return tags.table_tags(self._handle)

    def _readable(
        self, version: int | None, timestamp: datetime | str | None, tag: str | None, where: str | None = None
    ) -> Snapshot:
        """Return the newest version as readers see it, or the one that is asked for."""
        readable = self._handle.readable
        return readable(version, timestamp, where) if tag is None else self._tagged(version, timestamp, tag)

    def _tagged(self, version: int | None, timestamp: datetime | str | None, tag: str) -> Snapshot:
        from alluvia.operations.references import tags

        if version is not None or timestamp is not None:
            raise Invalid("version, timestamp, tag: give one of them")
        return tags.tagged(self._handle, tag)


def _optional(package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        msg = f"{package} is not installed: pip install {package}"
        raise NotInstalled(msg, name=package) from error
