"""A transaction over any number of a lake's tables: it reads them at one moment, and commits to all or to none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from alluvia.commit.intents import TableAt
from alluvia.delta.lineage import DroppedTable, dropped_tables, is_dropped
from alluvia.delta.log.actions import Metadata
from alluvia.delta.log.replay import State
from alluvia.delta.properties import read_properties
from alluvia.delta.protocols import new_protocol
from alluvia.delta.schema.former_names import inherited
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Conflict, Invalid, TableExists, TableNotFound
from alluvia.operations.catalog.catalog import WritableCatalog, rejects_handle
from alluvia.operations.catalog.lake_snapshot import LakeSnapshot
from alluvia.operations.catalog.schemas import check_may_be_created
from alluvia.operations.planning.optimistic_retry import check_not_append_only
from alluvia.operations.references.clones import held
from alluvia.operations.tables.drop import drop_rejects_left, find_log
from alluvia.operations.tables.drop_plan import never_created, plan_drop, plan_recreate, plan_replace, plan_undrop
from alluvia.operations.transactions.lake_commit import SERIALIZABLE, check_age, commit_all
from alluvia.operations.transactions.past_snapshots import LateTable
from alluvia.operations.transactions.staging import StagedTable
from alluvia.table_names import REJECTS, STREAMS, in_order

if TYPE_CHECKING:
    from alluvia.commit.changes import Changes
    from alluvia.operations.streams.stream_batches import StreamBatch
    from alluvia.operations.streams.streams import StreamState
    from alluvia.store import Store


class StagedTables:
    """The tables that a transaction uses, as they are at one moment.

    That is the begin for `tables`, and the first use of a table for all of the lake if `whole_lake`. What is used
    later has all read as it is then, if what the transaction has read of the others, or changed, is still the same;
    else it is read as it was before that changed.
    """

    def __init__(self, catalog: WritableCatalog, tables: Iterable[str] = (), *, whole_lake: bool = False) -> None:
        self._catalog = catalog
        self._staged: dict[str, StagedTable] = {}
        self._batches: dict[str, tuple[StreamBatch, tuple[int | None, int | None]]] = {}
        self.wrote = False
        """Whether something was written, so that streams that were read move, also where that changed no table."""
        self._whole_lake = whole_lake
        self._lake: LakeSnapshot | None = None
        self._started_ms = catalog.clock.now_ms()
        self.use(tables)

    def handle(self, name: str) -> StagedTable:
        """Return a table as the transaction sees it. Raises `TableNotFound`."""
        self.use([name])
        return self._staged[name]

    def use(self, names: Iterable[str]) -> None:
        """Have tables take part, at one moment. Raises `TableNotFound`."""
        new = sorted({*names} - self._staged.keys())
        if new and self._whole_lake and self._lake is None:
            self._lake = LakeSnapshot.of_lake(self._catalog, new)
        late = []
        for name in new:
            if self._lake is not None and name in self._lake:
                check_age(self._catalog.clock, self._started_ms)
                self._take(name, self._lake.table(name))
            else:
                late.append(name)
        if late:
            self._join(late)

    def listed(self, names: Iterable[str]) -> list[str]:
        """Return names of tables with those that the transaction creates, and without those that it drops."""
        created = {name for name, staged in self._staged.items() if staged.creates}
        dropped = {name for name, staged in self._staged.items() if staged.drops}
        return in_order({*names, *created} - dropped)

    def create(
        self,
        name: str,
        metadata: Metadata,
        *,
        exist_ok: bool,
        replace: bool = False,
        check: Callable[[Store, str], object] = check_may_be_created,
    ) -> StagedTable:
        """Create a table in the transaction. Two LISTs. Raises `TableExists` unless `exist_ok` or `replace`.

        One that the transaction has dropped is replaced; a view is not. `check` is asked about the name of a new one.
        """
        staged = self._staged.get(name) or self._base_of(name, metadata)
        self._staged[name] = staged
        if not staged.drops and not replace:
            if exist_ok:
                return staged
            raise TableExists(f"table {name!r} already exists: choose another name, or pass exist_ok=True")
        if staged.drops:
            check(staged.store, name)
        protocol = new_protocol(
            read_properties(metadata.configuration).writers, metadata.schema_string, metadata.configuration
        )
        if not staged.drops and len(staged.newest().files):
            check_not_append_only(staged.newest(), "create_table(replace=True)")
        metadata = inherited(metadata, staged.newest(dropped=True).state.metadata)
        plan = plan_recreate if staged.creates else plan_replace
        staged.begin_again(plan(staged.base.state, metadata, protocol, self._catalog.clock.now_ms()))
        staged.replaces = not staged.creates
        return staged

    def undrop(self, name: str, base: State, table: DroppedTable) -> StagedTable:
        """Bring back a table that was dropped, as its version `base`. Raises `TableExists` where there is one."""
        handle = self._catalog.handle(name)
        newest = handle.newest(dropped=True)
        if table not in dropped_tables(newest.properties) or not is_dropped(newest.properties):
            raise TableExists(f"table {name!r} is there again: start the transaction again")
        staged = self._staged[name] = StagedTable(handle, newest, frozenset())
        changes = plan_undrop(newest.state, base, table, self._catalog.clock.now_ms())
        source = Snapshot(base, handle.root, name, handle.store)
        staged.stage(replace(changes, adds=held(handle, source, changes.adds)))
        return staged

    def stage_stream(self, name: str, plan: Callable[[StreamState, int], Changes]) -> None:
        """Change the position of a stream: `plan` says how, given the stream and the time in ms."""
        from alluvia.operations.streams.streams import stream_of

        log = self.handle(STREAMS + name)
        log.stage(plan(stream_of(log.newest()), self._catalog.clock.now_ms()))
        self.wrote = True

    def drop(self, name: str) -> None:
        """Drop a table and its rejects in the transaction. Raises `TableNotFound`, `Invalid` as `drop_table` does."""
        staged = self.handle(name)
        before = staged.newest()
        if staged.creates:
            del self._staged[name]
            return
        if len(before.files):
            check_not_append_only(before, "drop_table")
        now_ms = self._catalog.clock.now_ms()
        with suppress(TableNotFound):
            rejects = self.handle(f"{name}/{REJECTS}")
            rejects.stage(plan_drop(rejects.newest().state, now_ms, before.state.metadata.id))
        staged.stage(plan_drop(before.state, now_ms))

    def read_stream(self, name: str, max_versions: int | None = None, max_rows: int | None = None) -> StreamBatch:
        """Return what a stream has not given, the same each time, and have the commit move the stream.

        Raises `TableNotFound`, `Invalid` for other limits than the first time, and what `stream_batches.planned` does.
        """
        from alluvia.operations.streams import stream_batches, streams  # most transactions read none

        if name in self._batches:
            batch, limits = self._batches[name]
            if (max_versions, max_rows) not in (limits, (None, None)):
                raise Invalid(f"the transaction has read stream {name} with other limits: pass the same ones, or none")
            return batch
        known = streams.the_stream(self._catalog, name)
        streams.source_of(self._catalog, known)
        self.use([STREAMS + name, known.source])
        log, table = self._staged[STREAMS + name], self._staged[known.source]
        stream = streams.stream_of(log.newest())
        batch = stream_batches.planned(stream, table.inner, table.base, max_versions, max_rows)
        if batch.to != stream.position or stream.initial_rows:
            log.stage(streams.moved(stream, batch.to, streams.READ_STREAM, self._catalog.clock.now_ms()))
        self._batches[name] = batch, (max_versions, max_rows)
        return batch

    def commit(self, isolation: str = SERIALIZABLE) -> Mapping[str, int]:
        """Commit what was done to the tables, all of it or nothing, and return their versions (`commit_all`).

        Streams that were read move if anything else was written.
        """
        tables = [each for name, each in self._staged.items() if not name.startswith(STREAMS)]
        if self.wrote or any(each.staged or each.begun for each in tables):
            tables = list(self._staged.values())
        versions = commit_all(tables, self._catalog.clock, self._started_ms, isolation)
        return {name: version for name, version in versions.items() if not name.startswith(STREAMS)}

    def _base_of(self, name: str, metadata: Metadata) -> StagedTable:
        """Return a table that is not used yet: the existing one, or the state before a new log."""
        handle = self._catalog.log_handle(name)
        there, may_be_dropped = find_log(handle.store, handle.root)
        if not there:
            properties = read_properties(metadata.configuration)
            protocol = new_protocol(properties.writers, metadata.schema_string, metadata.configuration)
            before = never_created(metadata, protocol)
            return StagedTable(handle, Snapshot(before, handle.root, name, handle.store), frozenset())
        newest = handle.newest(dropped=True) if may_be_dropped else None
        if newest is not None and is_dropped(newest.properties):
            drop_rejects_left(newest.state, rejects_handle(self._catalog, name))
            return StagedTable(handle, newest, frozenset())
        return self.handle(name)

    def _join(self, names: Sequence[str]) -> None:
        """Have more tables take part: with all others as they are now, or else as they were before those changed."""
        used = {name: staged for name, staged in self._staged.items() if not staged.creates}
        handles = [*(staged.inner for staged in used.values()), *map(self._catalog.log_handle, names)]
        now = LakeSnapshot.of_tables(self._catalog.store, handles)
        try:
            moves = [(staged, *self._checked(staged, now.table(name))) for name, staged in used.items()]
        except (Conflict, TableNotFound):
            for name in names:
                late = LateTable(self._catalog, name, used, now, self._started_ms).read()
                used[name] = self._take(name, late)
                self._whole_lake, self._lake = False, None  # it may not be at the moment of the lake's snapshot
            return
        for name in names:
            self._catalog.log_handle(name).as_of(now.table(name).shown)  # before any is moved
        for staged, base, moved in moves:
            staged.move_to(base, now.table(staged.name).claims, moved)
        for name in names:
            self._take(name, now.table(name))
        self._whole_lake, self._lake = False, None  # all are now read as they are at another moment

    def _checked(self, staged: StagedTable, now: TableAt) -> tuple[Snapshot, frozenset[str]]:
        base = staged.inner.as_of(now.shown)
        return base, staged.check_move(base, now.claims)

    def _take(self, name: str, at: TableAt) -> StagedTable:
        handle = self._catalog.log_handle(name)
        self._staged[name] = StagedTable(handle, handle.as_of(at.shown), at.held)
        return self._staged[name]
