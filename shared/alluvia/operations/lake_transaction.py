"""A transaction over any number of a lake's tables: it reads them at one moment, and commits to all or to none."""

from __future__ import annotations

from collections.abc import Iterable

from alluvia.errors import Conflict
from alluvia.operations.catalog import Catalog
from alluvia.operations.cut import Cut, take_cut
from alluvia.operations.lake_commit import commit_all
from alluvia.operations.staging import StagedHandle
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import carry_out_claim

CUTS_MAX = 100


class StagedTables:
    """The tables that a transaction uses. They are read as they are at its begin, or when the last of them is named.

    A table that is named later joins the cut; that fails with a `Conflict` where one that was read has changed since.
    """

    def __init__(self, catalog: Catalog, tables: Iterable[str] = ()) -> None:
        self._catalog = catalog
        self._staged: dict[str, StagedHandle] = {}
        self._started_ms = catalog.clock.now_ms()
        names = sorted(set(tables))
        if names:
            self._join(names)

    def handle(self, name: str) -> StagedHandle:
        """Return a table as the transaction sees it. Raises `TableNotFound`."""
        if name not in self._staged:
            self._join([name])
        return self._staged[name]

    def commit(self, *, reads: bool = True) -> None:
        """Commit what was done to the tables, all of it or nothing (`lake_commit.commit_all`)."""
        commit_all(list(self._staged.values()), self._catalog.clock, self._started_ms, reads=reads)

    def _join(self, names: list[str]) -> None:
        handles = [self._catalog.handle(name) for name in sorted({*self._staged, *names})]
        for _ in range(CUTS_MAX):
            cut = take_cut(handles)
            if not any(cut.undone.values()):
                break
            self._carry_out(cut)
        else:
            raise Conflict("other transactions kept changing the tables: try again when fewer writers are active")
        for name, staged in self._staged.items():
            if cut.states[name].version != staged.base.version:
                raise Conflict(
                    f"table {name} changed before the transaction first used {names[0]}: start it again, and name all "
                    "its tables at the start"
                )
        for name in names:
            handle = self._catalog.handle(name)
            base = Snapshot(cut.states[name], handle.root, name, handle.store.locate)
            self._staged[name] = StagedHandle(handle, base)

    def _carry_out(self, cut: Cut) -> None:
        for name, claims in cut.undone.items():
            for claim in claims:
                carry_out_claim(self._catalog.handle(name).log, claim, cut.versions[claim.transaction_id])
