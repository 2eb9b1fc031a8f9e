"""A caller's view of a lake: the tables that it may open, and their visible rows and columns.

A row filter is part of the relation that stands for the table in a query, and a wall within it: DuckDB evaluates no
part of the query on a row before the filter has let it through, so not even an error reveals other rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.access.rights import READ, WRITE, Rights
from alluvia.commit.handle import ReadableTable
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.lineage import is_dropped
from alluvia.delta.promoted_fields import PROPERTIES
from alluvia.delta.skipping.predicate import Predicate
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.predicates import all_of
from alluvia.errors import Forbidden, Invalid, TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.catalog.views import View
from alluvia.operations.reading.relations import ShownPart, hidden_columns, hidden_keys, newest_versions
from alluvia.table_names import check_name, split_branch

if TYPE_CHECKING:
    from alluvia.engine.conditions.condition import Condition
    from alluvia.operations.streams.stream_batches import StreamBatch
    from alluvia.operations.streams.streams import StreamState


class NotedCatalog:
    """A catalog that notes which tables and views are opened by name, also on behalf of `<table>_final` and the like.

    A query needs the right to read all of them.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.store = catalog.store
        self.clock = catalog.clock
        self.rights = catalog.rights
        self.origin = catalog.origin
        self.moves_streams = catalog.moves_streams
        self.opened: set[str] = set()
        self._catalog = catalog

    def __contains__(self, name: object) -> bool:
        return name in self._catalog

    def handle(self, name: str) -> ReadableTable:
        handle = self._catalog.handle(name)
        self.opened.add(name)
        return handle

    def readable(self, names: Iterable[str]) -> dict[str, Snapshot]:
        snapshots = self._catalog.readable(names)
        self.opened.update(snapshots)
        return snapshots

    def find_view(self, name: str) -> View | None:
        view = self._catalog.find_view(name)
        if view is not None:
            self.opened.add(name)
        return view

    def find_stream(self, name: str) -> StreamState | None:
        stream = self._catalog.find_stream(name)
        if stream is not None:
            self.opened.add(stream.source)
        return stream

    def read_stream(self, name: str, max_versions: int | None = None, max_rows: int | None = None) -> StreamBatch:
        self.find_stream(name)
        return self._catalog.read_stream(name, max_versions, max_rows)

    def note_read(self, scan: Scan) -> None:
        self._catalog.note_read(scan)

    def tables(self, *, rejects: bool = False, dropped: bool = False) -> list[str]:
        return self._catalog.tables(rejects=rejects, dropped=dropped)


