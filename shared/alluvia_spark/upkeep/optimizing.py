"""Optimize on Spark: the library plans and commits, and a task rewrites what the library would rewrite at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from alluvia.operations.compaction.optimize import OptimizeOptions, OptimizeReport, optimize
from alluvia.operations.compaction.optimize_plan import FileGroup
from alluvia.operations.compaction.rewriters import RewriteOrder, Rewritten, rewrite_group
from alluvia_spark.tables import TablePlace
from alluvia_spark.upkeep.work import results, shared_out, task_memory_mb
from alluvia_spark.writing.row_changes import TableTask, without_files


@dataclass(frozen=True)
class GroupsTask(TableTask):
    """Rewrites groups of files of a table's version."""

    target: int
    folds: bool
    memory_mb: int

    def __call__(self, groups: Sequence[FileGroup]) -> list[Rewritten]:
        """Rewrite some groups, one after the other."""
        handle, snapshot = self.opened()
        order = RewriteOrder(snapshot, self.target, self.folds)
        evaluation = self.place.opened().lake.evaluation if self.folds else None
        return [rewrite_group(handle, order, group, self.memory_mb, evaluation) for group in groups]


def run(
    spark: SparkSession, place: TablePlace, options: OptimizeOptions, memory_mb: int | None, *, dry_run: bool
) -> OptimizeReport:
    """Optimize a table, as `Table.optimize` does."""
    memory = memory_mb or task_memory_mb(spark)

    def rewritten(order: RewriteOrder, groups: Sequence[FileGroup]) -> Iterator[tuple[FileGroup, Rewritten]]:
        task = GroupsTask(place, without_files(order.snapshot), order.target, order.folds, memory)
        for piece, done in results(spark, task, shared_out(groups, spark)):
            yield from zip(piece, done, strict=True)

    return optimize(place.handle(), options, dry_run=dry_run, rewriter=rewritten)
