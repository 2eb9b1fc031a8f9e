"""Run one table of a pipeline: bring it to its sources' newest versions, in one commit that also records those.

The record is a transaction of an application for each source, like that of a rollup: two runs at once conflict, and the
one that lost plans again from the rows that the other has left. The table of failed rows is written in the same
transaction.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.changes import Changes
from alluvia.delta.log.actions import AddFile, Txn
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Conflict, ObjectNotFound, TableExists, TableNotFound, VersionExpired
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.planning.optimistic_retry import TRIES_MAX
from alluvia.operations.reading.relations import Files, LocalRows, Relation, Take
from alluvia.operations.transactions.lake_commit import SNAPSHOT
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia.operations.transactions.staging import StagedTable
from alluvia.pipelines.computing import StepComputing
from alluvia.pipelines.declarations.declaration import APPEND, Declaration
from alluvia.pipelines.execution import Execution, RowOutput, RowTable
from alluvia.pipelines.folding import folding, lacking_txns, lacks_rows
from alluvia.pipelines.planning import APPENDED, NOTHING, REBUILT, StepPlan, rebuilt_plan
from alluvia.pipelines.sequence_folding import GREATEST, SequenceFolding, folds_changes, greatest_seen
from alluvia.pipelines.sorting_rows import JudgedRows
from alluvia.pipelines.splitting import rows_alone, split_of
from alluvia.pipelines.table_planner import Planner
from alluvia.pipelines.tables import OPERATION, staged_quarantine, staged_target
from alluvia.rollups.change import SourceChange, progress_txns, write_rows
from alluvia.rollups.computing import Computing
from alluvia.rollups.groups import Groups, Touched, write_groups, write_touched
from alluvia.rollups.refresh import touched_groups
from alluvia.scratch import scratch_root

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TableRun:
    """The outcome of one table's run. `version` is the table's, and `sources` are the versions that it now shows.

    `mode` is `nothing`, `appended`, `changed` or `rebuilt`, and `reason` says why all was computed again. `rows` were
    computed; `failed` counts those that did not meet each expectation, and `quarantined` those that were set aside.
    `units` counts the parts that were computed again. `tries` is 1, and one more for each lost race. `error` is the
    reason why it failed or was skipped.
    """

    table: str
    kind: str = ""
    mode: str = NOTHING
    reason: str | None = None
    version: int | None = None
    sources: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    units: int | None = None
    failed: Mapping[str, int] = field(default_factory=dict)
    quarantined: int = 0
    files_added: int = 0
    files_removed: int = 0
    tries: int = 1
    error: str | None = None


def run_table(
    catalog: WritableCatalog, execution: Execution, declaration: Declaration, *, full_refresh: bool = False
) -> TableRun:
    """Bring a table up to date. Raises `Invalid`, with the place of the declaration, and a `Conflict` at last."""
    lost: Conflict | None = None
    for tries in range(1, TRIES_MAX + 1):
        attempt = _Attempt(catalog, execution, declaration, full_refresh=full_refresh)
        try:
            return replace(attempt.run(), tries=tries)
        except Conflict as error:
            lost = error
        except TableExists:  # made by another run since this one looked, or else a view
            if not attempt.is_made():
                raise
        except ObjectNotFound:
            if not attempt.is_outdated():
                raise
    msg = f"{declaration.target}: planned {TRIES_MAX} times, and lost each race: try again when fewer runs are active"
    raise type(lost or Conflict())(msg) from lost


class _Attempt:
    """One try to run a table, from the versions that it finds."""

    def __init__(
        self, catalog: WritableCatalog, execution: Execution, declaration: Declaration, *, full_refresh: bool
    ) -> None:
        self._catalog = catalog
        self._execution = execution
        self._declaration = declaration
        self._full_refresh = full_refresh
        self._tables = StagedTables(catalog)
        self._outputs: list[RowOutput] = []
        self._staged: dict[str, StagedTable] = {}
        self._plan: StepPlan | None = None
        self._greatest: int | None = None
        self._looked_ms = catalog.clock.now_ms()

    def run(self) -> TableRun:
        """Plan, compute and commit. Deletes the files that it has written where it fails before it tries to commit."""
        try:
            report = self._prepared()
        except Exception:
            self._discard()
            raise
        if report.version is not None:
            return report
        committed = self._tables.commit(SNAPSHOT)
        base = self._staged[self._declaration.target].base
        return replace(report, version=committed.get(self._declaration.target, base.version))

    def _prepared(self) -> TableRun:
        """Stage a run in the transaction. The report has a version where there is nothing to commit."""
        target = self._existing()
        plan = Planner(self._catalog, self._execution.evaluate).plan(
            self._declaration, target, full_refresh=self._full_refresh
        )
        self._plan = plan
        if plan.mode == NOTHING and not plan.redefined:
            return self._report(plan, None if target is None else target.version)
        with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
            return self._carried_out(plan, target, Path(folder))

    def _discard(self) -> None:
        """Delete the files that were written so far."""
        for each in self._outputs:
            each.discard()
        self._outputs = []

    def is_made(self) -> bool:
        """Whether there is a table now where there was none."""
        try:
            return self._catalog.handle(self._declaration.target).newest().version >= 0
        except TableNotFound:
            return False

    def is_outdated(self) -> bool:
        """Whether a source, or the table, has a newer version than the one that was read."""
        plan = self._plan
        if plan is None:
            return False
        return any(each.handle.newest().version != each.snapshot.version for each in plan.sources.values())

    def _existing(self) -> Snapshot | None:
        try:
            return self._tables.handle(self._declaration.target).newest()
        except TableNotFound:
            return None

    def _carried_out(self, plan: StepPlan, before: Snapshot | None, folder: Path) -> TableRun:
        target = staged_target(self._tables, self._catalog, plan, before)
        quarantine = staged_quarantine(self._tables, self._catalog, plan, before)
        self._staged = {each.name: each for each in (target, quarantine) if each is not None}
        try:
            work = self._work(plan, target, quarantine, folder)
        except VersionExpired as error:  # the changes turn out to be gone
            self._discard()
            work = self._work(rebuilt_plan(plan, str(error)), target, quarantine, folder)
        plan = work.plan
        counts = {"failed": orjson.dumps(work.rows.failed).decode()} if work.rows.failed else {}
        versions = {name: each.snapshot.version for name, each in plan.sources.items()}
        parameters = {"mode": plan.mode, "sources": orjson.dumps(versions).decode(), **counts}
        parameters |= {} if plan.reason is None else {"reason": plan.reason}
        self._stage(target, work.removed, work.rows.adds, parameters, self._progress(plan))
        if quarantine is not None:
            self._stage(quarantine, work.quarantine_removed, work.rows.quarantined, parameters, ())
        return replace(
            self._report(plan, None),
            rows=work.rows.made,
            units=work.units,
            failed=work.rows.failed,
            quarantined=work.rows.rows_quarantined,
            files_added=len(work.rows.adds),
            files_removed=len(work.removed),
        )

    def _progress(self, plan: StepPlan) -> list[Txn]:
        target, now_ms = self._staged[self._declaration.target].newest(), self._looked_ms
        return [
            *progress_txns(target, (each.snapshot for each in plan.sources.values()), now_ms),
            *([] if self._greatest is None else [Txn(GREATEST, self._greatest, now_ms)]),
            *lacking_txns(self._declaration, target, plan.mode, now_ms),
        ]

    def _stage(
        self,
        table: StagedTable,
        removed: Sequence[AddFile],
        added: Sequence[AddFile],
        parameters: dict[str, str],
        txns: Sequence[Txn],
    ) -> None:
        if not (removed or added or txns):
            return
        now_ms = self._catalog.clock.now_ms()
        removes = [file.removed(now_ms, data_change=True) for file in removed]
        changes = Changes(OPERATION, parameters, adds=added, removes=removes, txns=txns)
        table.transaction(table.newest()).commit(changes)

    def _work(self, plan: StepPlan, target: StagedTable, quarantine: StagedTable | None, folder: Path) -> _Work:
        """Compute the rows, and write them to files."""
        now = target.newest()
        step = plan.step
        computing = StepComputing(step, {name: each.snapshot for name, each in plan.sources.items()})
        if plan.mode == NOTHING:
            return _Work(plan, JudgedRows())
        if plan.mode == REBUILT:
            sequencing = folds_changes(step)
            if sequencing is not None and sequencing.delete_when is not None:
                whole = {name: SourceChange(each, None, list(each.files)) for name, each in computing.sources.items()}
                self._greatest = self._greatest_of(computing, SequenceFolding(computing, sequencing, whole, {}))
            old = [] if quarantine is None else list(quarantine.newest().files)
            return _Work(plan, self._written(plan, computing, computing.whole(), quarantine), list(now.files), old)
        rows = self._changed_rows(plan, folder)
        if plan.mode == APPENDED:
            return _Work(plan, self._written(plan, computing, computing.appended(plan.changes, rows), quarantine))
        fold = _fold(plan, now)
        if fold is not None:
            return self._folded(plan, computing, fold, now, folder)
        sequencing = None if lacks_rows(now) else folds_changes(step)
        changes = None if sequencing is None else SequenceFolding(computing, sequencing, plan.changes, rows)
        units = self._units(plan, computing, changes, rows, folder)
        if not units.count:
            return _Work(plan, JudgedRows(failed={each.name: 0 for each in step.declaration.expectations}), units=0)
        files = computing.in_units(now, units)
        updated = computing.updated(now, files, units)
        if changes is not None:
            updated = changes.updated(now, files, self._classified(changes, now, files, folder))
            self._greatest = _greatest([self._greatest, greatest_seen(now)])
        done = self._written(plan, computing, updated, quarantine)
        old = self._requarantined(computing, quarantine, units, done)
        return _Work(plan, done, files, old, units.count)

    def _units(
        self,
        plan: StepPlan,
        computing: StepComputing,
        changes: SequenceFolding | None,
        rows: Mapping[str, LocalRows],
        folder: Path,
    ) -> Groups:
        """Write the units of a change to a file; if the rows are changes by key, note the greatest of them."""
        path = folder / "units.parquet"
        schema = computing.unit_schema
        if changes is None:
            relation = computing.units(plan.changes, rows)
            return self._rows(computing, relation, lambda _, batches: write_groups(batches, schema, path))

        def take(_: pa.Schema, batches: Iterator[pa.RecordBatch]) -> tuple[Groups, list[int | None]]:
            numbers: list[int | None] = []

            def noted() -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    numbers.append(pc.max(batch.column(len(schema))).as_py())
                    yield batch.select(range(len(schema)))

            return write_groups(noted(), schema, path), numbers

        groups, numbers = self._rows(computing, changes.units(), take)
        self._greatest = _greatest(numbers)
        return groups

    def _classified(self, changes: SequenceFolding, now: Snapshot, files: Sequence[AddFile], folder: Path) -> Touched:
        """Write the units of changes by key to files: those to fold, and those to compute again."""
        schema = changes.computing.unit_schema
        return self._rows(
            changes.computing,
            changes.classified(now, files, greatest_seen(now)),
            lambda _, batches: write_touched(batches, schema, schema.names, lambda name: folder / f"{name}.parquet"),
        )

    def _greatest_of(self, computing: StepComputing, changes: SequenceFolding) -> int | None:
        """Return the greatest of all changes by key, as a number; None where they have none."""
        relation = changes.greatest()
        found = self._execution.rows(
            relation,
            rows_alone(computing, relation),
            lambda columns, batches: pa.Table.from_batches(batches, columns).column(0),
        )
        return _greatest(found.to_pylist())

    def _folded(self, plan: StepPlan, computing: StepComputing, fold: Computing, now: Snapshot, folder: Path) -> _Work:
        """Fold the rows that groups have gained into those of the table, and compute other changed groups again."""
        ((name, source),) = plan.sources.items()
        evaluate = partial(self._rows, computing)
        change, groups = touched_groups(fold, source.handle, plan.changes[name], folder, evaluate)
        if groups is None:
            raise VersionExpired(str(change.rebuild))
        if not groups.count:
            return _Work(plan, JudgedRows(), units=0)
        files = groups.in_rollup(now).files
        done = self._written(plan, computing, fold.updated(now, files, groups, change.source), None)
        return _Work(plan, done, files, (), groups.count)

    def _changed_rows(self, plan: StepPlan, folder: Path) -> dict[str, LocalRows]:
        """Write the rows that commits changed which are not files of appended rows."""
        rows: dict[str, LocalRows] = {}
        for number, (name, change) in enumerate(plan.changes.items()):
            if change.commits:
                path = folder / f"changed{number}.parquet"
                columns = plan.step.seen(name, change.source.schema)
                handle = plan.sources[name].handle
                schema = write_rows(handle, change, columns, path, appends=plan.step.kind.name == APPEND)
                rows[name] = LocalRows(path, schema)
        return rows

    def _rows(self, computing: StepComputing, relation: Relation, take: Take[T]) -> T:
        return self._execution.rows(relation, split_of(computing, relation), take)

    def _written(
        self, plan: StepPlan, computing: StepComputing, relation: Relation, quarantine: StagedTable | None
    ) -> JudgedRows:
        """Write the rows of a relation to files of the table, and of the table of failed rows."""
        versions = {name: each.snapshot.version for name, each in plan.sources.items()}
        aside = None if quarantine is None else RowTable(quarantine, quarantine.newest())
        target = self._staged[plan.step.declaration.target]
        output = RowOutput(plan.step.declaration, RowTable(target, target.newest()), aside, versions)
        self._outputs.append(output)
        return self._execution.written(relation, split_of(computing, relation), output)

    def _requarantined(
        self, computing: StepComputing, quarantine: StagedTable | None, units: Groups, done: JudgedRows
    ) -> list[AddFile]:
        """Write the failed rows of units that have not changed again; return the files that these replace."""
        if quarantine is None:
            return []
        now = quarantine.newest()
        files = computing.in_units(now, units)
        if not files:
            return []
        inputs: dict[str, Files | LocalRows] = {"pipeline_old": Files(now, files), "pipeline_units": units.rows}
        relation = Relation(inputs, {"pipeline_kept": computing.kept("pipeline_old", "pipeline_units")})
        output = RowOutput(Declaration(self._declaration.target, self._declaration.query), RowTable(quarantine, now))
        self._outputs.append(output)
        kept = self._execution.written(relation, split_of(computing, relation), output)
        done.quarantined += kept.adds
        return list(files)

    def _report(self, plan: StepPlan, version: int | None) -> TableRun:
        return TableRun(
            self._declaration.target,
            plan.step.kind.name,
            plan.mode,
            plan.reason,
            version,
            {name: each.snapshot.version for name, each in plan.sources.items()},
        )


def _greatest(numbers: Iterable[int | None]) -> int | None:
    return max((each for each in numbers if each is not None), default=None)


def _fold(plan: StepPlan, now: Snapshot) -> Computing | None:
    sources = list(plan.sources.values())
    folds = len(sources) == 1 and not lacks_rows(now)
    return folding(plan.step, now.schema, sources[0].snapshot.schema) if folds else None


@dataclass(frozen=True, slots=True)
class _Work:
    """Rows in files, and the files that they replace in the table and in the table of failed rows."""

    plan: StepPlan
    rows: JudgedRows
    removed: Sequence[AddFile] = ()
    quarantine_removed: Sequence[AddFile] = ()
    units: int | None = None
