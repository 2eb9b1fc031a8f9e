"""The plan of a table's next run: how, from which versions, and what it reads and costs. From the log alone.

`plan_table` decides, and `running.py` carries it out with DuckDB. Another engine may carry the same plan out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from alluvia.commit.handle import ReadableTable
from alluvia.delta.log.actions import AddFile, RemoveFile
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, VersionExpired
from alluvia.lazy_dataclasses import dataclass
from alluvia.pipelines.declarations.declaration import AGGREGATE, APPEND, FULL, KEYED
from alluvia.pipelines.declarations.definition import TableDefinition, changed_parts
from alluvia.pipelines.steps import Step
from alluvia.query.limits import dollars, requests_of
from alluvia.rollups.change import (
    SourceChange,
    find_appends,
    find_change,
    progress_of,
    rebuilt,
    unread,
    unread_from,
    why_unknown,
)
from alluvia.table_names import sql_name

NOTHING, APPENDED, CHANGED, REBUILT = "nothing", "appended", "changed", "rebuilt"
"""Modes of a run: it appends rows, replaces those that a change concerns, or replaces all."""
MODES = {APPEND: APPENDED, KEYED: CHANGED, AGGREGATE: CHANGED, FULL: REBUILT}
"""How a table of each kind follows a change of its sources."""
DUCKDB, SPARK = "duckdb", "spark"
FUNCTION_BYTES_MAX = 50_000_000_000
"""A function can read about this much in the quarter of an hour that it may run: more is work for Spark."""
FULL_REFRESH = "--full-refresh, or run(full_refresh=True)"


@dataclass(frozen=True, slots=True)
class StepSource:
    """A table that a query reads: its handle, and the version that the run brings the target to."""

    handle: ReadableTable
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The plan of one table's run: its `mode`; `reason` says why all is computed again.

    `changes` are those of each source since the version that the table shows.
    """

    step: Step
    mode: str
    reason: str | None = None
    sources: Mapping[str, StepSource] = field(default_factory=dict)
    changes: Mapping[str, SourceChange] = field(default_factory=dict)
    redefined: bool = False

    @property
    def reading(self) -> Sequence[Sequence[AddFile]]:
        """Return the files of each source that a run may read at most."""
        if self.mode == NOTHING:
            return []
        if self.mode == APPENDED:
            return [_files_of(change) for change in self.changes.values()]
        whole = [list(source.snapshot.files) for source in self.sources.values()]
        return whole if self.mode == REBUILT else [*whole, *map(_files_of, self.changes.values())]

    @property
    def bytes_at_least(self) -> int:
        """Return the bytes that a run reads at least: of a change, those of its files alone."""
        changed = [_files_of(change) for change in self.changes.values()]
        return sum(file.size for files in (changed if self.mode == CHANGED else self.reading) for file in files)

    def to_row(self) -> dict[str, object]:
        """Return the plan as users see it: `files`, `rows`, `bytes`, `requests` and `dollars` are upper bounds."""
        files = [file for several in self.reading for file in several]
        size, requests = sum(file.size for file in files), requests_of(files)
        return {
            "table": sql_name(self.step.declaration.target),
            "kind": self.step.kind.name,
            "mode": self.mode,
            "why": self.step.kind.why if self.reason is None else self.reason,
            "sources": {
                sql_name(name): {
                    "from": None if (change := self.changes.get(name)) is None or change.shown == -1 else change.shown,
                    "to": source.snapshot.version,
                }
                for name, source in self.sources.items()
            },
            "files": len(files),
            "rows": sum(file.num_records or 0 for file in files),
            "bytes": size,
            "requests": requests,
            "dollars": dollars(requests, size),
            "engine": SPARK if size > FUNCTION_BYTES_MAX else DUCKDB,
            "engine_why": f"a function can{'not' * (size > FUNCTION_BYTES_MAX)} read that much in its 15 minutes: "
            f"{FUNCTION_BYTES_MAX // 10**9} GB at most",
            "on_spark": self.step.kind.shared_out,
        }


def plan_table(
    step: Step,
    target: Snapshot | None,
    recorded: TableDefinition | None,
    sources: Mapping[str, StepSource],
    *,
    full_refresh: bool = False,
) -> StepPlan:
    """Return what a run does to a table, which is None before its first run.

    Reads the commits of the sources since the versions that the table shows. Raises `Invalid` where all must be
    computed again without a request for it: the declaration was changed, or changes of a source are gone that
    the table has.
    """
    definition = step.definition
    if target is None:
        return StepPlan(step, REBUILT, "the table is new", sources)
    parts = [] if recorded is None else changed_parts(recorded, definition)
    if full_refresh:
        reason = f"{' and '.join(parts)} changed" if parts else "it was asked for"
        shown = {name: progress_of(target, each.snapshot) for name, each in sources.items()}
        changes = {name: SourceChange(each.snapshot, shown[name]) for name, each in sources.items()}
        return StepPlan(step, REBUILT, reason, sources, changes, redefined=True)
    if parts:
        raise step.declaration.wrong(
            f"{' and '.join(parts)} changed, so that all rows must be computed again: run it with {FULL_REFRESH}"
        )
    redefined = recorded is None or recorded.to_text() != definition.to_text()
    kept = _check_columns(step, target)
    changes, rebuild = _changes(step, target, sources)
    moved = any(change.shown != change.source.version for change in changes.values())
    plan = StepPlan(step, NOTHING, None, sources, changes, redefined=redefined or moved or not kept)
    if rebuild is not None:
        return StepPlan(step, REBUILT, rebuild, sources, changes, redefined=True)
    if all(change.is_empty for change in changes.values()):
        return plan
    mode = MODES[step.kind.name]
    return StepPlan(step, mode, step.kind.why if mode == REBUILT else None, sources, changes, redefined=plan.redefined)


