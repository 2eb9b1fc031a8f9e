"""The tables of a lake as one caller may read them: what resolves names through this cannot get round its rights."""

from __future__ import annotations

from collections.abc import Iterable

from alluvia.access.rights import READ, Rights
from alluvia.operations.catalog import Catalog, check_name
from alluvia.operations.views import View
from alluvia.table.handle import TableHandle
from alluvia.table.scan import Scan
from alluvia.table.snapshot import Snapshot


def permitted(catalog: Catalog, rights: Rights | None) -> Catalog:
    """Return the tables that a caller may read; without rights, all of them."""
    return catalog if rights is None else _PermittedCatalog(catalog, rights)


class _PermittedCatalog(Catalog):
    """A catalog that opens only what may be read, and lists and finds nothing else."""

    rights: Rights

    def __init__(self, catalog: Catalog, rights: Rights) -> None:
        super().__init__(catalog.store, catalog.clock)
        self._catalog = catalog
        self.rights = rights

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.rights.may(READ, name) and name in self._catalog

    def handle(self, name: str) -> TableHandle:
        check_name(name)
        self.rights.check(READ, name)
        return self._catalog.handle(name)

    def readable(self, names: Iterable[str]) -> dict[str, Snapshot]:
        return self._catalog.readable(name for name in names if self.rights.may(READ, name))

    def find_view(self, name: str) -> View | None:
        return self._catalog.find_view(name) if self.rights.may(READ, name) else None

    def note_read(self, scan: Scan) -> None:
        self._catalog.note_read(scan)

    def tables(self, *, rejects: bool = False, dropped: bool = False) -> list[str]:
        there = self._catalog.tables(rejects=rejects, dropped=dropped)
        return [name for name in there if self.rights.may(READ, name)]
