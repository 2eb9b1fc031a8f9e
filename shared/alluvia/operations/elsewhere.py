"""Tables of a branch of a lake, as queries on the lake or on another branch read them: `FROM fix.events`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from alluvia.log.replay import State
from alluvia.operations.catalog import Catalog
from alluvia.table.handle import TableHandle
from alluvia.table.snapshot import Snapshot


class Elsewhere:
    """The tables of `catalog`, named `<branch>:<table>`. `place` gives the key in the lake of an object there.

    `origin` tells what they hold from what tables of their ids hold in the lake.
    """

    def __init__(self, catalog: Catalog, branch: str, origin: str, place: Callable[[str], str]) -> None:
        self._catalog = catalog
        self._branch = branch
        self._origin = origin
        self._place = place

    def handle(self, table: str) -> TableHandle:
        """Return a handle to read a table by. Raises `Invalid` for what cannot be a table's name."""
        return _Handle(self._catalog.handle(table), f"{self._branch}:{table}", self._origin, self._place)

    def readable(self, tables: Iterable[str]) -> dict[str, Snapshot]:
        """Return the tables of some names at one moment. Those that are not there are left out."""
        found = self._catalog.readable(tables)
        return {
            f"{self._branch}:{name}": _Snapshot(snapshot, f"{self._branch}:{name}", self._origin, self._place)
            for name, snapshot in found.items()
        }


class _Handle(TableHandle):
    """Another handle under another name, to read the table by."""

    def __init__(self, inner: TableHandle, name: str, origin: str, place: Callable[[str], str]) -> None:
        super().__init__(inner.store, inner.root, name, inner.clock)
        self.log, self.lock = inner.log, inner.lock
        self.origin = origin
        self._placing = place

    def as_of(self, state: State) -> Snapshot:
        return _Snapshot(super().as_of(state), self.name, self.origin, self._placing)


class _Snapshot(Snapshot):
    """A version whose files have other keys: those that they have in the lake."""

    def __init__(self, inner: Snapshot, name: str, origin: str, place: Callable[[str], str]) -> None:
        super().__init__(inner.state, inner.root, name, earlier=inner)
        self._inner = inner
        self._placing = place
        self.origin = origin

    def locate(self, path: str) -> str:
        return self._placing(self._inner.locate(path))
