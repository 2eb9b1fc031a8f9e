"""A merge whose pairs a query has found: each row by its file and its position there, with its clause and its values.

They are kept in a file of this process, in the order of the table's files, so that memory holds a part of them at a
time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.changes import Changes
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.deletion_vectors.storage import mask_of, numbers
from alluvia.delta.log.actions import AddFile
from alluvia.delta.schema.caller_rows import conform, conform_by_position
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Conflict, Invalid, Unavailable
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.reading.datafile import DataFile
from alluvia.operations.rows.edits import Inserts, RowChanges
from alluvia.operations.rows.merge import CLAUSE, FilePairs, MergeEdit
from alluvia.scratch import scratch_root

VALUES_FROM = 3
"""Before the values come the file, the position and the clause."""


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """Rows with the number of their file among those of `scan`, their position in it, the number of the clause that
    says which clause applies to them, and the values of clauses.

    `ranges` says which of them are of which file, by its key; `new` are in none. `reads_itself` says whether the query
    named the table again.
    """

    scan: Scan
    reads_itself: bool
    rows: pa.Table
    ranges: Mapping[str, range]
    new: range


@dataclass(frozen=True, slots=True)
class LocatedClause:
    """A clause: its `action` is `update`, `delete` or `insert`.

    The `columns` of the table get the values of as many columns of the rows that were found, from the one numbered
    `first` on.
    """

    action: str
    columns: Sequence[str] = ()
    first: int = VALUES_FROM


@dataclass(frozen=True, slots=True)
class LocatedRules:
    """An edit of rows that were found: its clauses, by number, and what the table's history says of it.

    Where no row may be found twice, `twice` says so; else it is found once, however often it was.
    """

    operation: str
    clauses: Sequence[LocatedClause]
    parameters: Mapping[str, str]
    metrics: Callable[[RowChanges, Changes], dict[str, int]]
    twice: str = ""


@contextmanager
def kept(scans: Sequence[Scan], schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[LocatedRows]:
    """Keep rows, which come by file and position and then the new ones, while the block runs.

    `scans` are what the query has read: first the table whose rows these are. Raises `Unavailable` if the disk is full.
    """
    scan, *others = scans
    counts: dict[int | None, int] = {}
    with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
        path = Path(folder, "rows.arrow")
        try:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
                    for each in pc.value_counts(batch.column(0)).to_pylist():
                        counts[each["values"]] = counts.get(each["values"], 0) + each["counts"]
        except OSError as error:
            raise Unavailable(f"not enough disk space for the rows that change: {error.strerror}") from error
        ranges, new, start = {}, range(0), 0
        for number, many in counts.items():
            here = range(start, start + many)
            start += many
            if number is None:
                new = here
            else:
                ranges[scan.files[number].key] = here
        with pa.memory_map(str(path)) as mapped:
            itself = any(each.snapshot.root == scan.snapshot.root for each in others)
            yield LocatedRows(scan, itself, pa.ipc.open_stream(mapped).read_all(), ranges, new)


class LocatedMerge(MergeEdit):
    """Rows that were found are updated, deleted and inserted."""

    def __init__(self, snapshot: Snapshot, located: LocatedRows, rules: LocatedRules) -> None:
        if snapshot.state is not located.scan.snapshot.state:
            raise Conflict(f"table {snapshot.name} changed while its rows were looked for: try again")
        super().__init__(snapshot, rules.clauses)
        self.operation, self.parameters = rules.operation, rules.parameters
        self.predicate = located.scan.predicate
        self._found = located
        self._rules = rules

    def candidates(self, snapshot: Snapshot) -> Sequence[AddFile]:  # noqa: ARG002
        return [file for file in self._found.scan.files if file.key in self._found.ranges]

    def pairs(self, data: DataFile) -> FilePairs:
        here = self._found.ranges[data.file.key]
        rows = self._found.rows.slice(here.start, len(here))
        positions = rows.column(1).combine_chunks().cast(pa.int64())
        clauses = rows.column(2).combine_chunks().cast(CLAUSE)
        sources = pc.add(numbers(len(here)), here.start)
        again = pc.equal(positions.slice(1), positions.slice(0, len(here) - 1))
        if again.true_count:
            if self._rules.twice:
                raise Invalid(self._rules.twice)
            first = pa.concat_arrays([pa.array([True]), pc.invert(again)])
            positions, clauses, sources = positions.filter(first), clauses.filter(first), sources.filter(first)
        return FilePairs(mask_of(positions, data.rows), clauses, sources)

    def values(self, clause: int, rows: pa.Table, sources: pa.Int64Array) -> pa.Table:  # noqa: ARG002
        first = sources[0].as_py()
        near = self._found.rows.slice(first, sources[-1].as_py() - first + 1).combine_chunks()
        return self._values(self._rules.clauses[clause], near.take(pc.subtract(sources, first)))

    def inserts(self, matched: pa.Int64Array) -> Inserts:  # noqa: ARG002
        new = self._found.new
        return Inserts(pc.add(numbers(len(new)), new.start), self._inserted)

    def _inserted(self) -> Iterator[pa.Table]:
        new = self._found.new
        for batch in self._found.rows.slice(new.start, len(new)).to_batches():
            rows = pa.Table.from_batches([batch])
            for number, clause in enumerate(self._rules.clauses):
                here = rows.filter(pc.equal(rows.column(2), number))
                if clause.action == "insert" and len(here):
                    yield conform(self._values(clause, here), self._schema)

    def _values(self, clause: LocatedClause, rows: pa.Table) -> pa.Table:
        given = rows.select(range(clause.first, clause.first + len(clause.columns)))
        return conform_by_position(given, pa.schema([self._schema.field(name) for name in clause.columns]))

    def metrics(self, done: RowChanges, changes: Changes) -> dict[str, int]:
        return self._rules.metrics(done, changes)
