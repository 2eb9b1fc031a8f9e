"""Optimize: rewrite many small files into few sorted ones with DuckDB, in commits that do not change data.

With a merge query they do, if it folds rows: such a commit conflicts with others as any that changes rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import too_old
from alluvia.delta.arguments import check_mapping, check_number
from alluvia.delta.partitioning.transforms import KeyPart
from alluvia.delta.schema.nesting import not_for_sql
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Conflict, Corrupt, Invalid, ObjectNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.checkpointing import checkpoint, checkpoint_due
from alluvia.operations.compaction.optimize_files import candidates, files_like, merged_row_bytes
from alluvia.operations.compaction.optimize_moves import plan_moves
from alluvia.operations.compaction.optimize_outputs import plan_joins
from alluvia.operations.compaction.optimize_plan import (
    DUE_GROWTH,
    FULL_SHARE,
    GROWTH_MAX,
    ORDERS,
    FileGroup,
    due,
    limited,
    ordered,
    plan_optimize,
)
from alluvia.operations.compaction.optimize_write import NewFiles
from alluvia.operations.compaction.rewriters import RewriteOrder, Rewriter, Rewritten, one_by_one
from alluvia.progress import report as tell_progress

if TYPE_CHECKING:
    from alluvia.operations.compaction.optimize_fold import Evaluation

PLANS_MAX = 10
"""After a lost race, and after files have become others that can be merged, the rest is planned again so many times."""
LEARNED_SHARE = 0.8
"""Once rows take less than this share of what the plan expects, the rest is planned again, for files of full size."""


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """Files that a plan rewrites together: the partition values they share, and what they are expected to become."""

    partition: dict[str, str | None]
    files: int
    bytes: int
    into_files: int
    into_bytes: int


@dataclass(slots=True)
class OptimizeReport:
    """The report of an optimize. Sizes in bytes.

    `rows_folded` is by how many rows a merge query made them fewer. `conflicts` counts groups that another writer's
    commit made it plan again, `left` those for which time ran out. `refused` says why
    files were left as they are: a column is nested too deeply. `plan` has the groups that a dry run would begin with.
    """

    files_before: int = 0
    files_removed: int = 0
    files_added: int = 0
    files_after: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    rows_folded: int = 0
    conflicts: int = 0
    left: int = 0
    refused: str | None = None
    version: int = 0
    checkpoint_version: int | None = None
    versions: list[int] = field(default_factory=list)
    plan: list[PlannedGroup] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OptimizeOptions:
    """What to rewrite; see `optimize`. Raises `Invalid`, naming the field."""

    target_size: int | None = None
    full: bool = False
    order: str = ORDERS[0]
    partition: Mapping[str, object] | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    backfill: bool = False
    when_due: bool = False

    def __post_init__(self) -> None:
        for name in ("target_size", "max_files", "max_bytes"):
            check_number(name, getattr(self, name))
        if self.order not in ORDERS:
            raise Invalid(f"order: expected {', '.join(ORDERS[:-1])} or {ORDERS[-1]}, got {self.order!r}")
        check_mapping("partition", self.partition)
        if self.backfill and (self.full or self.partition):
            raise Invalid(
                "backfill: it rewrites all files with promoted fields to move, so leave out full and partition"
            )
        if self.when_due and (self.full or self.backfill):
            raise Invalid("when_due: it leaves files for later merges, so leave out full and backfill")


def optimize(
    handle: TableHandle,
    options: OptimizeOptions | None = None,
    *,
    memory_mb: int | None = None,
    dry_run: bool = False,
    checkpoints: bool = True,
    go_on: Callable[[], bool] = lambda: True,
    turn: AbstractContextManager[object] | None = None,
    evaluation: Evaluation | None = None,
    rewriter: Rewriter | None = None,
    fits: Callable[[Sequence[FileGroup]], bool] = lambda _: True,
) -> OptimizeReport:
    """Rewrite the small files of every partition into bigger ones, and write a checkpoint if one is due.

    A group of files is one commit, which rebases over appends. Where another optimize or a delete has taken a file
    of the group, the rest is planned again on the new files. With nothing to do, it only looks for new commits. A dry
    run only plans.

    Options: `target_size` is in bytes, the property `alluvia.target_file_size` by default; `full` takes whatever fits,
    also a big file with a few small ones; `order` is `smallest`, `oldest` or `newest` first; `partition` restricts it
    to some values of fields of `partition_by`; `max_files` and `max_bytes` limit what is read. `backfill` rewrites the
    files in which values of promoted fields may still be in `properties`, whatever their size, and no others.
    `when_due` waits until a merge saves enough files, and rewrites rows only after their file has grown by half, so it
    can be called after every few commits.

    `memory_mb`: the most that this process holds while it rewrites, in million bytes. What it holds before,
    DuckDB and the rows on their way into files share it. `go_on` is asked before each group: once it says no, the rest
    is left. `turn` is held while rows are rewritten. `evaluation` runs the table's merge query, if it has one; else
    rows are merged as they are. `rewriter` rewrites groups elsewhere, many at once, within limits of its own: the four
    arguments before are not for it. `fits` is asked about the groups of the first plan: if it says no, all are left.
    """
    check_number("memory_mb", memory_mb)
    own = rewriter or one_by_one(handle, memory_mb, evaluation, go_on, turn or nullcontext())
    run = _Run(handle, options or OptimizeOptions(), own, fits, at_once=rewriter is not None)
    report = run.report
    snapshot = handle.newest()
    handle.check_own()
    report.files_before = snapshot.files.expected_len
    if dry_run:
        report.plan = [_planned(group, snapshot) for group in run.groups(snapshot)]
    else:
        snapshot = run.rewrite(snapshot)
    report.files_after = snapshot.files.expected_len
    report.version = snapshot.version
    if checkpoints and not dry_run and checkpoint_due(handle, snapshot):
        report.checkpoint_version = checkpoint(handle)
    return report


class _Run:
    """One call of `optimize`: what it has done, and what it has learned of how rows are compressed."""

    def __init__(
        self,
        handle: TableHandle,
        options: OptimizeOptions,
        rewriter: Rewriter,
        fits: Callable[[Sequence[FileGroup]], bool],
        *,
        at_once: bool,
    ) -> None:
        self.report = OptimizeReport()
        self._handle = handle
        self._options = options
        self._rewriter = rewriter
        self._fits = fits
        self._at_once = at_once
        self._row_bytes: float | None = None
        self._learned = False
        self._known: set[str] | None = None  # what comes meanwhile is left to the next call

    def groups(self, snapshot: Snapshot) -> list[FileGroup]:
        """Plan what is left to do in a snapshot: nothing where a column cannot be rewritten, as the report says."""
        if snapshot.not_readable is not None:
            self.report.refused = snapshot.not_readable
            return []
        options, target = self._options, self._target(snapshot)
        if options.backfill:
            return self._limited(snapshot, plan_moves(snapshot, target))
        chosen = candidates(
            snapshot.files,
            snapshot.partition_spec,
            int(target * FULL_SHARE),
            full=options.full,
            only=options.partition,
            row_bytes=self._row_bytes or merged_row_bytes(snapshot.files, target),
            clustered=pa.schema([snapshot.physical_field(name) for name in snapshot.settings.cluster_by]),
        )
        if self._known is not None:
            chosen = [each for each in chosen if each.file.key in self._known]
        self._known = {each.file.key for each in chosen}
        growth = DUE_GROWTH if options.when_due else GROWTH_MAX
        taken = due if options.when_due else list
        planned = taken(plan_optimize(chosen, target, growth, full=options.full))
        if not planned and not snapshot.expires:
            like = files_like(snapshot.files, snapshot.partition_spec)
            planned = taken(plan_joins(chosen, target, like, growth, full=options.full))
        return self._limited(snapshot, planned)

    def _limited(self, snapshot: Snapshot, planned: Sequence[FileGroup]) -> list[FileGroup]:
        options = self._options
        groups = ordered(planned, options.order)
        files = None if options.max_files is None else options.max_files - self.report.files_removed
        size = None if options.max_bytes is None else options.max_bytes - self.report.bytes_read
        if groups:
            self.report.refused = next(filter(None, map(not_for_sql, snapshot.schema)), None)
        return limited([] if self.report.refused else groups, files, size)

    def rewrite(self, snapshot: Snapshot) -> Snapshot:
        """Plan and rewrite until nothing is left to do, and return the last snapshot."""
        for plan in range(PLANS_MAX):
            groups, self._learned = self.groups(snapshot), False
            if groups and not plan and not self._fits(groups):
                self.report.left = len(groups)
                break
            lost = self._rewrite_all(snapshot, groups)
            self.report.conflicts += lost
            if lost:
                self._known = None
            snapshot = self._handle.newest() if lost else self._handle.at_hand()
            if not groups or self.report.left:
                break
        return snapshot

    def _rewrite_all(self, snapshot: Snapshot, groups: Sequence[FileGroup]) -> int:
        """Rewrite groups, and return how many were lost to other writers."""
        if not groups:
            return 0
        done, lost, left = self.report.bytes_read, 0, len(groups)
        total = done + sum(group.size for group in groups)
        what = f"optimizing {self._handle.name}"
        folds = bool(snapshot.settings.merge_query) and not self._options.backfill
        order = RewriteOrder(snapshot, self._target(snapshot), folds)
        tell_progress(what, done, total, "bytes")
        for group, rewritten in self._rewriter(order, groups):
            lost += not self._commit(order, group, rewritten)
            done, left = done + group.size, left - 1
            tell_progress(what, done, total, "bytes")
            if self._learned and not self._at_once:  # else the others are under way
                return lost
        self.report.left = left
        return lost

    def _commit(self, order: RewriteOrder, group: FileGroup, done: Rewritten) -> bool:
        """Commit a group that was rewritten; False if a concurrent commit has removed one of its files."""
        handle, report, planned = self._handle, self.report, order.snapshot
        files = [each.file for each in group.files]
        if isinstance(done, ObjectNotFound):
            newest = handle.newest()
            if any(newest.files.get(file.key) is None for file in files):
                return False
            handle.store.check_lasts()
            name = next((file.path for file in files if str(done).endswith(file.path)), str(done))
            raise Corrupt(f"data file {name} of version {planned.version} is missing") from None
        now_ms = handle.clock.now_ms()
        if too_old(done.files, now_ms):
            return False
        changes = Changes(
            "OPTIMIZE",
            {"targetSize": str(order.target)},
            adds=done.files,
            removes=[file.removed(now_ms, data_change=done.changed) for file in files],
        )
        try:
            commit = handle.transaction(planned).commit(changes)
        except Conflict:
            return False
        assert commit is not None  # noqa: S101 - only an on_lost callback gives up
        report.files_removed += len(files)
        report.bytes_read += group.size
        report.files_added += len(done.files)
        report.bytes_written += sum(file.size for file in done.files)
        report.rows_folded += done.rows - sum(file.num_records or 0 for file in done.files)
        report.versions.append(commit.version)
        self._learn(group, done)
        if self._known is not None:
            self._known |= {file.key for file in done.files}
        return True

    def _learn(self, group: FileGroup, done: NewFiles) -> None:
        """Remember what a row takes where it is far less than expected: the rest is to become files of full size."""
        size, rows = sum(file.size for file in done.files), sum(file.num_records or 0 for file in done.files)
        if rows and size / rows < LEARNED_SHARE * group.weight / max(1, done.rows):
            self._row_bytes, self._learned = size / rows, True

    def _target(self, snapshot: Snapshot) -> int:
        return self._options.target_size or snapshot.settings.target_file_size


def _planned(group: FileGroup, snapshot: Snapshot) -> PlannedGroup:
    spec, span = snapshot.partition_spec, group.span
    held = group.files[0].file.partition_values
    values = {name: held.get(stored) for name, stored in zip(spec.identity_columns, spec.stored_columns, strict=True)}
    fields = spec.transforms
    for place, each in enumerate(fields):
        texts = ["" if key[place : place + 1] == () else _text(key[place]) for key in (span.low, span.high)]
        values[str(each)] = texts[0] if texts[0] == texts[1] else "..".join(str(text or "") for text in texts)
    return PlannedGroup(
        values,
        len(group.files),
        group.size,
        group.expected,
        group.weight,
    )


def _text(part: KeyPart) -> str | None:
    null, value = part
    return None if null else str(value)
