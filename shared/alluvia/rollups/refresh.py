"""Refresh a rollup: bring it to its source's newest version, in one commit that also records that version.

The record is a transaction of an application: two refreshes at once conflict, and the one that lost plans again from
what the other has done. So each version of the source is applied once, wherever a refresh stops.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from alluvia.commit.changes import Changes
from alluvia.commit.handle import ReadableTable, TableHandle
from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, TableNotFound, VersionExpired
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog, WritableCatalog
from alluvia.operations.planning.optimistic_retry import commit_planned
from alluvia.operations.reading.relations import Evaluate, Files, LocalRows, Relation, Split, Take
from alluvia.rollups.change import SourceChange, find_change, progress_txns, rebuilt, write_rows
from alluvia.rollups.computing import Computing, computing
from alluvia.rollups.definition import definition_of
from alluvia.rollups.groups import Touched, write_touched
from alluvia.scratch import scratch_root

T = TypeVar("T")
NOTHING, FOLDED, RECOMPUTED, REBUILT = MODES = "nothing", "folded", "recomputed", "rebuilt"


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """What a refresh did. `version` is the rollup's, `source_version` the one of its source that it now shows.

    `mode` is `nothing`, `folded`, `recomputed` or `rebuilt`, which `reason` explains. `groups` counts those that a
    change touched, None for a rebuild; `rows` were written. `tries` is 1, and one more for each lost race.
    """

    version: int
    source_version: int
    mode: str = NOTHING
    reason: str | None = None
    groups: int | None = 0
    rows: int = 0
    files_added: int = 0
    files_removed: int = 0
    tries: int = 1


class RefreshExecution(Protocol):
    """Computes the relations of refreshes, of which a split says how their rows can be shared out."""

    def rows(self, relation: Relation, split: Split, take: Take[T]) -> T:
        """Return what `take` returns, which is called here; the rows come in any order."""

    def written(self, handle: TableHandle, rollup: Snapshot, relation: Relation, split: Split) -> list[AddFile]:
        """Write the rows of a relation to files of a rollup."""


def refresh(
    catalog: WritableCatalog, name: str, execution: RefreshExecution, *, rebuild: bool = False
) -> RefreshReport:
    """Bring a rollup up to date, in several commits if much has changed; with `rebuild`, compute it anew.

    Raises `TableNotFound`, and `Invalid` for a table that is not a rollup or lost its source, and if it must be
    computed anew but would lose rows by that which have expired in its source.
    """
    handle = catalog.handle(name)
    plans = _Plans(catalog, handle, execution, rebuild=rebuild)
    reports: list[RefreshReport] = []
    while not reports or plans.behind:
        commit, snapshot, tries = commit_planned(handle, plans.plan)
        version = snapshot.version if commit is None else commit.version
        reports.append(replace(plans.done, version=version, tries=tries))
    return _summed(reports)


def _summed(steps: Sequence[RefreshReport]) -> RefreshReport:
    """Return the report of several steps."""
    main = max(steps, key=lambda step: MODES.index(step.mode))
    return replace(
        steps[-1],
        mode=main.mode,
        reason=main.reason,
        groups=None if main.groups is None else sum(step.groups or 0 for step in steps),
        rows=sum(step.rows for step in steps),
        files_added=sum(step.files_added for step in steps),
        files_removed=sum(step.files_removed for step in steps),
        tries=sum(step.tries for step in steps) - len(steps) + 1,
    )


def source_of(catalog: Catalog, rollup: Snapshot) -> tuple[ReadableTable, Snapshot]:
    """Return a rollup's source at its newest version. Raises `Invalid`, naming both, where it is gone."""
    source = definition_of(rollup).source
    handle = catalog.handle(source)
    try:
        return handle, handle.newest()
    except TableNotFound as error:
        raise Invalid(
            f"the rollup {rollup.name} has lost its source; bring it back, or drop the rollup ({error})"
        ) from error


def refresh_bytes(catalog: Catalog, name: str, *, stepwise: bool = False) -> int:
    """Return the bytes of files of its source that a rollup's refresh reads at least, in all its steps, or in the next.

    For a rebuild these are all that can hold rows of its groups, else those of the change. Raises `Invalid`.
    """
    rollup = catalog.handle(name).newest()
    handle, newest = source_of(catalog, rollup)
    change = find_change(handle, rollup, newest, stepwise=stepwise)
    if change.rebuild is None:
        return change.size
    inputs = computing(rollup).whole(change.source).inputs.values()
    return sum(file.size for each in inputs if isinstance(each, Files) for file in each.files)


