"""Write data files: rows in, Parquet objects and their add actions out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from alluvia.arrow_parquet import pq
from alluvia.clock import Clock
from alluvia.delta.clustering import CLUSTER_TAG, Curve, sampled
from alluvia.delta.data_files.encodings import Encodings, encodings_of
from alluvia.delta.data_files.row_groups import group_rows
from alluvia.delta.file_schema_adapter import FileForm
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.paths import folder_of
from alluvia.delta.partitioning.partition import Partition, partition_of, split
from alluvia.delta.partitioning.spec import PartitionSpec
from alluvia.delta.partitioning.transforms import PARTITION_TAG, Span
from alluvia.delta.promoted_fields import moved, shown_rows
from alluvia.delta.properties import Properties
from alluvia.delta.schema.variant_shredding import is_marked
from alluvia.delta.statistics.written import file_statistics, merged_statistics
from alluvia.errors import Invalid
from alluvia.store import Store

RowCheck = Callable[[pa.Table], None]
"""Raises `Invalid` for rows that may not be written."""


FILE_SIZE_SLACK = 0.25
"""A file may be bigger than the target by this share of it, rather than leave a small one."""
ENOUGH_SHARE = 0.9
"""A file that has this share of the target takes no further row group."""
PACKED_BYTES_MIN = 1024
"""A single row of fewer Arrow bytes is not compressed: that takes as long as all else and makes it no smaller."""

Bounded = list[str] | bool
"""The Parquet paths of columns, or all of a file's columns (True), or none."""


class FileWriter:
    """Writes data files for a table: the rows it is given, by partition, sorted, with statistics."""

    def __init__(
        self,
        store: Store,
        root: str,
        spec: PartitionSpec,
        form: FileForm,
        clock: Clock,
        check: RowCheck | None = None,
        *,
        apart: bool = False,
    ) -> None:
        """`apart` writes a file for each partition value, even for few rows; rows that expire need that."""
        self._store = store
        self._root = root
        self._spec = spec
        self._form = form
        self._settings = form.file_settings
        self._clock = clock
        self._check = check
        self._apart = apart
        self._share: float | None = None

    def write(self, table: pa.Table, *, together: bool = False) -> list[AddFile]:
        """Write rows of exactly the table's columns; one PUT a file. Returns the files, not yet committed.

        `together` cuts them by the size of files only, not by the transforms of `partition_by`.
        """
        table = moved(table, self._form.promoted)
        if self._check is not None:
            self._check(shown_rows(table, self._form.promoted))
        prepared = list(self._encode(table, together=together))
        self._store.put_new_many({self._root + add.path: data for add, data in prepared})
        return [add for add, _ in prepared]

    @property
    def keeps_order(self) -> bool:
        """Whether rows go into files in the order in which they come: nothing sorts them or splits them."""
        return not (self._spec.fields or self._settings.cluster_by or self._settings.sort_by)

    def write_in_order(self, tables: Iterable[pa.Table]) -> Iterator[AddFile]:
        """Write what `write` takes, to be held a part at a time, if `keeps_order`: a file is encoded as its rows come.

        Two tables make a row group if they have fewer rows than one may have.
        """
        most = self._settings.row_group_rows
        held: pa.Table | None = None
        file = _GrowingFile(self._form)
        for table in tables:
            if held is None:
                held = table
                continue
            rows = pa.concat_tables([held, table])
            held = yield from self._grow(file, rows, most if len(rows) >= most else 1)
            del table, rows  # before the next ones are gathered
        if held is not None and file.rows:
            held = yield from self._grow(file, held, 1)
        if file.rows:
            yield self._put(file)
        elif held is not None:
            yield from self.write(held)

    def _grow(self, file: _GrowingFile, rows: pa.Table, least: int) -> Generator[AddFile, None, pa.Table | None]:
        """Add rows to a file, and to others once it is big enough. Returns the rest if it has fewer than `least`."""
        target, start = self._settings.target_file_size, 0
        if self._share is None and rows.nbytes > target:
            self._share = sampled_share(rows, self._form.settings, self._settings.row_group_rows)
        expected = 0 if self._share is None else self._share * rows.nbytes / max(1, len(rows))
        while len(rows) - start >= least:
            left = min(len(rows) - start, self._settings.row_group_rows)
            rate, most = (file.size / file.rows, 1) if file.rows else (expected, 0.5)
            count = self._fitting(file.size, left, rate, target, most)
            group = moved(rows.slice(start, count), self._form.promoted)
            if self._check is not None:
                self._check(shown_rows(group, self._form.promoted))
            file.add(group)
            start += count
            if file.size >= target * ENOUGH_SHARE:
                yield self._put(file)
        return rows.slice(start) if start < len(rows) else None

    def _put(self, file: _GrowingFile) -> AddFile:
        data, stats, tags = file.finish()
        add = new_file(partition_of(self._spec, (), Span((), ())), len(data), stats, self._clock, tags=tags)
        self._store.put_new_many({self._root + add.path: data})
        return add

    def _encode(self, table: pa.Table, *, together: bool) -> Iterator[tuple[AddFile, bytes]]:
        settings = self._form.settings
        order = sort_columns(table, settings) if len(table) > 1 else ()
        if self._share is None and len(table) > 1 and table.nbytes > settings.target_file_size:
            self._share = sampled_share(table, settings, settings.row_group_rows)
        file_bytes = None if self._share is None else int(settings.target_file_size / self._share)
        for partition, logical in split(table, self._spec, order, file_bytes, together=together, apart=self._apart):
            rows, start = self._form.stored(logical), 0
            while start < len(rows):
                data, count = self._encode_file(rows.slice(start) if start else rows)
                written = rows if count == len(rows) else rows.slice(start, count)
                stats = file_statistics(written, settings.indexed_columns)
                yield new_file(partition, len(data), stats, self._clock, tags=self._form.tags(rows.schema)), data
                start += count

    def _encode_file(self, rows: pa.Table) -> tuple[bytes, int]:
        """Return a file's bytes, and how many of the first rows it holds: as many as the size of files allows."""
        target: float = self._settings.target_file_size
        expected = 0 if self._share is None else rows.nbytes * self._share
        if expected <= target * (1 + FILE_SIZE_SLACK):
            return encode_parquet(rows, self._settings, bounded=self._bounded_in(rows)), len(rows)
        if expected >= target * 1.5:
            target = expected / round(expected / target)  # files of one size, and no small one at the end
        rate, written, most = expected / len(rows), 0, 0.5
        with ParquetBuffer(rows, self._settings) as buffer:
            while written < len(rows) and buffer.size < target * ENOUGH_SHARE:
                count = self._fitting(buffer.size, len(rows) - written, rate, target, most)
                buffer.write(rows.slice(written, count))
                written += count
                rate, most = buffer.size / written, 1
        self._share = buffer.size / max(1, rows.slice(0, written).nbytes)
        return buffer.data(), written

    def _fitting(self, size: int, rows: int, rate: float, target: float, most: float) -> int:
        """Return how many of some rows of `rate` bytes each go next into a file of `size` bytes: all if they fit.

        Otherwise it is a row group that fills at most the share `most` of the rest of the file.
        """
        if size + rows * rate <= target * (1 + FILE_SIZE_SLACK / 2):
            return rows
        return min(max(1, int((target - size) * most / rate)), rows, self._settings.row_group_rows)

    def _bounded_in(self, rows: pa.Table) -> Bounded:
        """Return the columns that get statistics in a file of some rows: none where the log has all of one row's."""
        bounded = bounded_columns(rows.schema)
        in_log = len(rows) == 1 and bounded is True and rows.num_columns <= self._settings.indexed_columns
        return not in_log and bounded


