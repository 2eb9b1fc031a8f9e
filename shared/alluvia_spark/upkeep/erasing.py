"""Erase on Spark: tasks find, rewrite, list, search and delete files, and the library does the rest on the driver."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from alluvia.commit.handle import TableHandle
from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.operations.erasure.erase_edit import EraseEdit
from alluvia.operations.erasure.erase_matching import Find, Matching, matching_rows
from alluvia.operations.erasure.erase_report import EraseReport, Judgement
from alluvia.operations.erasure.erase_work import FileToJudge, count_matching, judge_files
from alluvia.operations.rows.edits import Edit
from alluvia_spark.tables import TablePlace
from alluvia_spark.upkeep.vacuuming import TaskObjects
from alluvia_spark.upkeep.work import results, shared_out
from alluvia_spark.writing.row_changes import SparkWorker, TableTask, without_files


@dataclass(frozen=True)
class ErasedRows:
    """Which rows are erased, for every process. A call gives the edit that deletes them from a version."""

    where: str
    anywhere: bool

    def find(self) -> Find:
        """Return what finds these rows."""
        return matching_rows(self.where, anywhere=self.anywhere)

    def __call__(self, snapshot: Snapshot) -> EraseEdit:
        """Return the edit."""
        return EraseEdit(self.find()(snapshot))


@dataclass(frozen=True)
class JudgeTask(TableTask):
    """Says of files whether they have rows to erase, and names the fields that their rows had elsewhere."""

    rows: ErasedRows

    def __call__(self, files: Sequence[FileToJudge]) -> tuple[list[Judgement | None], Collection[str]]:
        """Judge some files, one after the other."""
        handle, snapshot = self.opened()
        matching = self.rows.find()(snapshot)
        return list(judge_files(handle, matching, files)), matching.seen


@dataclass(frozen=True)
class CountTask(TableTask):
    """Counts the rows to erase in files of the table's version, and names the fields that their rows had elsewhere."""

    rows: ErasedRows

    def __call__(self, files: Sequence[AddFile]) -> tuple[int, Collection[str]]:
        """Count those of some files, one after the other."""
        handle, snapshot = self.opened()
        matching = self.rows.find()(snapshot)
        return count_matching(handle, matching, files), matching.seen


class SparkWork:
    """Has tasks work on the files of a table."""

    def __init__(self, spark: SparkSession, place: TablePlace, rows: ErasedRows) -> None:
        self.objects = TaskObjects(spark, place)
        self._spark = spark
        self._place = place
        self._rows = rows

    def worker(self, handle: TableHandle, snapshot: Snapshot, edit: Edit) -> SparkWorker:
        """Return what has tasks find rows in files of the newest version, and rewrite these."""
        return SparkWorker(handle, snapshot, edit, self._spark, self._place, self._rows)

    def judge(self, matching: Matching, files: Sequence[FileToJudge]) -> Iterator[tuple[FileToJudge, Judgement | None]]:
        """Yield files as tasks have read them."""
        task = JudgeTask(self._place, without_files(matching.snapshot), self._rows)
        for piece, (judgements, seen) in results(self._spark, task, shared_out(files, self._spark)):
            matching.seen.update(seen)
            yield from zip(piece, judgements, strict=True)

    def count(self, matching: Matching, files: Sequence[AddFile]) -> int:
        """Add up what tasks have counted."""
        task = CountTask(self._place, without_files(matching.snapshot), self._rows)
        rows = 0
        for _, (number, seen) in results(self._spark, task, shared_out(files, self._spark)):
            matching.seen.update(seen)
            rows += number
        return rows


def run(
    spark: SparkSession,
    place: TablePlace,
    rows: ErasedRows,
    *,
    prove: bool,
    dry_run: bool,
    release_tags: bool,
) -> EraseReport:
    """Erase rows of a table, as `Table.erase` does."""
    return place.opened().erase(
        rows.where,
        prove=prove,
        dry_run=dry_run,
        release_tags=release_tags,
        anywhere=rows.anywhere,
        work=SparkWork(spark, place, rows),
    )