class _PinnedCatalog(NotedCatalog):
    """A catalog that shows the newest version of a table that it has shown before, also to later queries."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog)
        self._pinned: dict[str, Snapshot] = {}

    def readable(self, names: Iterable[str]) -> dict[str, Snapshot]:
        wanted = set(names)
        self._pinned |= super().readable(wanted - self._pinned.keys())
        return {name: self._pinned[name] for name in wanted if name in self._pinned}


def pinned(catalog: Catalog) -> Catalog:
    """Return a catalog that shows the same versions to several queries."""
    return _PinnedCatalog(catalog)


def permitted(catalog: Catalog, rights: Rights | None) -> Catalog:
    """Return the tables that a caller may read; without rights, all of them."""
    return catalog if rights is None else _PermittedCatalog(catalog, rights)


class _PermittedCatalog:
    """A catalog that opens only what may be read, and lists and finds nothing else."""

    def __init__(self, catalog: Catalog, rights: Rights) -> None:
        self.store = catalog.store
        self.clock = catalog.clock
        self._catalog = catalog
        self.rights = rights
        self.origin = catalog.origin
        self.moves_streams = catalog.moves_streams

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.rights.may(READ, name) and name in self._catalog

    def handle(self, name: str) -> ReadableTable:
        check_name(split_branch(name)[1])
        self.rights.check(READ, name)
        return self._catalog.handle(name)

    def readable(self, names: Iterable[str]) -> dict[str, Snapshot]:
        return self._catalog.readable(name for name in names if self.rights.may(READ, name))

    def find_view(self, name: str) -> View | None:
        return self._catalog.find_view(name) if self.rights.may(READ, name) else None

    def find_stream(self, name: str) -> StreamState | None:
        stream = self._catalog.find_stream(name)
        return stream if stream is not None and self.rights.may(READ, stream.source) else None

    def read_stream(self, name: str, max_versions: int | None = None, max_rows: int | None = None) -> StreamBatch:
        stream = self.find_stream(name)
        if stream is None:
            raise TableNotFound(f"the lake has no stream {name!r:.100}")
        self.rights.check_sees_all(f"stream {name}", (stream.source,))
        if self.moves_streams:
            self.rights.check(WRITE, name)
        return self._catalog.read_stream(name, max_versions, max_rows)

    def note_read(self, scan: Scan) -> None:
        self._catalog.note_read(scan)

    def tables(self, *, rejects: bool = False, dropped: bool = False) -> list[str]:
        there = self._catalog.tables(rejects=rejects, dropped=dropped)
        return [name for name in there if self.rights.may(READ, name)]


@dataclass(frozen=True, slots=True)
class Visible:
    """`shown` of a table, the columns that its filters read, and what they need of files."""

    shown: ShownPart
    filtered_by: tuple[str, ...]
    predicate: Predicate


def visible(catalog: Catalog, snapshot: Snapshot, now_us: int) -> Visible | None:
    """Return what may be seen of a version; None: all of it. `now_us` is the query's time, in µs since the Unix epoch.

    Raises `Forbidden` where nothing would be left to see, or a row filter does not fit the version.
    """
    restriction = None if catalog.rights is None else catalog.rights.restriction(snapshot.name)
    if not restriction:
        return None
    newest = newest_versions(catalog, snapshot.name)
    hidden = hidden_columns(snapshot, newest, restriction.hide)
    columns = [name for name in snapshot.schema.names if name not in hidden]
    if not columns:
        raise Forbidden(f"this caller may see no column of {snapshot.name}")
    without = hidden_keys(snapshot, newest, restriction.hide) if PROPERTIES in columns else ()
    filters = [_filter(text, snapshot) for text in restriction.where]
    used = tuple(dict.fromkeys(name for each in filters for name in each.columns))
    _check_same(used, snapshot, [one for one in newest if not is_dropped(one.properties)])
    where = tuple(
        text if each.never_fails(snapshot.schema) else f"TRY(\n{text}\n)"
        for text, each in zip(restriction.where, filters, strict=True)
    )
    predicate = all_of(each.predicate_at(snapshot.schema, now_us) for each in filters)
    return Visible(ShownPart(tuple(columns), where, without), used, predicate)


def visible_schema(catalog: Catalog, snapshot: Snapshot) -> pa.Schema:
    """Return the columns that a catalog's caller may see of a version; none if it may see nothing of it."""
    try:
        seen = visible(catalog, snapshot, catalog.clock.now_ms() * 1000)
    except Forbidden:
        return pa.schema([])
    return snapshot.schema if seen is None else seen.shown.schema(snapshot)


def _filter(text: str, snapshot: Snapshot) -> Condition:
    from alluvia.engine.conditions.condition import condition  # most callers have no row filter

    try:
        return condition(text, snapshot.schema)
    except Invalid as error:
        raise _unfit(snapshot) from error


def _check_same(used: Sequence[str], snapshot: Snapshot, newest: Sequence[Snapshot]) -> None:
    """Raise `Forbidden` where a filter's columns are others in this version than they are now."""
    for name in used:
        for one in newest:
            if name not in one.schema.names or one.physical_name(name) != snapshot.physical_name(name):
                raise _unfit(snapshot)


def _unfit(snapshot: Snapshot) -> Forbidden:
    return Forbidden(f"the row filter of this caller does not fit version {snapshot.version} of {snapshot.name}")
