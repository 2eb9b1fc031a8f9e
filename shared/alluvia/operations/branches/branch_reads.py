"""Tables of a branch of a lake, as queries on the lake or on another branch read them: `FROM fix.events`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import TRANSACTION_AGE_MS_MAX, Transaction
from alluvia.delta.log.replay import State
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ReadOnly
from alluvia.operations.catalog.catalog import Catalog
from alluvia.store.wrapper import ReadOnlyStore
from alluvia.table_names import MAIN


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
        """Return the tables of some names at one moment. Missing ones are left out."""
        found = self._catalog.readable(tables)
        return {
            f"{self._branch}:{name}": _Snapshot(snapshot, f"{self._branch}:{name}", self._origin, self._place)
            for name, snapshot in found.items()
        }


class _Handle(TableHandle):
    """Another handle under another name, to read the table by."""

    def __init__(self, inner: TableHandle, name: str, origin: str, place: Callable[[str], str]) -> None:
        branch, _, table = name.rpartition(":")
        self._why = (
            f"table {name!r} can only be read from here: what writes or keeps it works on "
            f"{'the lake' if branch == MAIN else f'branch {branch}'} itself, as {table!r}"
        )
        super().__init__(_Reading(inner.store, "", self._why), inner.root, name, inner.clock)
        self.log, self.lock = inner.log, inner.lock
        self.origin = origin
        self._placing = place

    def own(self) -> TableHandle:
        return self

    def check_own(self) -> None:
        raise ReadOnly(self._why)

    def transaction(
        self,
        base: Snapshot,  # noqa: ARG002
        age_ms_max: int = TRANSACTION_AGE_MS_MAX,  # noqa: ARG002
        held: frozenset[str] = frozenset(),  # noqa: ARG002
        *,
        upkeep: bool = False,  # noqa: ARG002
    ) -> Transaction:
        raise ReadOnly(self._why)

    def as_of(self, state: State) -> Snapshot:
        return _Snapshot(super().as_of(state), self.name, self.origin, self._placing)


class _Reading(ReadOnlyStore):
    """The store of a branch, or of the lake of one, for reading."""

    def locate(self, path: str) -> str | None:
        return self.inner.locate(path)


class _Snapshot(Snapshot):
    """A version whose files have other keys: those that they have in the lake."""

    def __init__(self, inner: Snapshot, name: str, origin: str, place: Callable[[str], str]) -> None:
        super().__init__(inner.state, inner.root, name, earlier=inner)
        self._inner = inner
        self._placing = place
        self.origin = origin

    def locate(self, path: str) -> str:
        return self._placing(self._inner.locate(path))
