"""Parquet as tables of a schema, batch by batch. Pure, but for the stream.

pyarrow reads no view as a dictionary, and casts no list of them. Parquet itself has no views: only the Arrow schema in
the footer names them, so without it the same columns are plain.

Text is read as dictionaries, so that a small file of few long values cannot fill the memory before it is measured.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.arrow_compute import pc
from alluvia.delta.log.files.thrift import read_struct, written_struct
from alluvia.delta.schema.caller_rows import conform
from alluvia.errors import Invalid
from alluvia.events.ingest.compression import TooLarge
from alluvia.files.limits import FileNames, Misfit, check_sizes, misfit

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


BATCH_ROWS = 8192
FIXED_BYTES_MAX = 1 << 10
PIECE_BYTES = 64 << 20
_UNSIGNED = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(), pa.null(): pa.string(),
}  # fmt: skip


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
        file = self._opened([])
        try:
            self._metadata = plain_metadata(file, open_file())
            fields = list(file.schema_arrow)
            self.names = [field.name for field in fields]
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise _damage(error) from None
        if names is not None:
            names.take_columns(self.names)
            for field in fields:
                names.take_fields(_paths(field.type, field.name))
        self._types = [_plain_type(field.type) for field in fields]
        self.as_written = pa.schema(list(zip(self.names, self._types, strict=True)))
        leaves = [file.schema.column(at) for at in range(len(file.schema))]
        self._texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        wide = next((leaf for leaf in leaves if leaf.length > FIXED_BYTES_MAX), None)
        if wide is not None:
            raise Misfit(f"column {wide.path}: its values have {wide.length} bytes each: at most {FIXED_BYTES_MAX}")
        if bytes_max is not None:
            check_sizes(file.metadata, bytes_max)

    def schema(self, known: Mapping[str, pa.DataType]) -> pa.Schema:
        """Return the file's columns: of the types that are known, else of those that hold all of the file's values."""
        columns = zip(self.names, self._types, strict=True)
        return pa.schema([(name, known.get(name) or _delta_type(kind, name)) for name, kind in columns])

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
            for batch in self._opened(self._texts).iter_batches(BATCH_ROWS):
                for piece in _pieces(batch):
                    size += _plain_bytes(piece) + len(piece)
                    if self._bytes_max is not None and size > self._bytes_max:
                        raise TooLarge(f"the file's rows take more than the limit of {self._bytes_max} bytes")
                    yield self._plain(piece)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise _damage(error) from None

    def _opened(self, texts: list[str]) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(
                self._open_file(),
                metadata=self._metadata,
                read_dictionary=texts,
                coerce_int96_timestamp_unit="us",  # nanoseconds wrap around outside the years 1677 to 2262
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


def _part(rows: pa.Table, start: int, end: int) -> pa.Table:
    """Return a copy of some rows: a slice of lists shares the elements of all rows, which are then judged with them."""
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
        yield from _pieces(batch.slice(0, middle))
        yield from _pieces(batch.slice(middle))
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


def _paths(kind: pa.DataType, path: str) -> Iterator[str]:
    """Yield the fields of structs in a type, as names that begin with a path."""
    for at in range(kind.num_fields):
        inner = kind.field(at)
        below = f"{path}.{inner.name}"
        if pa.types.is_struct(kind):
            yield below
        yield from _paths(inner.type, below)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without dictionaries and views in it."""
    types = pa.types
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(_plain_type(kind.field(0).type))
    return _mapped(kind, _plain_type)


def _delta_type(kind: pa.DataType, name: str) -> pa.DataType:
    """Return the type of a table's column that holds every value of a file's. Raises `Misfit` if there is none."""
    types = pa.types
    if kind in _UNSIGNED:
        return _UNSIGNED[kind]
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_date(kind):
        return pa.date32()
    if types.is_decimal(kind):
        if kind.precision > 38 or kind.scale < 0:
            raise Misfit(f"column {name}: {kind} has more digits than decimal(38,s): declare another type")
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_time(kind) or types.is_duration(kind) or types.is_interval(kind):
        raise Misfit(f"column {name}: a table has no type for {kind}: leave it out, or write it as another type")
    return _mapped(kind, lambda inner: _delta_type(inner, name))


def _mapped(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type whose parts are changed."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, change(field.type)) for field in kind.fields])
    if types.is_map(kind):
        return pa.map_(change(kind.key_type), change(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(change(kind.value_type))
    return kind
