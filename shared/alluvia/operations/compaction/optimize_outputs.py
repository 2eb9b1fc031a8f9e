"""Join small files of different values, and write a stream of sorted rows into Parquet files of about a size.

After a join, a query for one value reads a file of about the target where it read a small one. So `plan_joins` joins
files only if more than a quarter of those that could be joined are small, and nothing else is left to merge.

Files are written row group by row group, with statistics. Memory holds the row groups being encoded, their results, and
the next one.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field
from itertools import accumulate, groupby
from math import ceil, inf
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from alluvia.delta.data_files.encodings import Encodings, encodings_of
from alluvia.delta.data_files.joined_parquet import JoinedParquet
from alluvia.delta.data_files.writer import encode_parquet
from alluvia.delta.log.actions import AddFile
from alluvia.delta.partitioning.transforms import Span, hull
from alluvia.delta.snapshot import Snapshot
from alluvia.delta.statistics.written import file_statistics
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.compaction.optimize_cuts import OVER_SHARE, SMALL_SHARE, even_size
from alluvia.operations.compaction.optimize_files import Candidate
from alluvia.operations.compaction.optimize_plan import CUT_TARGETS_MAX, GROWTH_MAX, FileGroup, filled, tiers

SMALL_FILES_MAX = 1 / 4
"""If more than this share of the files are small, those of different values are joined."""
FILES_MIN = 8
"""Fewer files than this are left as they are."""


def plan_joins(
    candidates: Iterable[Candidate],
    target: int,
    files_like: Callable[[AddFile], int],
    growth: float = GROWTH_MAX,
    *,
    full: bool = False,
) -> list[FileGroup]:
    """Return groups of small files, each of which becomes one file; the smallest first.

    `target` is in bytes. `files_like` says how many files of the table have a file's values of the partition columns:
    Delta allows one set of them in a file. `growth` and `full` are as for `plan_optimize`.
    """
    small = [each for each in candidates if each.file.size < target * SMALL_SHARE and not each.cell]
    groups: list[FileGroup] = []
    for _, members in groupby(sorted(small, key=_place), key=_partition):
        files = list(members)
        if len(files) < 2 or not _too_many(len(files), files_like(files[0].file)):
            continue
        groups += _joined(files, target, inf if full else growth)
    return sorted(groups, key=lambda group: (group.weight, group.files[0].file.path))


def _partition(each: Candidate) -> tuple[tuple[str, bool, str], ...]:
    """Return the values of the partition columns, in a form that can be sorted."""
    return tuple((name, text is None, text or "") for name, text in sorted(each.file.partition_values.items()))


def _place(each: Candidate) -> tuple[object, ...]:
    return (_partition(each), each.span.low, each.span.high, each.file.path)


def _too_many(small: int, files: int) -> bool:
    return files >= FILES_MIN and small > files * SMALL_FILES_MAX


def _joined(files: Sequence[Candidate], target: int, growth: float) -> Iterator[FileGroup]:
    """Join neighbours, in the order of their values, until they are a file of about the target.

    What remains is too little for one: it waits for more rows, in few files.
    """
    spanning = _spanning(files, target)
    chains = _chains([each for each in files if each.file.path not in spanning], target)
    rest = chains.pop() if chains and _weight(chains[-1]) < target * SMALL_SHARE else []
    if chains and _weight(chains[-1]) + _weight(rest) <= target * OVER_SHARE:
        chains[-1] += rest
        rest = []
    waiting = [*rest, *(each for each in files if each.file.path in spanning)]
    chains += tiers(sorted(waiting, key=lambda each: (each.weight, each.file.path)), target, growth)
    for chain in chains:
        if len(chain) > 1:
            yield FileGroup(tuple(chain), joined=not hull(each.span for each in chain).single)


def _chains(files: Sequence[Candidate], target: int) -> list[list[Candidate]]:
    """Divide files, in order, so that each part but the last is expected to be a file that is not small."""

    def ends(size: int, more: int) -> bool:
        return size >= target * SMALL_SHARE and size + more > target

    return list(filled(files, ends, CUT_TARGETS_MAX * target))


def _spanning(files: Sequence[Candidate], target: int) -> set[str]:
    """Return the paths of the files among whose values more than a target of the other files begins.

    Joined to a neighbour, they would have a full file of rows read for every value in between.
    """
    starts = [each.span.low for each in files]
    before = list(accumulate((each.weight for each in files), initial=0))
    return {
        each.file.path
        for each in files
        if before[bisect_right(starts, each.span.high)] - before[bisect_left(starts, each.span.low)] - each.weight
        > target
    }


def _weight(files: Iterable[Candidate]) -> int:
    return sum(each.weight for each in files)


ENCODERS = max(2, min(8, os.cpu_count() or 1))
"""So many row groups are encoded at once, where memory allows it."""
ROW_GROUPS = 8
"""The least number of row groups of a file of several, so that its size is learned while it is written."""
ROW_GROUP_ROWS_MIN = 1024
UNKNOWN_SHARE = 1 / 4
"""No more than this share of a file is on its way at once where its size decides when it ends, or two row groups."""
HELD_BATCHES = 3
"""The row groups being encoded and the next one take no more than this many batches of the memory's limit."""
BATCH_BYTES = 1 << 27
"""A batch without a limit."""