def rebuilt_plan(plan: StepPlan, reason: str) -> StepPlan:
    """Return a plan that computes all again, since changes turned out to be gone. Raises `Invalid` for appends."""
    wrong = plan.step.declaration.wrong
    if plan.step.kind.name == APPEND:
        raise wrong(f"{reason}: to start again from the rows that there are, run it with {FULL_REFRESH}")
    try:
        for change in plan.changes.values():
            rebuilt(change, reason)
    except Invalid as error:
        raise wrong(str(error)) from error
    return replace(plan, mode=REBUILT, reason=reason)


def _check_columns(step: Step, target: Snapshot) -> bool:
    """Return whether the table has the query's columns; new ones are added where rows before can do without.

    Raises `Invalid` for other columns, which only computing all again gives the table.
    """
    before, after = target.schema, step.schema
    gone = [name for name in before.names if name not in after.names]
    both = [name for name in after.names if name in before.names]
    others = [name for name in both if after.field(name).type != before.field(name).type]
    new = [name for name in after.names if name not in before.names]
    if gone or others or (new and step.kind.name not in (APPEND, FULL)):
        what = [f"{name} is gone" for name in gone] + [f"{name} is new" for name in new]
        what += [f"{name} is {after.field(name).type}, and was {before.field(name).type}" for name in others]
        raise step.declaration.wrong(
            f"the query gives other columns now ({', '.join(what)}), so that all rows must be computed again: run it "
            f"with {FULL_REFRESH}"
        )
    return not new


def _changes(
    step: Step, target: Snapshot, sources: Mapping[str, StepSource]
) -> tuple[dict[str, SourceChange], str | None]:
    """Return what changed in each source, and why all must be computed again; None where it need not."""
    kind, found = step.kind.name, dict[str, SourceChange]()
    for name, source in sources.items():
        found[name] = _CHANGE_OF.get(kind, _change)(step, target, source)
    return found, next((each.rebuild for each in found.values() if each.rebuild is not None), None)


def _change(step: Step, target: Snapshot, source: StepSource) -> SourceChange:
    try:
        return find_change(source.handle, target, source.snapshot, accept=FULL_REFRESH)
    except Invalid as error:
        raise step.declaration.wrong(str(error)) from error


def _appends(step: Step, target: Snapshot, source: StepSource) -> SourceChange:
    """Return the appends to a source. Raises `Invalid` where they are not known: rows would be lost, or come twice."""
    try:
        change = find_appends(source.handle, target, source.snapshot)
    except VersionExpired as error:
        again = f"to start again from the rows that there are, run it with {FULL_REFRESH}"
        raise step.declaration.wrong(f"{error}: {again}") from error
    if (reason := why_unknown(target, source.snapshot)) is not None:
        raise step.declaration.wrong(f"{reason}: to start again from its rows, run it with {FULL_REFRESH}")
    return change


def _any_change(step: Step, target: Snapshot, source: StepSource) -> SourceChange:  # noqa: ARG001
    """Return the first commit that may have changed rows of a source: all is computed again then, whatever they are."""
    shown, first = progress_of(target, source.snapshot), unread_from(target, source.snapshot)
    reason = why_unknown(target, source.snapshot)
    if first is None or reason is not None:
        return SourceChange(source.snapshot, shown, rebuild=reason)
    try:
        changing = next(filter(_may_change_rows, unread(source.handle, target, source.snapshot, first)), None)
    except VersionExpired as error:
        return SourceChange(source.snapshot, shown, rebuild=str(error))
    return SourceChange(source.snapshot, shown, (), [] if changing is None else [changing])


def _may_change_rows(commit: CommitActions) -> bool:
    changed: list[AddFile | RemoveFile] = [*commit.adds, *commit.removes]
    return bool(commit.cdc) or commit.metadata is not None or any(each.data_change for each in changed)


_CHANGE_OF = {APPEND: _appends, FULL: _any_change}


def _files_of(change: SourceChange) -> list[AddFile]:
    return [*change.files, *(add for commit in change.commits for add in commit.adds)]
