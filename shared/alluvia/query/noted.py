"""A lake's tables with a note of those that a query opens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from alluvia.commit.handle import TableHandle
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.snapshot import Snapshot
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.catalog.views import View

if TYPE_CHECKING:
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

    def handle(self, name: str) -> TableHandle:
        handle = self._catalog.handle(name)
        self.opened.add(name)
        return handle

    def readable(self, names: Iterable[str]) -> dict[str, Snapshot]:
        found = self._catalog.readable(names)
        self.opened.update(found)
        return found

    def find_view(self, name: str) -> View | None:
        found = self._catalog.find_view(name)
        if found is not None:
            self.opened.add(name)
        return found

    def find_stream(self, name: str) -> StreamState | None:
        found = self._catalog.find_stream(name)
        if found is not None:
            self.opened.add(found.source)
        return found

    def read_stream(self, name: str, max_versions: int | None = None, max_rows: int | None = None) -> StreamBatch:
        self.find_stream(name)
        return self._catalog.read_stream(name, max_versions, max_rows)

    def note_read(self, scan: Scan) -> None:
        self._catalog.note_read(scan)

    def tables(self, *, rejects: bool = False, dropped: bool = False) -> list[str]:
        return self._catalog.tables(rejects=rejects, dropped=dropped)
