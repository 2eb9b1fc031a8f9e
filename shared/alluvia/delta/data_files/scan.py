"""A scan: some columns of the rows of a snapshot that match, the files that hold them, and how one is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import IO

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.arrow_parquet import pq
from alluvia.delta.deletion_vectors.storage import mask_of, read_deletions
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.parquet import UNREADABLE
from alluvia.delta.promoted_fields import told_by_statistics
from alluvia.delta.skipping.predicate import Predicate, Unknown, physical_predicate
from alluvia.delta.skipping.pruning import Doubt, prune, prune_buckets
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import AlluviaError, Corrupt, Invalid, ObjectNotFound, Unsupported
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import hint
from alluvia.store import Store

THREADED_BYTES_MIN = 1 << 20
"""The columns of a smaller file are decoded one after another: that takes less time than to hand them to threads."""
_CODEC_LACKING = "While LZO compression is supported"
"""How Arrow's error begins for the one compression of Parquet's that it has not."""


def read_file(snapshot: Snapshot, store: Store, file: AddFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield a data file's live rows with the columns of `schema`: stored, from the log, or null where it has none.

    Raises `Corrupt` where the file or its deletion vector is missing or damaged, or holds values that do not fit the
    table; `Unsupported` where it is compressed or encoded in a way that this library cannot read.
    """
    plan = snapshot.read_plan(schema)
    deleted = read_deletions(store, file, snapshot.locate)
    try:
        data = store.get(snapshot.key(file))
    except ObjectNotFound as error:
        raise Corrupt(f"data file {file.path} of version {snapshot.version} is missing") from error
    try:
        parquet = open_parquet(pa.BufferReader(data))
        expected = parquet.metadata.num_rows
        check_positions(file, deleted, expected)
        start = 0
        columns, threads = plan.stored_names(parquet.schema_arrow, file), len(data) >= THREADED_BYTES_MIN
        for batch in parquet.iter_batches(columns=columns, use_threads=threads):
            yield live_rows(plan.fit(batch, file), deleted, start)
            start += len(batch)
    except UNREADABLE as error:
        raise unreadable(file, error) from error
    if start != expected:  # the head of a page has no checksum
        msg = f"data file {file.path} cannot be read: its pages hold {start} rows, its footer says {expected}"
        raise Corrupt(msg)


def open_parquet(source: str | Path | IO[bytes] | pa.NativeFile) -> pq.ParquetFile:
    """Open a Parquet file; INT96 times are read as microseconds, since nanoseconds end in the year 2262."""
    return pq.ParquetFile(
        source,
        memory_map=True,
        pre_buffer=False,  # of what is on this machine, it would be one more copy
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
    )


def live_rows(batch: pa.RecordBatch, deleted: pa.Int64Array, start: int) -> pa.RecordBatch:
    """Return a batch, whose first row has the position `start` in its file, without the deleted rows."""
    if not len(deleted):
        return batch
    inside = pc.and_(pc.greater_equal(deleted, start), pc.less(deleted, start + len(batch)))
    positions = pc.subtract(deleted.filter(inside), start)
    return batch if not len(positions) else batch.filter(pc.invert(mask_of(positions, len(batch))))


def check_positions(file: AddFile, deleted: pa.Int64Array, rows: int) -> None:
    """Raise `Corrupt` where a deletion vector deletes rows beyond the end of its file, and so is another file's."""
    if len(deleted) and deleted[-1].as_py() >= rows:
        raise Corrupt(f"data file {file.path} has {rows} rows, but its deletion vector deletes row {deleted[-1]}")


def unreadable(file: AddFile, error: Exception) -> AlluviaError:
    """Return our error for one that pyarrow raised while it read a data file."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    # Not by the footer's word for the compression: Arrow ends the process when it is asked for that of a damaged one.
    if isinstance(error, pa.ArrowNotImplementedError) or reason.startswith(_CODEC_LACKING):
        return Unsupported(f"data file {file.path} cannot be read by this library: {reason}")
    return Corrupt(f"data file {file.path} cannot be read: {reason}")


@dataclass(frozen=True)
class Scan:
    """What is read of a snapshot: rows for which `predicate` holds, or more of them, and `columns`, by default all."""

    snapshot: Snapshot
    predicate: Predicate = field(default_factory=Unknown)
    columns: Sequence[str] | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the columns, in the order asked for. Raises `Invalid`, naming one that is unknown or repeated."""
        schema = self.snapshot.schema
        if self.columns is None:
            return schema
        unknown = sorted(set(self.columns) - set(schema.names))
        if unknown or len(set(self.columns)) < len(self.columns):
            if not unknown:
                raise Invalid("columns: a name is repeated")
            raise Invalid(f"columns: {unknown[0]!r} is not in the table{hint(unknown[0], self.snapshot.schema.names)}")
        return pa.schema([schema.field(name) for name in self.columns])

    @cached_property
    def files(self) -> list[AddFile]:
        """Return the snapshot's files that can hold such rows. Raises `Corrupt` if one of them is listed twice."""
        files = self._pruned(self.snapshot.files)
        check_once(files)
        return files

    def can_match(self, file: AddFile) -> bool:
        """Whether a file of the table, also one of another version, can hold such rows."""
        return bool(self._pruned([file]))

    def read(self, store: Store) -> Iterator[pa.RecordBatch]:
        """Return the rows of the files. One GET a file, when its turn comes. Raises `Corrupt`, as `read_file` does."""
        files, schema = self.files, self.schema
        return (batch for file in files for batch in read_file(self.snapshot, store, file, schema))

    def _pruned(self, files: Iterable[AddFile]) -> list[AddFile]:
        kept = prune(files, *self._rule)
        return prune_buckets(kept, self.predicate, self.snapshot.partition_spec)

    @cached_property
    def _rule(self) -> tuple[Predicate, pa.Schema, list[str], Doubt | None]:
        """The predicate, the schema and the partition columns by the names that columns have in files."""
        one, predicate, doubt = self.snapshot, self.predicate, None
        if one.promoted:
            predicate, doubt = told_by_statistics(predicate, one.promoted)
        if one.physical_schema is not one.schema:
            predicate = physical_predicate(predicate, one.schema, one.physical_schema)
            if doubt is not None:
                doubted = physical_predicate(doubt.predicate, one.schema, one.physical_schema)
                doubt = replace(doubt, predicate=doubted)
        return predicate, one.physical_schema, [one.physical_name(name) for name in one.partition_columns], doubt


def check_once(files: Sequence[AddFile]) -> None:
    """Raise `Corrupt` where a data file is listed with two deletion vectors, so that its rows would count twice."""
    if not any(file.deletion_vector for file in files):
        return
    seen: set[str] = set()
    for file in files:
        if file.path in seen:
            raise Corrupt(f"data file {file.path} is in the table twice, with different deletion vectors")
        seen.add(file.path)
