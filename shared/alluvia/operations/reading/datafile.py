"""One data file in memory or on disk: read as often as needed, and rewritten by row group, with no further request."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Self

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.arrow_parquet import pq
from alluvia.commit.handle import ReadableTable
from alluvia.delta.data_files.encodings import SAMPLE_ROWS, Encodings, encodings_of
from alluvia.delta.data_files.scan import check_positions, open_parquet, unreadable
from alluvia.delta.data_files.writer import new_file_like, parquet_writer, write_rows
from alluvia.delta.deletion_vectors.storage import NO_POSITIONS, mask_of, read_deletions
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.parquet import UNREADABLE
from alluvia.delta.log.paths import folder_of
from alluvia.delta.snapshot import Snapshot
from alluvia.delta.statistics.written import file_statistics, merged_statistics
from alluvia.errors import Corrupt, ObjectNotFound
from alluvia.scratch import scratch_root

BATCH_ROWS = 1 << 16


class DataFile:
    """A data file of a snapshot, on this machine: in place, or as a copy that is deleted with this object.

    `path` is where it is, if that is known; else it costs one GET where the store is not a directory. `rows` is how
    many rows it has, if that is known. Use it in a `with` block. Raises `ObjectNotFound` where it is missing,
    `Corrupt`, naming it, where it cannot be read.
    """

    def __init__(
        self,
        handle: ReadableTable,
        snapshot: Snapshot,
        file: AddFile,
        *,
        path: Path | None = None,
        rows: int | None = None,
    ) -> None:
        self.file = file
        self._rows = rows
        self._deleted: pa.Int64Array | None = None
        self._live: pa.BooleanArray | None = None
        self._store = handle.store
        self._snapshot = snapshot
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._path = path
        self._parquet: pq.ParquetFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, and delete its copy."""
        if self._parquet is not None:
            self._parquet.close()
        if self._folder is not None:
            self._folder.cleanup()

    def fetch(self) -> Path:
        """Bring the file onto this machine, unless it is there. Raises `ObjectNotFound`."""
        key = self._snapshot.key(self.file)
        path = self._path or self._store.local_path(key)
        if path is None:
            self._folder = tempfile.TemporaryDirectory(dir=scratch_root())
            path = Path(self._folder.name, "data.parquet")
            self._store.get_file(key, path)
        self._path = path
        return path

    @property
    def rows(self) -> int:
        """Return the number of rows that the file holds, deleted ones included; known without reading if given."""
        if self._rows is not None:
            return self._rows
        rows = self._opened().metadata.num_rows
        promised = self.file.num_records
        if promised is not None and promised != rows:
            raise Corrupt(f"data file {self.file.path} holds {rows} rows, but its statistics say {promised}")
        self._rows = rows
        return rows

    # No functools.cached_property: until Python 3.12 all threads wait for the one that reads.

    @property
    def deleted(self) -> pa.Int64Array:
        """Return the positions that its deletion vector deletes."""
        if self._deleted is None:
            self._deleted = self._read_deleted()
        return self._deleted

    def _read_deleted(self) -> pa.Int64Array:
        if self.file.deletion_vector is None:
            return NO_POSITIONS
        deleted = read_deletions(self._store, self.file, self._snapshot.locate)
        check_positions(self.file, deleted, self.rows)
        return deleted

    @property
    def live(self) -> pa.BooleanArray:
        """Return the mask of the rows that are not deleted."""
        if self._live is None:
            self._live = pc.invert(mask_of(self.deleted, self.rows))
        return self._live

    @property
    def names(self) -> list[str]:
        """Return the file's own names of its columns. Raises `Corrupt`."""
        names: list[str] = self._opened().schema_arrow.names
        return names

    def batches(
        self, columns: Sequence[str], extra: Sequence[str] = (), *, rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows, deleted ones included, in order, with some of the table's columns, at most `rows` at a time.

        `extra` names columns of the file that are not the table's.
        """
        plan = self._snapshot.read_plan(pa.schema([self._snapshot.schema.field(name) for name in columns]))
        parquet = self._opened()
        try:
            stored = [*plan.stored_names(parquet.schema_arrow, self.file), *extra]
            for batch in parquet.iter_batches(rows, columns=stored, use_threads=False):
                fitted = plan.fit(batch, self.file)
                for name in extra:
                    fitted = fitted.append_column(name, batch[name])
                yield fitted
        except (*UNREADABLE, KeyError) as error:
            raise unreadable(self.file, error) from error

    def _opened(self) -> pq.ParquetFile:
        if self._parquet is None:
            path = self.fetch()
            try:
                self._parquet = open_parquet(path)
            except UNREADABLE as error:
                raise unreadable(self.file, error) from error
        return self._parquet


def opened(
    handle: ReadableTable, snapshot: Snapshot, files: Sequence[AddFile], known: Mapping[str, int]
) -> Iterator[DataFile]:
    """Yield files of a snapshot in order; the caller uses each in a `with` block before the next.

    `known` has the number of rows of those, by path, that may not have to be read at all: they are not fetched ahead.
    """
    paths = handle.store.prefetch((snapshot.key(file), file.size) for file in files if file.path not in known)
    for file in files:
        if file.path in known:
            yield DataFile(handle, snapshot, file, rows=known[file.path])
        elif (path := next(paths)) is None:
            raise ObjectNotFound(snapshot.key(file))
        else:
            yield DataFile(handle, snapshot, file, path=path)


class Background:
    """One thread that encodes files while its owner goes on, a piece at a time. Use it in a `with` block."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None
        self._encodings: dict[str, Encodings] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=True)

    def do(self, work: Callable[[], None]) -> Future[None]:
        """Begin a piece of work when the last one is done. Raises what that raised."""
        if self._last is not None:
            self._last.result()
        self._last = self._thread.submit(copy_context().run, work)
        return self._last

    def encodings(self, folder: str, rows: pa.Table) -> Encodings:
        """Return encodings for a file that begins with some rows: another's in its folder, if that had enough."""
        if folder in self._encodings:
            return self._encodings[folder]
        encodings = encodings_of(rows)
        if len(rows) >= SAMPLE_ROWS:
            self._encodings[folder] = encodings
        return encodings


