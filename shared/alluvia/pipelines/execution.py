"""How the relations of a run are computed: here, with DuckDB, or by tasks of another engine that share the rows out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol, TypeVar

from alluvia.commit.handle import TableHandle
from alluvia.delta.data_files.writer import FileWriter, RowCheck
from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.planning.layout import row_check
from alluvia.operations.planning.optimistic_retry import discard
from alluvia.operations.reading.relations import Evaluate, Relation, Split, Take
from alluvia.pipelines.declarations.declaration import Declaration
from alluvia.pipelines.sorting_rows import JudgedRows, sorting

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowTable:
    """A table that rows are written to, at a version."""

    handle: TableHandle
    snapshot: Snapshot

    def writer(self, check: RowCheck | None = None) -> FileWriter:
        """Return a writer of its files."""
        return self.handle.writer(self.snapshot, check)


@dataclass(frozen=True, slots=True)
class RowOutput:
    """The tables that the rows of a run go to, and the files that they are in so far.

    `versions` are those of the sources, and `set_aside` the files of rows that failed.
    """

    declaration: Declaration
    table: RowTable
    quarantine: RowTable | None = None
    versions: Mapping[str, int] = field(default_factory=dict)
    written: list[AddFile] = field(default_factory=list)
    set_aside: list[AddFile] = field(default_factory=list)

    def discard(self) -> None:
        """Delete the files."""
        for table, files in ((self.table, self.written), (self.quarantine, self.set_aside)):
            if table is not None:
                discard(table.handle, table.snapshot, files)

    def writing(self) -> Take[JudgedRows]:
        """Return what writes rows to files as they come."""
        target = self.table.snapshot
        writer = self.table.writer(row_check(target.settings.constraints, target.schema))
        aside = None if self.quarantine is None else self.quarantine.writer()
        versions = dict(self.versions)
        return sorting(self.declaration, target.schema, versions, writer, aside, self.written, self.set_aside)


class Execution(Protocol):
    """Computes relations. Raises what `Evaluate` raises."""

    @property
    def evaluate(self) -> Evaluate:
        """Return what computes small relations here."""

    def rows(self, relation: Relation, split: Split, take: Take[T]) -> T:
        """Return what `take` returns, which is called here; the rows come in any order."""

    def written(self, relation: Relation, split: Split, output: RowOutput) -> JudgedRows:
        """Write the rows of a relation to files, each of which is noted in the output as well."""


@dataclass(frozen=True, slots=True)
class LocalExecution:
    """Computes relations as a whole, in this machine's DuckDB."""

    evaluate: Evaluate

    def rows(self, relation: Relation, split: Split, take: Take[T]) -> T:  # noqa: ARG002
        return self.evaluate(relation, take)

    def written(self, relation: Relation, split: Split, output: RowOutput) -> JudgedRows:  # noqa: ARG002
        return self.evaluate(relation, output.writing())
