"""The derived tables of a lake: those that pipelines make, and rollups. Their logs say which are due."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter

from alluvia.delta.properties import ROLLUP
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import AlluviaError, TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.pipelines.declarations.declaration import QUARANTINE_SUFFIX, Declaration
from alluvia.pipelines.declarations.definition import definition_of, is_quarantine
from alluvia.pipelines.graph import tables_of
from alluvia.pipelines.marks import FailedRun, clear_failure, note_failure, pairs_of, read_failure, read_marks
from alluvia.rollups import definition as rollup_definition
from alluvia.rollups.change import PROGRESS, progress_of
from alluvia.rollups.creating import MARKS as ROLLUP_MARKS
from alluvia.table_names import sql_name


@dataclass(frozen=True, slots=True)
class DerivedTable:
    """A table that is made of `sources`. `makes` are its own name and that of its quarantine.

    It runs when a source has changed (`on_change`), or at intervals of `every_seconds` if one has. `declaration` is
    None for a rollup.
    """

    name: str
    sources: tuple[str, ...]
    makes: tuple[str, ...]
    on_change: bool = True
    every_seconds: int | None = None
    declaration: Declaration | None = None


class DerivedTables:
    """One look at the derived tables of a lake, which opens the logs of those that it is asked for, and of no other.

    Marks say which tables are made of which, and the tables' logs whether they still are. `broken` has the reasons why
    some of those that were asked for cannot be kept up to date: their logs or those of their sources cannot be read, or
    they are made of each other. Snapshots are looked up once, and again after `note_run`.
    """

    def __init__(self, catalog: WritableCatalog) -> None:
        """List the marks: two LIST requests for 1,000 of them."""
        self._catalog = catalog
        self._snapshots: dict[str, Snapshot | None] = {}
        self._failed: dict[str, FailedRun | None] = {}
        self.broken: dict[str, str] = {}
        marks = read_marks(catalog.store)
        self._with_record = set(marks.failed)
        self._below = defaultdict[str, set[str]](set)
        rollups = pairs_of((each.key for each in catalog.store.list(ROLLUP_MARKS)), ROLLUP_MARKS)
        above = self._above = defaultdict[str, set[str]](set)
        for source, table in marks.pairs | rollups:
            self._below[source].add(table)
            above[table].add(source)
            if source.endswith(QUARANTINE_SUFFIX):
                above[source].add(source.removesuffix(QUARANTINE_SUFFIX))
        self._circular = above.keys() - set(_in_order(above))

    def all(self) -> list[DerivedTable]:
        """Return all derived tables, each after those that it reads."""
        tables = self._opened(set().union(*self._below.values()))
        for name in self._with_record - {each.name for each in tables} - self.broken.keys():
            clear_failure(self._catalog.store, name)
        return tables

    def named(self, name: str) -> DerivedTable | None:
        """Return a derived table; None for any other, and for one that is `broken`."""
        return next(iter(self._opened([name])), None)

    def made_of(self, names: Collection[str]) -> list[DerivedTable]:
        """Return the tables that read some directly, each after those that it reads."""
        marked = {table for name in names for table in self._below.get(sql_name(name), ())}
        return [each for each in self._opened(marked) if not set(names).isdisjoint(each.sources)]

    def from_here(self, names: Collection[str]) -> list[DerivedTable]:
        """Return the derived ones of some tables, and those that are made of some, directly or by way of others."""
        reached, found = set(names), list[DerivedTable]()
        for each in self._opened(reached.union(*map(self._reached, names))):
            if each.name in reached or not reached.isdisjoint(each.sources):
                reached |= set(each.makes)
                found.append(each)
        return found

    def due(self, tables: Iterable[DerivedTable]) -> list[DerivedTable]:
        """Return those that are due, but for tables that read another one that is due: they come after it."""
        due: list[DerivedTable] = []
        waiting: set[str] = set()
        for each in tables:
            if self.is_due(each):
                if not waiting & set(each.sources):
                    due.append(each)
                waiting |= set(each.makes)
        return due

    def is_due(self, table: DerivedTable, *, again: bool = False) -> bool:
        """Whether a table is behind its sources, its schedule says that it runs now, and it does not rest.

        With `again`, a failed run may be repeated, and the table does not rest. A table whose sources cannot be read is
        not due, but `broken`.
        """
        failed, now_ms = self.failed_run(table.name), self._catalog.clock.now_ms()
        if failed is not None and not again and now_ms < failed.rests_until_ms:
            return False
        looked_ms = self.looked_ms(table.name)
        every_ms = None if table.every_seconds is None else 1000 * table.every_seconds
        comes = table.on_change or (every_ms is not None and (looked_ms is None or now_ms - looked_ms >= every_ms))
        return comes and self.is_behind(table)

    def versions(self, table: DerivedTable) -> dict[str, tuple[int | None, int]]:
        """Return for each source the version that a table shows, None for none, and the newest, -1 for none."""
        target = self._newest(table.name)
        found: dict[str, tuple[int | None, int]] = {}
        for name in table.sources:
            source = self._newest(name)
            shown = None if target is None or source is None else progress_of(target, source)
            found[name] = (shown, -1 if source is None else source.version)
        return found

    def is_behind(self, table: DerivedTable) -> bool:
        """Whether a source has another version than the one that a table shows; False for one that is `broken`."""
        try:
            return any(at != newest for at, newest in self.versions(table).values())
        except AlluviaError as error:  # a source of one table must not stop the others
            self.broken[table.name] = f"a source cannot be read: {error}"
            return False

    def source_bytes(self, table: DerivedTable) -> int:
        """Return the bytes of all files of a table's sources."""
        sources = [self._newest(name) for name in table.sources]
        return sum(file.size for source in sources if source is not None for file in source.files)

    def failed_run(self, name: str) -> FailedRun | None:
        """Return the failed run of a table; None if it has run since."""
        if name not in self._with_record:
            return None
        if name not in self._failed:
            self._failed[name] = read_failure(self._catalog.store, name)
        failed = self._failed[name]
        if failed is None:
            return None
        looked_ms = self.looked_ms(name)
        return failed if looked_ms is None or looked_ms <= failed.failed_ms else None

    def note_run(self, table: DerivedTable, error: str | None, *, at_limit: bool = False) -> None:
        """Record the outcome of a run, and look at the table again."""
        before = self.failed_run(table.name)
        for name in (*table.makes, *table.sources):
            self._snapshots.pop(name, None)
        if error is not None:
            store, clock = self._catalog.store, self._catalog.clock
            self._failed[table.name] = note_failure(store, clock, table.name, error, before, at_limit=at_limit)
            self._with_record.add(table.name)
        elif table.name in self._with_record:
            clear_failure(self._catalog.store, table.name)
            self._with_record.remove(table.name)

    def looked_ms(self, name: str) -> int | None:
        """Return when the last run of a table looked at its sources."""
        target = self._newest(name)
        txn = None if target is None else target.state.txns.get(PROGRESS)
        return None if txn is None else txn.last_updated

    def _newest(self, name: str) -> Snapshot | None:
        if name not in self._snapshots:
            try:
                self._snapshots[name] = self._catalog.handle(name).newest()
            except TableNotFound:
                self._snapshots[name] = None
        return self._snapshots[name]

    def _derived(self, name: str) -> DerivedTable | None:
        """Return a table that has a mark; None if it is gone, or an ordinary one by now."""
        try:
            snapshot = self._newest(name)
            return None if snapshot is None else derived_table(snapshot)
        except AlluviaError as error:  # the log of one table must not stop the others
            self.broken[name] = str(error)
            return None

    def _reached(self, name: str) -> set[str]:
        """Return the tables that marks have below one."""
        found, pending = set[str](), [name]
        while pending:
            made = pending.pop()
            new = self._below.get(sql_name(made), set()) | self._below.get(sql_name(made) + QUARANTINE_SUFFIX, set())
            pending += new - found
            found |= new
        return found

    def _circles(self, names: Iterable[str]) -> set[str]:
        """Return the tables from which some are made by way of circles of marks: they show which circles are real."""
        found, pending = set[str](), set(names) & self._circular
        while pending:
            found |= pending
            pending = {one for name in pending for one in self._above[name]} & self._circular - found
        return found

    def _opened(self, names: Iterable[str]) -> list[DerivedTable]:
        """Return the derived ones of some tables, each after those that it reads, and none that is made of itself."""
        wanted = set(names)
        opened = sorted(wanted | self._circles(wanted))
        found = {each.name: each for each in self._catalog.store.map(self._derived, opened) if each is not None}
        made_by = {name: each.name for each in found.values() for name in each.makes}
        above = {name: {made_by[one] for one in each.sources if one in made_by} for name, each in found.items()}
        ordered = _in_order(above)
        left = above.keys() - set(ordered)
        for name in left:
            self.broken[name] = (
                "tables are made of each other, or of such tables: "
                f"{', '.join(sorted(left))}; drop one, or declare it by another query"
            )
        return [found[name] for name in ordered if name in wanted]


def _in_order(above: Mapping[str, Collection[str]]) -> list[str]:
    """Return names, each after those above it, but for those that are above themselves, and those below such ones."""
    sorter = TopologicalSorter(above)
    with suppress(CycleError):  # the others still come
        sorter.prepare()
    ordered: list[str] = []
    while ready := sorter.get_ready():
        ordered += ready
        sorter.done(*ready)
    return ordered


def derived_table(snapshot: Snapshot) -> DerivedTable | None:
    """Return a derived table by its own properties; None for an ordinary one. Raises `Corrupt`."""
    name = snapshot.name
    if ROLLUP in snapshot.properties:
        return DerivedTable(name, (rollup_definition.definition_of(snapshot).source,), (name,))
    definition = None if is_quarantine(snapshot) else definition_of(snapshot)
    if definition is None:
        return None
    it = definition.declaration
    return DerivedTable(name, tuple(definition.columns), tuple(tables_of(it)), it.on_change, it.every_seconds, it)