class FileSink:
    """A new file in the partition of another file, written in the order of its rows.

    A row group is encoded in the background while the next one is gathered. `close` it in the end.
    """

    def __init__(self, handle: ReadableTable, snapshot: Snapshot, like: AddFile, background: Background) -> None:
        self._handle = handle
        self._snapshot = snapshot
        self._like = like
        self._background = background
        self._encoding: Future[None] | None = None
        self._folder = tempfile.TemporaryDirectory(dir=scratch_root())
        self._path = Path(self._folder.name, "data.parquet")
        self._writer: pq.ParquetWriter | None = None
        self._stored: pa.Schema | None = None
        self._statistics: list[str] = []
        self._waiting: list[pa.Table] = []

    def write(self, rows: pa.Table) -> None:
        """Take rows of the table's columns."""
        if len(rows):
            self._waiting.append(rows.drop_columns(list(self._snapshot.partition_columns)))
        count = sum(map(len, self._waiting))
        spare = count % self._snapshot.settings.row_group_rows
        if spare < count:
            self._begin(spare)

    def flush(self) -> None:
        """Begin to encode the rows that were taken."""
        if self._waiting:
            self._begin(0)

    def _begin(self, spare: int) -> None:
        """Begin to encode the rows that were taken, but for the last ones, which do not fill a row group."""
        taken = pa.concat_tables(self._waiting)
        rows = taken.slice(0, len(taken) - spare)
        self._waiting = [taken.slice(len(rows))] if spare else []
        self._encoding = self._background.do(lambda: self._encode(rows))

    def finish(self) -> AddFile | None:
        """Put the file into the store, in one PUT, and return it, not yet committed; None if no rows came."""
        self.flush()
        if self._encoding is None:
            return None
        self._encoding.result()
        self._close_writer()
        stats = merged_statistics(self._statistics)
        assert self._stored is not None  # noqa: S101 - rows came
        tags = self._snapshot.file_form.tags(self._stored)
        new = new_file_like(self._like, self._path.stat().st_size, stats, self._handle.clock, tags=tags)
        self._handle.store.put_new_file(self._snapshot.key(new), self._path)
        return new

    def close(self) -> None:
        """Delete what is on this machine."""
        if self._encoding is not None:
            self._encoding.exception()  # which waits, and raises nothing
        self._close_writer()
        self._folder.cleanup()

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _encode(self, rows: pa.Table) -> None:
        form = self._snapshot.file_form
        rows, settings = form.stored(rows, self._stored), form.file_settings
        self._stored = rows.schema
        self._statistics.append(file_statistics(rows, settings.indexed_columns))
        if self._writer is None:
            encodings = self._background.encodings(folder_of(self._like.path), rows)
            self._writer = parquet_writer(self._path, rows, settings, encodings)
        write_rows(self._writer, rows, settings)
