"""Verification on Spark: tasks read the data files, and the library checks everything else on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from alluvia.delta.snapshot import Snapshot
from alluvia.operations.planning.layout import row_check
from alluvia.verify.data_files import RowRules
from alluvia.verify.event_ids import IdTables
from alluvia.verify.leaves import Leaf
from alluvia.verify.reading import FilesRead, FileToRead, read_files
from alluvia.verify.report import Findings, VerifyReport
from alluvia.verify.verification import Progress, verify
from alluvia_spark.tables import TablePlace
from alluvia_spark.upkeep.work import results, shared_out
from alluvia_spark.writing.row_changes import TableTask, without_files


@dataclass(frozen=True)
class ReadingTask(TableTask):
    """Reads files of a table's version. `constraints` are the texts of CHECK constraints by name."""

    leaves: Sequence[Leaf]
    constraints: Mapping[str, str]
    with_ids: bool

    def __call__(self, piece: tuple[int, Sequence[FileToRead]]) -> FilesRead:
        """Read the files of a numbered piece, one after the other."""
        _, files = piece
        handle, snapshot = self.opened()
        checks = {name: row_check({name: text}, snapshot.schema) for name, text in self.constraints.items()}
        rules = RowRules(self.leaves, {name: check for name, check in checks.items() if check is not None})
        findings, ids = Findings(), IdTables() if self.with_ids else None
        rows = list(read_files(handle.store, snapshot, rules, files, findings, ids))
        return FilesRead(rows, findings, [] if ids is None else ids.tables)


def run(spark: SparkSession, place: TablePlace, progress: Progress | None) -> VerifyReport:
    """Verify a table in full mode, as `Table.verify` does."""

    def read(
        snapshot: Snapshot,
        rules: RowRules,
        files: Sequence[FileToRead],
        with_ids: bool,
    ) -> Iterator[FilesRead]:
        texts = snapshot.settings.constraints if rules.constraints else {}
        constraints = {name: texts[name] for name in rules.constraints}
        task = ReadingTask(place, without_files(snapshot), rules.leaves, constraints, with_ids)
        found: dict[int, Findings] = {}
        for (number, _), done in results(spark, task, enumerate(shared_out(files, spark))):
            found[number] = done.findings
            yield replace(done, findings=Findings())
        yield from (FilesRead((), found[number]) for number in sorted(found))  # told in the order of the files

    return verify(place.handle(), full=True, progress=progress, reader=read)
