"""A job's manifest: its files with sizes and etags, as a Parquet object; and how tasks share them.

A source may have millions of files. The driver keeps nine bytes of each, and a task reads only the row groups that its
own files are in, by one request each.
"""

from __future__ import annotations

import io
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.errors import Corrupt, Invalid, ObjectNotFound
from alluvia.scratch import scratch_root
from alluvia.store import Store
from alluvia_spark.sources.files import FileSplit, SourceFile
from alluvia_spark.sources.lines import RangedFile
from alluvia_spark.sources.places import Found

OPEN_COST_BYTES = 256 * 1024
GROUP_ROWS = 1 << 13
FOOTER_BYTES = 64 << 10
_SCHEMA = pa.schema(
    [
        pa.field("root", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("cut", pa.bool_(), nullable=False),
    ]
)


class Portion(NamedTuple):
    """What one task reads: the files from row `first` to row `last`, the first from byte `start`, the last to `end`."""

    first: int
    start: int
    last: int
    end: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a job as its driver knows them: sizes in bytes, and which files may be cut, both by row.

    `key` is where the object is in the lake's store.
    """

    key: str
    sizes: array[int]
    cut: bytes

    @property
    def bytes(self) -> int:
        """Return how many bytes all files have."""
        return sum(self.sizes)

    @property
    def cost_bytes(self) -> int:
        """Return what reading all files costs, that of opening each included, as `splits` counts it."""
        return self.bytes + OPEN_COST_BYTES * len(self.sizes)

    def splits(self, target_bytes: int) -> pa.Table:
        """Divide the files among tasks of about `target_bytes`, in order: a row of `Portion` for each task.

        Big files are cut if they may be, and small ones go together.
        """
        columns: tuple[array[int], ...] = tuple(array("q") for _ in Portion._fields)
        for portion in _portions(self.sizes, self.cut, target_bytes):
            for column, value in zip(columns, portion, strict=True):
                column.append(value)
        return pa.table([pa.array(column, pa.int64()) for column in columns], list(Portion._fields))


def portion_of(splits: pa.Table, task: int) -> Portion:
    """Return the portion of a task."""
    [row] = splits.slice(task, 1).to_pylist()
    return Portion(**row)


def _portions(sizes: Sequence[int], cut: bytes, target_bytes: int) -> Iterator[Portion]:
    first = start = last = end = 0
    pending = 0
    for row, (size, may_be_cut) in enumerate(zip(sizes, cut, strict=True)):
        parts = -(-size // target_bytes) if may_be_cut else 1
        for part in range(max(1, parts)):
            begin, until = size * part // parts, size * (part + 1) // parts
            cost = until - begin + OPEN_COST_BYTES
            if pending and pending + cost > target_bytes + OPEN_COST_BYTES:
                yield Portion(first, start, last, end)
                pending = 0
            if not pending:
                first, start = row, begin
            last, end = row, until
            pending += cost
    if pending:
        yield Portion(first, start, last, end)


def file_page(files: Found, cut: Sequence[bool]) -> pa.RecordBatch:
    """Return some files as rows of a manifest, with whether each may be cut."""
    columns: tuple[Sequence[object], ...] = (*files, cut)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def write_manifest(store: Store, key: str, pages: Iterable[pa.RecordBatch]) -> Manifest:
    """Write the files of some pages as the manifest object `key`, without holding them all in memory."""
    with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
        path = Path(folder, "manifest")
        with pq.ParquetWriter(path, _SCHEMA, compression="zstd", write_statistics=False) as writer:
            for rows in _grouped(pages):
                writer.write_table(rows, row_group_size=GROUP_ROWS)
        store.put_new_file(key, path)
        return _read(key, path)


def _grouped(pages: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of pages, `GROUP_ROWS` at a time."""
    pending: list[pa.RecordBatch] = []
    count = 0
    for page in pages:
        pending.append(page)
        count += len(page)
        if count >= GROUP_ROWS:
            rows = pa.Table.from_batches(pending)
            whole = count - count % GROUP_ROWS
            yield rows.slice(0, whole)
            pending, count = rows.slice(whole).to_batches(), count - whole
    if count:
        yield pa.Table.from_batches(pending)


def open_manifest(store: Store, key: str) -> Manifest:
    """Read what the driver needs of a manifest. Raises `Invalid` if it is gone."""
    with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
        path = Path(folder, "manifest")
        try:
            store.get_file(key, path)
        except ObjectNotFound as error:
            raise Invalid(f"{key} is gone, so the job cannot be run again: start one with another job_id") from error
        return _read(key, path)


def _read(key: str, path: Path) -> Manifest:
    sizes, cut = array("q"), bytearray()
    try:
        for batch in pq.ParquetFile(path).iter_batches(GROUP_ROWS, columns=["size", "cut"]):
            sizes.extend(batch["size"].to_pylist())
            cut.extend(batch["cut"].to_pylist())
    except (pa.ArrowException, OSError) as error:
        raise Corrupt(f"{key} is not a manifest of a backfill job: {error}") from error
    return Manifest(key, sizes, bytes(cut))


def read_splits(store: Store, key: str, portion: Portion) -> list[FileSplit]:
    """Return what a task reads, by its portion of the manifest `key`."""
    metadata = _footer(store, key)
    splits: list[FileSplit] = []
    row = 0
    for group in range(metadata.num_row_groups):
        count = metadata.row_group(group).num_rows
        low, high = max(portion.first, row), min(portion.last + 1, row + count)
        if low < high:
            rows = _row_group(store, key, metadata, group).slice(low - row, high - low).to_pylist()
            splits += [
                FileSplit(
                    SourceFile(each["root"], each["key"], each["size"], each["etag"]),
                    portion.start if at == portion.first else 0,
                    portion.end if at == portion.last else each["size"],
                )
                for at, each in enumerate(rows, low)
            ]
        row += count
    return splits


@lru_cache(maxsize=4)
def _footer(store: Store, key: str) -> pq.FileMetaData:
    """Return what is in a Parquet object's footer, read by one request, or two for a long one."""
    tail = store.get(key, -FOOTER_BYTES)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > len(tail):
        tail = store.get(key, -length)
    return pq.read_metadata(pa.BufferReader(b"PAR1" + tail[-length:]))


def _row_group(store: Store, key: str, metadata: pq.FileMetaData, number: int) -> pa.Table:
    group = metadata.row_group(number)
    chunks = [group.column(at) for at in range(group.num_columns)]
    pages = [(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.total_compressed_size) for chunk in chunks]
    start, end = min(at for at, _ in pages), max(at + size for at, size in pages)
    data = store.get(key, start, end)
    window = RangedFile(end, lambda begin, until: data[begin - start : until - start])
    return pq.ParquetFile(io.BufferedReader(window), metadata=metadata).read_row_group(number)
