"""Write a stream of sorted rows into Parquet files of about a size, row group by row group, with statistics.

Memory holds the row group that is compressed, what comes of it, and the one that comes next.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.optimize_plan import next_rows
from alluvia.table.encodings import encodings_of
from alluvia.table.partitioning.spans import Span
from alluvia.table.snapshot import Snapshot
from alluvia.table.statistics.written import file_statistics
from alluvia.table.writer import parquet_writer, write_rows


class SortedRows:
    """A stream of rows, of which the caller takes as many as it likes, but not many more than `bytes_max` at once."""

    def __init__(self, reader: pa.RecordBatchReader, schema: pa.Schema, bytes_max: int | None = None) -> None:
        self.schema = schema
        self._reader = reader
        self._bytes_max = bytes_max
        self._held: list[pa.Table] = []

    def take(self, count: int) -> pa.Table:
        """Return the next rows; fewer where they are big, none where the files hold no more."""
        held = sum(map(len, self._held))
        size = sum(rows.nbytes for rows in self._held)
        while held < count and (self._bytes_max is None or size < self._bytes_max):
            batch = next(self._reader, None)
            if batch is None:
                break
            self._held.append(pa.Table.from_batches([batch]).cast(self.schema))
            held += len(batch)
            size += batch.nbytes
        rows = pa.concat_tables(self._held or [self.schema.empty_table()])
        self._held = [rows.slice(count)] if held > count else []
        return rows.slice(0, count)

    def rest(self) -> int:
        """Return how many rows are left, and let go of them."""
        return sum(map(len, self._held)) + sum(map(len, self._reader))


@dataclass(slots=True)
class Output:
    """A file that has been written."""

    path: Path
    span: Span
    rows: int = 0
    statistics: list[str] = field(default_factory=list)


class Outputs:
    """Writes ranges of the stream to files. While a row group is compressed, DuckDB hands out the next one.

    `row_bytes` is what a row is expected to take; what it really takes is learned with every row group.
    """

    def __init__(self, snapshot: Snapshot, rows: SortedRows, folder: Path, target: int, row_bytes: float) -> None:
        self._form = snapshot.file_form
        self._settings = self._form.settings
        self._rows = rows
        self._folder = folder
        self._target = target
        self._row_bytes = row_bytes
        self._written: list[Output] = []

    def write(self, ranges: Iterable[tuple[int, Span]]) -> list[Output]:
        """Write each range, so many rows of a span, into as many files as it needs, evenly."""
        with ThreadPoolExecutor(2) as threads:
            for rows, span in ranges:
                left = rows
                while left:
                    output = self._write_file(threads, left, span)
                    if not output.rows:  # the files hold fewer rows than their statistics say
                        return self._written
                    self._written.append(output)
                    left -= output.rows
        return self._written

    def _write_file(self, threads: ThreadPoolExecutor, left: int, span: Span) -> Output:
        output = Output(self._folder / f"new-{len(self._written)}.parquet", span)
        with ExitStack() as opened:
            sink = opened.enter_context(pa.OSFile(str(output.path), "wb"))
            files: list[pq.ParquetWriter] = []

            def write(rows: pa.Table) -> None:
                if not files:
                    file = parquet_writer(sink, rows, self._settings, encodings_of(rows, tried=True))
                    files.append(opened.enter_context(file))
                write_rows(files[0], rows, self._settings)
                output.rows += len(rows)
                self._row_bytes = sink.tell() / output.rows

            taken = 0
            pending: Future[None] | None = None
            statistics: list[Future[str]] = []
            while count := next_rows(left, taken, self._row_bytes, self._target, self._settings.row_group_rows):
                rows = self._form.stored(self._rows.take(count))
                if pending is not None:
                    pending.result()
                pending = threads.submit(write, rows) if len(rows) else None
                if pending is None:
                    break
                statistics.append(threads.submit(file_statistics, rows, self._settings.indexed_columns))
                taken += len(rows)
            if pending is not None:
                pending.result()
            output.statistics = [each.result() for each in statistics]
        return output