class _Plans:
    """The plans of one refresh. `done` is what the last one does, `behind` whether the source has newer versions."""

    done: RefreshReport
    behind: bool

    def __init__(
        self, catalog: WritableCatalog, handle: TableHandle, execution: RefreshExecution, *, rebuild: bool
    ) -> None:
        self._catalog = catalog
        self._handle = handle
        self._execution = execution
        self._rebuild = rebuild

    def plan(self, rollup: Snapshot) -> Changes | None:
        """Return what to commit on a version; None where the rollup shows the source's newest version already."""
        now_ms = self._handle.clock.now_ms()
        handle, newest = source_of(self._catalog, rollup)
        if handle.carry_out(newest):
            newest = handle.newest()
        try:
            change = find_change(handle, rollup, newest, rebuild=self._rebuild, stepwise=True)
            source = change.source
            self.behind = source.version < newest.version
            self.done = RefreshReport(rollup.version, source.version)
            if change.is_empty and change.shown == source.version:
                return None
            with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
                removed, added = self._work(rollup, handle, change, Path(folder))
        except Invalid as error:
            raise type(error)(f"the rollup {rollup.name} cannot be refreshed: {error}") from error
        rows = sum(add.num_records or 0 for add in added)
        self.done = replace(self.done, rows=rows, files_added=len(added), files_removed=len(removed))
        parameters = {"source": source.name, "sourceVersion": str(source.version), "mode": self.done.mode}
        return Changes(
            "REFRESH",
            parameters if self.done.reason is None else {**parameters, "reason": self.done.reason},
            adds=added,
            removes=[file.removed(self._handle.clock.now_ms(), data_change=True) for file in removed],
            txns=progress_txns(rollup, [source], now_ms),
        )

    def _work(
        self, rollup: Snapshot, handle: ReadableTable, change: SourceChange, folder: Path
    ) -> tuple[Sequence[AddFile], Sequence[AddFile]]:
        """Write the files that a refresh needs; return those of the rollup that they replace, and them."""
        work = computing(rollup, "pipeline_")  # the names by which an execution knows what inputs are

        def evaluate(relation: Relation, take: Take[T]) -> T:
            return self._execution.rows(relation, work.split(relation), take)

        change, groups = touched_groups(work, handle, change, folder, evaluate)
        if groups is None:
            self.done = replace(self.done, mode=REBUILT, reason=change.rebuild, groups=None)
            return list(rollup.files), self._written(work, rollup, work.whole(change.source))
        if not groups.count:
            return [], []
        files = groups.in_rollup(rollup).files
        mode = RECOMPUTED if groups.recomputed.count else FOLDED
        self.done = replace(self.done, mode=mode, groups=groups.count)
        return files, self._written(work, rollup, work.updated(rollup, files, groups, change.source))

    def _written(self, work: Computing, rollup: Snapshot, relation: Relation) -> list[AddFile]:
        return self._execution.written(self._handle, rollup, relation, work.split(relation))


def touched_groups(
    work: Computing, handle: ReadableTable, change: SourceChange, folder: Path, evaluate: Evaluate
) -> tuple[SourceChange, Touched | None]:
    """Return a change with the groups that it touches, as files in a folder; None where the rollup must be rebuilt.

    That may turn out here, where changes have expired. Raises `Invalid` if it would lose rows by that.
    """
    try:
        return change, None if change.rebuild is not None else _touched(work, handle, change, folder, evaluate)
    except VersionExpired as error:
        return rebuilt(change, str(error)), None


def _touched(work: Computing, handle: ReadableTable, change: SourceChange, folder: Path, evaluate: Evaluate) -> Touched:

    def path(name: str) -> Path:
        return folder / f"{work.prefix}{name}.parquet"

    rows = None
    if change.commits:
        columns = work.definition.columns_of(change.source)
        rows = LocalRows(path("changed"), write_rows(handle, change, columns, path("changed")))
    keys = work.definition.keys
    if change.is_empty:
        return write_touched(iter(()), work.schema, (), path)
    return evaluate(
        work.changed_groups(change, rows), lambda _, batches: write_touched(batches, work.schema, keys, path)
    )