class _GrowingFile:
    """A file in memory that is written row group by row group, and after it the next one."""

    def __init__(self, form: FileForm) -> None:
        self._form = form
        self._begin()

    def _begin(self) -> None:
        self.rows = 0
        self._buffer: ParquetBuffer | None = None
        self._stored: pa.Schema | None = None
        self._statistics: list[str] = []

    @property
    def size(self) -> int:
        """Return how many bytes have been written."""
        return 0 if self._buffer is None else self._buffer.size

    def add(self, rows: pa.Table) -> None:
        """Add a row group, of rows with the table's columns."""
        settings = self._form.file_settings
        stored = self._form.stored(rows, self._stored)
        if self._buffer is None:
            self._stored, self._buffer = stored.schema, ParquetBuffer(stored, settings)
        self._statistics.append(file_statistics(stored, settings.indexed_columns))
        self._buffer.write(stored)
        self.rows += len(rows)

    def finish(self) -> tuple[bytes, str, Mapping[str, str]]:
        """Return the file's bytes, statistics and tags, and begin the next file."""
        assert self._buffer is not None  # noqa: S101 - rows were added
        assert self._stored is not None  # noqa: S101 - as above
        with self._buffer as buffer:
            pass
        whole = buffer.data(), merged_statistics(self._statistics), self._form.tags(self._stored)
        self._begin()
        return whole