class SortedRows:
    """A stream of rows, of which the caller takes as many as it likes, but not many more than `bytes_max` at once."""

    def __init__(self, reader: pa.RecordBatchReader, schema: pa.Schema, bytes_max: int | None = None) -> None:
        self.schema = schema
        self._reader = reader
        self.bytes_max = bytes_max
        self._held: list[pa.Table] = []

    def take(self, count: int) -> pa.Table:
        """Return the next rows; fewer where they are big, none where the files hold no more."""
        held = sum(map(len, self._held))
        size = sum(rows.nbytes for rows in self._held)
        while held < count and (self.bytes_max is None or size < self.bytes_max):
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
        """Return how many rows are left, and release them."""
        return sum(map(len, self._held)) + sum(map(len, self._reader))


@dataclass(slots=True)
class Output:
    """A file that has been written."""

    path: Path
    span: Span
    rows: int = 0
    statistics: list[str] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)


class _Part(NamedTuple):
    """Rows on their way into a file: how many, their bytes in memory, and the row group that is made of them."""

    rows: int
    held: int
    encoded: Future[tuple[bytes, str]]


class Outputs:
    """Writes ranges of the stream to files. While row groups are encoded, DuckDB hands out the next one.

    `row_bytes` is what a row is expected to take; what it really takes is learned with every row group.
    """

    def __init__(self, snapshot: Snapshot, rows: SortedRows, folder: Path, target: int, row_bytes: float) -> None:
        self._form = snapshot.file_form
        self._settings = self._form.file_settings
        self._rows = rows
        self._folder = folder
        self._target = target
        self._row_bytes = row_bytes
        self._learned = False
        self._written: list[Output] = []

    def write(self, ranges: Iterable[tuple[int, Span]]) -> list[Output]:
        """Write each range, a number of rows of a span, into as many files as it needs, evenly."""
        with ThreadPoolExecutor(ENCODERS) as threads:
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
        parts: deque[_Part] = deque()
        encodings: Encodings | None = None
        stored: pa.Schema | None = None
        taken = 0
        with output.path.open("wb") as sink:
            file = JoinedParquet(sink)
            while count := next_rows(left, taken, self._row_bytes, self._target, self._settings.row_group_rows):
                rows = self._form.stored(self._rows.take(count), stored)
                if not len(rows):
                    break
                if stored is None:
                    stored = rows.schema
                    output.tags = self._form.tags(stored)
                encodings = encodings or encodings_of(rows, tried=True)
                parts.append(_Part(len(rows), rows.nbytes, threads.submit(self._encode, rows, encodings)))
                taken += len(rows)
                encoders = self._encoders(left, count)
                while self._is_full(parts, encoders):
                    self._add(file, output, parts.popleft())
            while parts:
                self._add(file, output, parts.popleft())
            file.close()
        return output

    def _encoders(self, left: int, count: int) -> int:
        """Return how many row groups of `count` rows may be encoded at once.

        Two, until a size is known; then so few that those under way, whose sizes are not, are a small part of the file.
        """
        if not self._learned:
            return 2
        rows = min(left, self._target / self._row_bytes)
        return max(2, min(ENCODERS, int(rows / count * UNKNOWN_SHARE)))

    def _is_full(self, parts: Sequence[_Part], encoders: int) -> bool:
        """Whether no further row group may be begun before the first is done: the next may be as big as the last."""
        if not parts:
            return False
        held = sum(part.held for part in parts) + parts[-1].held
        return len(parts) >= encoders or held > HELD_BATCHES * (self._rows.bytes_max or BATCH_BYTES)

    def _encode(self, rows: pa.Table, encodings: Encodings) -> tuple[bytes, str]:
        data = encode_parquet(rows, self._settings, encodings)
        return data, file_statistics(rows, self._settings.indexed_columns)

    def _add(self, file: JoinedParquet, output: Output, part: _Part) -> None:
        data, statistics = part.encoded.result()
        file.add(data)
        output.rows += part.rows
        output.statistics.append(statistics)
        self._row_bytes, self._learned = file.size / output.rows, True


def next_rows(left: int, taken: int, row_bytes: float, target: int, most: int) -> int:
    """Return how many rows the next row group of a file holds; 0 once the file is complete.

    `left` rows were to be written when the file was begun, and it has taken some of them. `most` rows make a row group.
    """
    wanted = ceil(even_size(left * row_bytes, target) / row_bytes) if row_bytes else left
    if wanted >= left:
        return min(left - taken, most)
    return max(0, min(wanted - taken, most, max(ROW_GROUP_ROWS_MIN, wanted // ROW_GROUPS)))
