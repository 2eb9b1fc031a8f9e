"""Parquet as tables of a schema, batch by batch. Pure, but for the stream.

pyarrow reads no view as a dictionary, and casts no list of them. Parquet itself has no views: only the Arrow schema in
the footer names them, so without it the same columns are plain.

A dictionary in a file may say a long value many times in few bytes. So its values are measured before its rows are
read: texts of which a batch would take too much memory are read as dictionaries, and others, several times as fast, as
they are.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, NamedTuple, TypeVar

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.arrow_parquet import pq
from alluvia.delta.log.files.thrift import read_struct, written_struct
from alluvia.delta.schema.caller_rows import conform
from alluvia.errors import Invalid
from alluvia.events.ingest.compression import TooLarge
from alluvia.files.limits import FileNames, Misfit, check_sizes, misfit
from alluvia.files.parquet_dictionaries import has_dictionary, longest_values
from alluvia.files.parquet_types import delta_type, paths, plain_type

_MAGIC = b"PAR1"
_KEY_VALUES = 5
"""The field of a footer for what writers add, such as the Arrow schema. Source: parquet.thrift, `FileMetaData`."""


def plain_metadata(file: pq.ParquetFile, stream: IO[bytes]) -> pq.FileMetaData | None:
    """Return a file's metadata without its Arrow schema if that has views in it; else None."""
    if not _has_views(file.schema_arrow.types):
        return None
    stream.seek(-len(_MAGIC) - 4, io.SEEK_END)
    size = int.from_bytes(stream.read(4), "little")
    stream.seek(-len(_MAGIC) - 4 - size, io.SEEK_END)
    footer = read_struct(stream.read(size))
    footer.pop(_KEY_VALUES)
    data = written_struct(footer)
    return pq.read_metadata(io.BytesIO(_MAGIC + data + len(data).to_bytes(4, "little") + _MAGIC))


def _has_views(kinds: Iterable[pa.DataType]) -> bool:
    types = pa.types
    return any(
        types.is_string_view(kind) or types.is_binary_view(kind) or types.is_list_view(kind)
        or types.is_large_list_view(kind) or _has_views(kind.field(at).type for at in range(kind.num_fields))
        for kind in kinds
    )  # fmt: skip


_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)
BATCH_ROWS = 8192
BATCH_ROWS_MIN = 1024
FIXED_BYTES_MAX = 1 << 10
PIECE_BYTES = 64 << 20
_LISTS_BYTES = 256 << 20
"""Limit for all texts in the lists of a row group; a batch has a small part of them."""
_DIFFERENCES = "DELTA_BYTE_ARRAY"
_BUFFER_BYTES = 1 << 20
_BUFFERS_BYTES = 32 << 20
"""Limits for the buffers of a column and of all columns."""


