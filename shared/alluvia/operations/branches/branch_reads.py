"""Tables of a branch of a lake, as queries on the lake or on another branch read them: `FROM fix.events`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from alluvia.commit.handle import ReadableTable, TableHandle, TableTransaction
from alluvia.commit.transaction import TRANSACTION_AGE_MS_MAX
from alluvia.commit.warm_table import WarmTable
from alluvia.delta.log.log import Log
from alluvia.delta.log.replay import State
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ReadOnly
from alluvia.operations.catalog.catalog import Catalog
from alluvia.store import Store
from alluvia.store.wrapper import ReadOnlyStore
from alluvia.table_names import MAIN

if TYPE_CHECKING:
    from alluvia.commit.event_window.window import DedupWindow
    from alluvia.delta.data_files.writer import FileWriter, RowCheck


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
        return _BranchTable(self._catalog.handle(table), f"{self._branch}:{table}", self._origin, self._place)

    def readable(self, tables: Iterable[str]) -> dict[str, Snapshot]:
        """Return the tables of some names at one moment. Missing ones are left out."""
        snapshots = self._catalog.readable(tables)
        return {
            f"{self._branch}:{name}": snapshot.renamed(f"{self._branch}:{name}", self._origin, self._place)
            for name, snapshot in snapshots.items()
        }


class _BranchTable:
    """A table of a branch under another name, to be read: nothing commits to it."""

    def __init__(self, inner: ReadableTable, name: str, origin: str, place: Callable[[str], str]) -> None:
        branch, _, table = name.rpartition(":")
        self._why = (
            f"table {name!r} can only be read from here: what writes or keeps it works on "
            f"{'the lake' if branch == MAIN else f'branch {branch}'} itself, as {table!r}"
        )
        self._table = WarmTable(_Reading(inner.store, "", self._why), inner.root, name, inner.clock, log=inner.log)
        self.name = name
        self.clock = inner.clock
        self.lock = inner.lock
        self.contention = self._table.contention
        self.window: DedupWindow | None = None
        self._origin = origin
        self._place = place

    @property
    def store(self) -> Store:
        return self._table.store

    @property
    def root(self) -> str:
        return self._table.root

    @property
    def log(self) -> Log:
        return self._table.log

    @property
    def attached_place(self) -> str | None:
        return self._table.attached_place

    @property
    def is_read_only(self) -> bool:
        return self._table.is_read_only

    @property
    def is_staged(self) -> bool:
        return False

    @property
    def committed(self) -> TableHandle:
        return self

    def own(self) -> TableHandle:
        return self

    def newest(self, *, dropped: bool = False) -> Snapshot:
        return self._placed(self._table.newest(dropped=dropped))

    def at_hand(self, *, dropped: bool = False) -> Snapshot:
        return self._placed(self._table.at_hand(dropped=dropped))

    def known_state(self) -> State:
        return self._table.known_state()

    def snapshot(self, version: int | None = None, timestamp: datetime | str | None = None) -> Snapshot:
        return self._placed(self._table.snapshot(version, timestamp))

    def readable(
        self, version: int | None = None, timestamp: datetime | str | None = None, where: str | None = None
    ) -> Snapshot:
        return self._placed(self._table.readable(version, timestamp, where))

    def as_of(self, state: State) -> Snapshot:
        return self._placed(self._table.as_of(state))

    def carry_out(self, snapshot: Snapshot) -> bool:
        return self._table.carry_out(snapshot)

    def waiting_events(self) -> Mapping[bytes, set[bytes]]:
        return {}

    def check_own(self) -> None:
        raise ReadOnly(self._why)

    def transaction(
        self,
        base: Snapshot,  # noqa: ARG002
        age_ms_max: int = TRANSACTION_AGE_MS_MAX,  # noqa: ARG002
        *,
        upkeep: bool = False,  # noqa: ARG002
    ) -> TableTransaction:
        raise ReadOnly(self._why)

    def writer(self, snapshot: Snapshot, check: RowCheck | None = None) -> FileWriter:  # noqa: ARG002
        raise ReadOnly(self._why)

    def _placed(self, snapshot: Snapshot) -> Snapshot:
        return snapshot.renamed(self.name, self._origin, self._place)


class _Reading(ReadOnlyStore):
    """The store of a branch, or of the lake of one, for reading."""

    def locate(self, path: str) -> str | None:
        return self.inner.locate(path)
