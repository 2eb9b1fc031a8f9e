"""The tables of a lake as one caller may read them: what resolves names through this cannot get round its rights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from alluvia.access.rights import READ, WRITE, Rights
from alluvia.commit.handle import TableHandle
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import TableNotFound
from alluvia.operations.catalog.catalog import Catalog, check_name
from alluvia.operations.catalog.views import View
from alluvia.table_names import split_branch

if TYPE_CHECKING:
    from alluvia.operations.streams.stream_batches import StreamBatch
    from alluvia.operations.streams.streams import StreamState


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

    def handle(self, name: str) -> TableHandle:
        check_name(split_branch(name)[1])
        self.rights.check(READ, name)
        return self._catalog.handle(name)

    def readable(self, names: Iterable[str]) -> dict[str, Snapshot]:
        return self._catalog.readable(name for name in names if self.rights.may(READ, name))

    def find_view(self, name: str) -> View | None:
        return self._catalog.find_view(name) if self.rights.may(READ, name) else None

    def find_stream(self, name: str) -> StreamState | None:
        found = self._catalog.find_stream(name)
        return found if found is not None and self.rights.may(READ, found.source) else None

    def read_stream(self, name: str, max_versions: int | None = None, max_rows: int | None = None) -> StreamBatch:
        found = self.find_stream(name)
        if found is None:
            raise TableNotFound(f"the lake has no stream {name!r:.100}")
        self.rights.check_sees_all(f"stream {name}", (found.source,))
        if self.moves_streams:
            self.rights.check(WRITE, name)
        return self._catalog.read_stream(name, max_versions, max_rows)

    def note_read(self, scan: Scan) -> None:
        self._catalog.note_read(scan)

    def tables(self, *, rejects: bool = False, dropped: bool = False) -> list[str]:
        there = self._catalog.tables(rejects=rejects, dropped=dropped)
        return [name for name in there if self.rights.may(READ, name)]
