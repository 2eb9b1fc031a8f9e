"""What a Parquet footer says about its file: the schema of a table with that file, and its statistics. Pure."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pyarrow as pa

from alluvia.arrow_parquet import pq
from alluvia.delta.log.files.parquet import UNREADABLE
from alluvia.delta.schema.names import put
from alluvia.delta.schema.serialization import normal_schema
from alluvia.delta.statistics.written import encode_statistics, json_bounds
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass

TAIL_BYTES = 8
TAIL_GUESS_BYTES = 64 << 10
"""Read at first: most footers fit."""
_MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)


@dataclass(frozen=True, slots=True)
class FooterLeaf:
    """A column of the file: its names from the top, the table's type of it, its number; `repeated` below a list."""

    path: tuple[str, ...]
    kind: pa.DataType
    number: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """A file's columns in a table's form, all nullable, and its leaves in order."""

    schema: pa.Schema
    leaves: tuple[FooterLeaf, ...]


def footer_bytes(read: Callable[[int, int], bytes], size: int) -> bytes:
    """Return the footer of a file of some bytes, in one or two reads of its last ones: `read` takes start and end.

    Raises `Invalid`, and what `read` raises.
    """
    tail = read(max(0, size - TAIL_GUESS_BYTES), size) if size else b""
    wanted = footer_size(tail)
    if wanted > size:
        raise Invalid("it is truncated or damaged: its footer would be longer than the file")
    if wanted > len(tail):
        tail = read(size - wanted, size)
    return tail[-wanted:]


def footer_size(tail: bytes) -> int:
    """Return how many bytes a file's footer takes, from its last 8 bytes or more. Raises `Invalid`."""
    magic = tail[-4:]
    if magic == _ENCRYPTED:
        raise Invalid("its footer is encrypted")
    if len(tail) < TAIL_BYTES or magic != _MAGIC:
        raise Invalid("it is not a Parquet file")
    return int.from_bytes(tail[-8:-4], "little") + TAIL_BYTES


def parse_footer(footer: bytes) -> pq.FileMetaData:
    """Read a footer, which ends the bytes. Raises `Invalid`."""
    try:
        return pq.read_metadata(io.BytesIO(footer))
    except UNREADABLE as error:
        raise Invalid(f"its footer cannot be read: {str(error).splitlines()[0]}") from error


def stored_columns(metadata: pq.FileMetaData) -> StoredColumns:
    """Return a file's columns. Raises `Invalid`, naming the column, for a type that a Delta table cannot have."""
    try:
        arrow = metadata.schema.to_arrow_schema()
    except pa.ArrowException as error:
        raise Invalid(f"its schema cannot be read: {str(error).splitlines()[0]}") from error
    walk = _Walk(metadata.schema)
    fields = [pa.field(field.name, walk.kind(field.type, (field.name,))) for field in arrow]
    if not fields:
        raise Invalid("it has no columns")
    return StoredColumns(normal_schema(pa.schema(fields)), tuple(walk.leaves))


class _Walk:
    """Goes through Arrow's types and Parquet's leaf columns, which are in one order, side by side."""

    def __init__(self, schema: pq.ParquetSchema) -> None:
        self._schema = schema
        self.leaves: list[FooterLeaf] = []

    def kind(self, kind: pa.DataType, path: tuple[str, ...], *, repeated: bool = False) -> pa.DataType:
        """Return the table's type for one that Arrow gives the file's column."""
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            fields = [kind.field(at) for at in range(kind.num_fields)]
            return pa.struct([(f.name, self.kind(f.type, (*path, f.name), repeated=repeated)) for f in fields])
        if pa.types.is_map(kind):
            key = self.kind(kind.key_type, (*path, "key"), repeated=True)
            return pa.map_(key, self.kind(kind.item_type, (*path, "value"), repeated=True))
        if isinstance(kind, _LISTS):
            return pa.list_(self.kind(kind.value_type, (*path, "element"), repeated=True))
        number = len(self.leaves)
        leaf = FooterLeaf(path, _leaf_kind(kind, self._schema.column(number).physical_type, path), number, repeated)
        self.leaves.append(leaf)
        return leaf.kind


def _leaf_kind(kind: pa.DataType, physical: str, path: tuple[str, ...]) -> pa.DataType:
    if physical == "INT96":
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            msg = f"column {'.'.join(path)} has nanoseconds, but Delta only has microseconds: write it with those"
            raise Invalid(msg)
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if pa.types.is_float16(kind):
        raise Invalid(f"column {'.'.join(path)} has numbers of 16 bits, which Delta's readers do not take for numbers")
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    return kind


def footer_statistics(
    metadata: pq.FileMetaData,
    columns: StoredColumns,
    indexed_columns: int,
    without: Collection[str] = (),
    row_groups: Sequence[int] | None = None,
) -> str:
    """Return Delta's statistics of a file as JSON text, for its first `indexed_columns` leaf columns.

    They are of some `row_groups`, by default of all. Columns named in `without` are left out. Lists and maps have none
    here, since a footer counts their elements;
    floating-point numbers have no bounds, because a footer's bounds ignore NaN, which sorts after all numbers.
    """
    minima: dict[str, Any] = {}
    maxima: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    groups = [metadata.row_group(at) for at in (range(metadata.num_row_groups) if row_groups is None else row_groups)]
    for leaf in [leaf for leaf in columns.leaves if leaf.path[0] not in without][:indexed_columns]:
        if leaf.repeated:
            continue
        by_group = [(group.num_rows, group.column(leaf.number).statistics) for group in groups]
        counts = [None if each is None or not each.has_null_count else each.null_count for _, each in by_group]
        if None in counts:
            continue
        put(nulls, leaf.path, sum(count or 0 for count in counts))
        filled = [each for (rows, each), count in zip(by_group, counts, strict=True) if count != rows]
        bounds = _bounds(leaf.kind, filled)
        if bounds is not None:
            put(minima, leaf.path, bounds[0])
            put(maxima, leaf.path, bounds[1])
    return encode_statistics(sum(group.num_rows for group in groups), minima, maxima, nulls)


def _bounds(kind: pa.DataType, statistics: list[Any]) -> tuple[Any, Any] | None:
    """Return bounds over row groups that hold values, as JSON values; None unless each of them has its own."""
    types = pa.types
    if types.is_floating(kind) or types.is_boolean(kind) or types.is_binary(kind) or not statistics:
        return None
    if not all(each.has_min_max for each in statistics):
        return None
    try:
        return json_bounds(min(each.min for each in statistics), max(each.max for each in statistics))
    except (ValueError, OverflowError, TypeError):  # not a value that Python has: a time before the year 1, broken text
        return None