class ParquetRows:
    """The rows of a file, which `open_file` opens anew for each pass; at most `bytes_max` of them, as Arrow counts.

    `bytes_max` and `names` are None for a file of any size, with any names. Looking at the sizes that a damaged footer
    tells can end the process: only a reading process may. Raises `Misfit` and `TooLarge`.
    """

    def __init__(
        self, open_file: Callable[[], IO[bytes]], bytes_max: int | None = None, names: FileNames | None = None
    ) -> None:
        self._open_file = open_file
        self.notes: list[str] = []
        self._bytes_max = bytes_max
        self._metadata: pq.FileMetaData | None = None
        self._buffer_bytes = _BUFFER_BYTES
        file = self._opened(())
        try:
            self._metadata = plain_metadata(file, open_file())
            fields = list(file.schema_arrow)
            self.names = [field.name for field in fields]
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise _damage(error) from None
        if names is not None:
            names.take_columns(self.names)
            for field in fields:
                names.take_fields(paths(field.type, field.name))
        self._types = [plain_type(field.type) for field in fields]
        self.as_written = pa.schema(list(zip(self.names, self._types, strict=True)))
        leaves = [file.schema.column(at) for at in range(len(file.schema))]
        self._texts = {at: leaf.path for at, leaf in enumerate(leaves) if leaf.physical_type == "BYTE_ARRAY"}
        self._lists = {leaf.path for leaf in leaves if leaf.max_repetition_level}
        self._buffer_bytes = max(1 << 14, min(_BUFFER_BYTES, _BUFFERS_BYTES // max(1, len(leaves))))
        self._readings: list[_Reading] | None = None
        wide = next((leaf for leaf in leaves if leaf.length > FIXED_BYTES_MAX), None)
        if wide is not None:
            raise Misfit(f"column {wide.path}: its values have {wide.length} bytes each: at most {FIXED_BYTES_MAX}")
        if bytes_max is not None:
            check_sizes(file.metadata, bytes_max)

    def schema(self, known: Mapping[str, pa.DataType]) -> pa.Schema:
        """Return the file's columns: of the types that are known, else of those that hold all of the file's values."""
        columns = zip(self.names, self._types, strict=True)
        return pa.schema([(name, known.get(name) or delta_type(kind, name)) for name, kind in columns])

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows in columns of a schema, which has all of the file's."""
        wanted = pa.schema([schema.field(name) for name in self.names])
        start = 0
        for rows in self.batches():
            yield self._fitted(pa.Table.from_batches([rows]), wanted, start)
            start += len(rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in columns of the file's own types, without dictionaries and views."""
        size = 0
        try:
            for reading in self._planned():
                file = self._opened(reading.dictionaries)
                for batch in file.iter_batches(reading.batch_rows, row_groups=reading.groups):
                    for piece in _pieces(batch):
                        size += _plain_bytes(piece) + len(piece)
                        if self._bytes_max is not None and size > self._bytes_max:
                            raise TooLarge(f"the file's rows take more than the limit of {self._bytes_max} bytes")
                        yield self._plain(piece)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise _damage(error) from None

    def _planned(self) -> list[_Reading]:
        """Return how the row groups are read, consecutive ones together.

        A row group with dictionaries of texts in lists, structs or maps is read alone: Arrow cannot put several such
        dictionaries into one batch.
        """
        if self._readings is None:
            readings: list[_Reading] = []
            metadata = self._opened(()).metadata
            with self._open_file() as stream:
                for group in range(metadata.num_row_groups):
                    dictionaries, batch_rows = self._reading_of(metadata.row_group(group), stream)
                    alone = any("." in path or path in self._lists for path in dictionaries)
                    if alone or not readings or readings[-1][:2] != (dictionaries, batch_rows):
                        readings.append(_Reading(dictionaries, batch_rows, []))
                    readings[-1].groups.append(group)
            self._readings = readings
        return self._readings

    def _reading_of(self, group: pq.RowGroupMetaData, stream: IO[bytes]) -> tuple[list[str], int]:
        """Return the texts of a row group to read as dictionaries, and how many rows to read at once.

        A text of a page without a dictionary takes no more memory than the page, unless the page has only what differs
        between values: Arrow does not read such a page as a dictionary, so only the process's limit of memory holds.
        """
        rows_max = min(BATCH_ROWS, group.num_rows)
        chunks = {at: group.column(at) for at in self._texts}
        chunks = {
            at: chunk
            for at, chunk in chunks.items()
            if _DIFFERENCES not in chunk.encodings and has_dictionary(stream, chunk)
        }
        sizes = {at: chunk.total_uncompressed_size for at, chunk in chunks.items()}
        if sum(sizes.values()) * rows_max > PIECE_BYTES:
            sizes = longest_values(stream, chunks)
        total = 0
        dictionaries = set()
        for at in sorted(chunks, key=lambda at: sizes.get(at, sys.maxsize)):
            path, size = self._texts[at], sizes.get(at, sys.maxsize)
            in_lists = size * chunks[at].num_values if path in self._lists else 0
            if in_lists > _LISTS_BYTES or (total + size) * min(rows_max, BATCH_ROWS_MIN) > PIECE_BYTES:
                dictionaries.add(path)
            else:
                total += size
        fitting = PIECE_BYTES * group.num_rows // max(1, group.total_byte_size)
        batch_rows = max(BATCH_ROWS_MIN, min(BATCH_ROWS, PIECE_BYTES // max(1, total)))
        return sorted(dictionaries), max(1, min(batch_rows, fitting))

    def _opened(self, dictionaries: Iterable[str]) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(
                self._open_file(),
                metadata=self._metadata,
                read_dictionary=list(dictionaries),
                coerce_int96_timestamp_unit="us",  # nanoseconds wrap around outside the years 1677 to 2262
                pre_buffer=False,  # which would hold whole row groups
                buffer_size=self._buffer_bytes,
            )
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise _damage(error) from None

    def _plain(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        columns = [array.cast(kind) for kind, array in zip(self._types, piece.columns, strict=True)]
        for name, column in zip(self.names, columns, strict=True):
            try:
                column.validate(full=True)
            except pa.ArrowException as error:
                raise Misfit(f"column {name}: {error}") from None
        return pa.RecordBatch.from_arrays(columns, names=self.names)

    def _fitted(self, plain: pa.Table, wanted: pa.Schema, start: int) -> pa.Table:
        try:
            return conform(plain, wanted)
        except Invalid as error:
            raise _located(plain, wanted, start) or Misfit(str(error)) from None


class _Reading(NamedTuple):
    """Row groups that are read in the same way: which texts as dictionaries, and how many rows at once."""

    dictionaries: list[str]
    batch_rows: int
    groups: list[int]


def _damage(error: Exception) -> Exception:
    """Return the error of a file that cannot be read; the same error if it is the disk's."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return Misfit(f"the Parquet file is damaged: {error}")


def _located(rows: pa.Table, wanted: pa.Schema, start: int) -> Misfit | None:
    """Return the error of the first row and column that do not fit; None if it is not about a row."""
    for field in wanted:
        one = pa.schema([field])
        column = rows.select([field.name])
        if _fault(_part(column, 0, 0), one) is not None or _fault(column, one) is None:
            continue
        low, high = 0, len(column)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _fault(_part(column, low, middle), one) is not None else (middle, high)
        value = _shown(column.column(0)[low])
        path, reason = _path_and_reason(str(_fault(_part(column, low, low + 1), one)), field.name)
        return misfit(start + low + 1, path, reason if value is None else f"{reason} (it has {value:.100})")
    return None


def _part(rows: _Rows, start: int, end: int) -> _Rows:
    """Return a copy of some rows: a slice of lists shares the elements of all rows, which are then taken with them."""
    return rows.take(pa.array(range(start, end), pa.int64()))


def _path_and_reason(message: str, column: str) -> tuple[str, str]:
    """Return which part of a column a message is about, such as `t.element`, and the rest of the message."""
    rest = message.removeprefix(f"column {column}")
    part, colon, reason = rest.partition(": ")
    if colon and part.startswith("."):
        return f"{column}{part}", reason
    return column, rest.removeprefix(": ").strip()


def _fault(rows: pa.Table, schema: pa.Schema) -> Invalid | None:
    try:
        conform(rows, schema)
    except Invalid as error:
        return error
    return None


def _shown(value: pa.Scalar) -> str | None:
    try:
        return repr(value.as_py())
    except (ValueError, OverflowError):  # nanoseconds, or a year that Python lacks: the reason has the number
        return None


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces that are small enough once their dictionaries are replaced by their values."""
    if len(batch) > 1 and _plain_bytes(batch) > PIECE_BYTES:
        middle = len(batch) // 2
        yield from _pieces(_part(batch, 0, middle))
        yield from _pieces(_part(batch, middle, len(batch)))
    elif len(batch):
        yield batch


def _plain_bytes(batch: pa.RecordBatch) -> int:
    return sum(_array_bytes(column) for column in batch.columns)


def _array_bytes(array: pa.Array) -> int:
    """Return how many bytes an array takes once its dictionaries are replaced by their values."""
    if isinstance(array, pa.DictionaryArray):
        lengths = pc.binary_length(array.dictionary).take(array.indices)
        return (pc.sum(lengths).as_py() or 0) + 4 * len(array)
    if isinstance(array, pa.StructArray):
        return sum(_array_bytes(child) for child in array.flatten())
    if isinstance(array, pa.MapArray):
        whole = array.slice(0)
        first, last = whole.offsets[0].as_py(), whole.offsets[-1].as_py()
        parts = (array.keys.slice(first, last - first), array.items.slice(first, last - first))
        return 4 * len(array) + sum(map(_array_bytes, parts))
    if isinstance(array, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)):
        return 4 * len(array) + _array_bytes(array.flatten())
    return array.nbytes