def sampled_share(table: pa.Table, settings: Properties, rows_max: int) -> float:
    """Return what part of rows' bytes in memory those of a file are, by a file of at most `rows_max` of them."""
    rows = min(len(table), rows_max)
    sample = table.slice((len(table) - rows) // 2, rows)
    [(_, ordered)] = split(sample, PartitionSpec(), sort_columns(sample, settings))
    return len(encode_parquet(ordered, settings)) / max(1, sample.nbytes)


def new_file(
    partition: Partition, size: int, stats: str, clock: Clock, *, tags: Mapping[str, str], data_change: bool = True
) -> AddFile:
    """Return the add of a new file of a partition, under a name that no other file has.

    `tags` are those of the form of its rows (`FileForm.tags`).
    """
    path = f"{partition.folder}part-{clock.new_id()}.parquet"
    return AddFile(path, partition.values, size, clock.now_ms(), data_change, stats, {**partition.tags, **tags})


def new_file_like(like: AddFile, size: int, stats: str, clock: Clock, *, tags: Mapping[str, str]) -> AddFile:
    """Return the add of a new file with rows of another one: of its partition, and in its folder.

    Of its tags the new file has those that say where rows belong: others are about the other's own rows. `tags` are
    those of the form of its rows (`FileForm.tags`).
    """
    path = f"{folder_of(like.path)}part-{clock.new_id()}.parquet"
    placing = {name: text for name, text in like.tags.items() if name in (PARTITION_TAG, CLUSTER_TAG)}
    return AddFile(path, like.partition_values, size, clock.now_ms(), True, stats, {**placing, **tags})


def sort_columns(rows: pa.Table, settings: Properties) -> list[pa.ChunkedArray]:
    """Return the columns by which rows of a partition are sorted, nulls last."""
    if len(settings.cluster_by) > 1:
        columns = rows.select(settings.cluster_by)
        return [Curve(sampled(columns)).places(columns.columns)]
    return [rows[name] for name in settings.cluster_by or settings.sort_by]


def bounded_columns(schema: pa.Schema) -> Bounded:
    """Return the columns for which a file may hold bounds: all but floating-point ones, lists and bytes of variants.

    Arrow's bounds leave NaN out. DuckDB, which sorts NaN above every number, treats them as bounds of all values, and
    would miss it.
    """
    if not any(pa.types.is_nested(kind) or pa.types.is_floating(kind) for kind in schema.types):
        return True
    names: list[str] = []

    def visit(path: str, kind: pa.DataType) -> None:
        if pa.types.is_struct(kind):
            for at in range(kind.num_fields):
                visit(f"{path}.{kind.field(at).name}", kind.field(at).type)
        elif not pa.types.is_nested(kind) and not pa.types.is_floating(kind):
            names.append(path)

    for field in schema:
        visit(field.name, field.type)
    texts = [f"{field.name}." for field in schema if is_marked(field)]
    return [name for name in names if not name.startswith(tuple(texts)) or name.endswith(".typed_value")] or False


class ParquetBuffer:
    """A Parquet file in memory, written row group by row group. Use it in a `with` block; `data` is good after it.

    `rows` are what it is to hold, or the first of it; the others as for `parquet_writer`.
    """

    def __init__(
        self,
        rows: pa.Table,
        settings: Properties,
        encodings: Encodings | None = None,
        codec: str | None = None,
        bounded: Bounded | None = None,
    ) -> None:
        self._sink = BytesIO()  # returns its bytes without a copy, unlike Arrow's stream
        self._settings = settings
        self._writer = parquet_writer(pa.PythonFile(self._sink, "w"), rows, settings, encodings, codec, bounded)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    @property
    def size(self) -> int:
        """Return how many bytes have been written."""
        return self._sink.tell()

    def write(self, rows: pa.Table) -> None:
        """Add rows. Raises `Invalid`, naming the field, for a null where the schema has none."""
        write_rows(self._writer, rows, self._settings)

    def data(self) -> bytes:
        """Return the file's bytes."""
        return self._sink.getvalue()


def encode_parquet(
    rows: pa.Table, settings: Properties, encodings: Encodings | None = None, bounded: Bounded | None = None
) -> bytes:
    """Return a Parquet file's bytes. Raises `Invalid`, naming the field, for a null where the schema has none.

    `encodings` and `bounded` as for `parquet_writer`.
    """
    # The buffers' sizes are known; what a slice takes of them must be worked out.
    small = len(rows) == 1 and (rows.get_total_buffer_size() < PACKED_BYTES_MIN or rows.nbytes < PACKED_BYTES_MIN)
    codec = "none" if small else None
    with ParquetBuffer(rows, settings, encodings, codec, bounded) as buffer:
        buffer.write(rows)
    return buffer.data()


def parquet_writer(
    sink: pa.NativeFile | Path,
    rows: pa.Table,
    settings: Properties,
    encodings: Encodings | None = None,
    codec: str | None = None,
    bounded: Bounded | None = None,
) -> pq.ParquetWriter:
    """Open a Parquet file that begins with some rows, as a table's properties ask; encodings suit the rows.

    `codec` is another than the table's. `bounded` are the columns that get statistics, by default `bounded_columns`.
    """
    encodings = encodings or encodings_of(rows)
    distinct = max(1, min(len(rows), group_rows(rows, settings)))  # at most, in a row group
    blooms = {name: {"ndv": distinct} for name in settings.bloom_filters if name in rows.column_names}
    return pq.ParquetWriter(
        sink,
        rows.schema,
        compression=codec or settings.codec,
        store_schema=False,
        write_page_checksum=True,
        write_statistics=bounded_columns(rows.schema) if bounded is None else bounded,
        use_dictionary=encodings.dictionary or False,
        column_encoding=encodings.others or None,
        bloom_filter_options=blooms or None,
    )


def write_rows(writer: pq.ParquetWriter, rows: pa.Table, settings: Properties) -> None:
    """Write rows into a Parquet file. Raises `Invalid`, naming the field, for a null where the schema has none."""
    try:
        writer.write_table(rows, row_group_size=group_rows(rows, settings))
    except pa.ArrowInvalid as error:  # a null in a field of a struct that allows none
        raise Invalid(f"the rows do not fit the table: {error}") from error
