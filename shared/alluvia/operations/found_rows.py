"""Change rows that a query has found: each by its file and its position there, with what becomes of it.

They are kept in a file of this process, in the order of the table's files, so that memory holds a part of them at a
time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.errors import Conflict, Unavailable
from alluvia.log.actions import AddFile
from alluvia.operations.datafile import DataFile
from alluvia.operations.edits import Edit, Hits, RowChanges
from alluvia.scratch import scratch_root
from alluvia.table.masks import mask_of
from alluvia.table.scan import Scan
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Changes

Metrics = Callable[[RowChanges, Changes], dict[str, int]]


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows with the number of their file among those of `scan`, their position in it, and more columns.

    `ranges` says which of them are of which file, by its key; `reads_itself` whether the query named the table again.
    """

    scan: Scan
    reads_itself: bool
    rows: pa.Table
    ranges: Mapping[str, range]


@contextmanager
def kept(scans: Sequence[Scan], schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[FoundRows]:
    """Keep rows as they come, by file and position, while the block runs. Raises `Unavailable` if the disk is full.

    `scans` are what the query has read: first the table whose rows these are.
    """
    scan, *others = scans
    counts: dict[int, int] = {}
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
        ranges, start = {}, 0
        for number, count in counts.items():
            ranges[scan.files[number].key] = range(start, start + count)
            start += count
        with pa.memory_map(str(path)) as mapped:
            itself = any(each.snapshot.root == scan.snapshot.root for each in others)
            yield FoundRows(scan, itself, pa.ipc.open_stream(mapped).read_all(), ranges)


class FoundEdit(Edit):
    """What becomes of rows that were found: they are deleted."""

    def __init__(self, snapshot: Snapshot, found: FoundRows, operation: str, where: str, metrics: Metrics) -> None:
        if snapshot.state is not found.scan.snapshot.state:
            raise Conflict(f"table {snapshot.name} changed while its rows were looked for: try again")
        self.operation = operation
        self.parameters = {"predicate": where}
        self.predicate = found.scan.predicate
        self._found = found
        self._metrics = metrics

    def candidates(self, snapshot: Snapshot) -> Sequence[AddFile]:  # noqa: ARG002
        return [file for file in self._found.scan.files if file.key in self._found.ranges]

    def find(self, data: DataFile) -> Hits | None:
        here = self._found.ranges[data.file.key]
        positions = self._found.rows.column(1).slice(here.start, len(here)).combine_chunks()
        return Hits(mask_of(positions.cast(pa.int64()), data.rows))

    def renew(self, rows: pa.Table, sources: pa.Int64Array) -> pa.Table:  # noqa: ARG002
        return rows.slice(0, 0)

    def metrics(self, done: RowChanges, changes: Changes) -> dict[str, int]:
        return self._metrics(done, changes)
