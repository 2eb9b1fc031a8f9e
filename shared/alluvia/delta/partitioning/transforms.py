"""Transforms: from a column's values to parts of a key, and the contiguous range of them that a file has. Pure.

A key of rows is a tuple with a value for each transform of the specification, in its order; keys compare as tuples,
null after every value. A file holds one value of each identity column, and the keys from `low` to `high`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.actions import AddFile
from alluvia.delta.partitioning.spec import BUCKET, TIMES, PartitionField
from alluvia.delta.schema.types import as_moment
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass

_LEAST = -(1 << 63)
_A_TIME = "2026-01-01T00:00:00"
_WHOLE = re.compile(r"-?\d{1,19}", re.ASCII)


def key_part(field: PartitionField, value: Any) -> KeyPart:
    """Return the transform's value for a value of the column, not null."""
    if field.transform in TIMES:
        return part(value.isoformat()[: TIMES[field.transform]])
    if field.transform == BUCKET:
        return part(zlib.crc32(str(value).encode()) % field.width)
    return part(value[: field.width] if isinstance(value, str) else max(value - value % field.width, _LEAST))


def given_part(field: PartitionField, value: object) -> KeyPart:
    """Return a transform's value as a caller writes it, such as `2026-01-31` or a date for `day(ts)`, or null.

    Raises `Invalid` for one that no row can have.
    """
    if value is None:
        return part(None)
    if field.transform in TIMES:
        chars = TIMES[field.transform]
        if isinstance(value, datetime) and value.tzinfo is not None:
            value = value.astimezone(UTC)
        text = value.isoformat() if isinstance(value, date) else str(value)
        if isinstance(value, str) and len(text) != chars:
            text = ""
        try:
            datetime.fromisoformat(text[:chars] + _A_TIME[chars:])
        except ValueError:
            raise Invalid(f"partition: {field} has values such as {_A_TIME[:chars]}, got {value!r:.100}") from None
        return part(text[:chars])
    if field.values is str:
        if not isinstance(value, str) or len(value) > field.width:
            raise Invalid(f"partition: {field} has texts of at most {field.width} characters, got {value!r:.100}")
        return part(value)
    number = int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value
    if type(number) is not int:
        raise Invalid(f"partition: {field} has whole numbers, got {value!r:.100}")
    if field.transform == BUCKET and not 0 <= number < field.width:
        raise Invalid(f"partition: {field} has the values 0 to {field.width - 1}, got {number}")
    if field.transform != BUCKET and key_part(field, number) != part(number):
        raise Invalid(f"partition: {field} has multiples of {field.width}, got {number}")
    return part(number)


def transformed(column: pa.ChunkedArray, field: PartitionField) -> pa.ChunkedArray:
    """Return for each row a value that rows share if and only if they have one part of a key: `plain` makes it that."""
    if field.transform in TIMES:
        times = column.cast(pa.timestamp("us")) if pa.types.is_date(column.type) else column
        if len(times) == 1:
            return times  # `plain` cuts it
        bounds = pc.min_max(times)
        ends = pc.floor_temporal(pa.array([bounds["min"], bounds["max"]], times.type), unit=field.transform)
        if not times.null_count and ends[0] == ends[1]:  # as in most files
            return pa.chunked_array([pa.repeat(ends[0], len(times))])
        return pc.floor_temporal(times, unit=field.transform)
    if field.transform == BUCKET:
        return _by_distinct(column, lambda values: _buckets(values, field.width))
    if pa.types.is_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, field.width)
    return _by_distinct(column, lambda values: pa.array([key_part(field, each)[1] for each in values.to_pylist()]))


def plain(values: pa.Array, field: PartitionField) -> list[str | int | None]:
    """Return values of `transformed` as parts of keys. Raises `Invalid` for a time that Python has not."""
    try:
        moments: list[Any] = [*map(as_moment, values)] if pa.types.is_timestamp(values.type) else values.to_pylist()
    except (OverflowError, ValueError) as error:
        raise Invalid(f"column {field.column}: a time outside the years 1 to 9999 has no partition") from error
    if field.transform in TIMES:
        return [None if each is None else key_part(field, each)[1] for each in moments]
    return moments


def is_one_value(values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether all of some values are the same, and none is null."""
    if values.null_count or pa.types.is_floating(values.type):
        return False
    bounds = pc.min_max(values)
    return bool(bounds["min"] == bounds["max"])


def _by_distinct(column: pa.ChunkedArray, compute: Callable[[pa.Array], pa.Array]) -> pa.ChunkedArray:
    encoded = one_array(column).dictionary_encode()
    return pa.chunked_array([compute(encoded.dictionary).cast(pa.int64()).take(encoded.indices)])


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _buckets(values: pa.Array, count: int) -> pa.Array:
    texts = values.cast(pa.string()).cast(pa.binary())
    return pa.array([code % count for code in map(zlib.crc32, texts.to_pylist())], pa.int64())


PARTITION_TAG = "alluvia.partition"
"""The tag of an add: JSON with a value for each transform, or a list of the values in the lowest and highest key."""

KeyPart = tuple[bool, Any]
"""Whether the value is null, and the value: text or a whole number; the empty text for null."""
Key = tuple[KeyPart, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """The keys from `low` to `high`, both included; of a table without transforms, the empty tuples."""

    low: Key
    high: Key

    @property
    def single(self) -> bool:
        """Whether all rows have one key: no split by partition makes it narrower."""
        return self.low == self.high

    def tag(self, names: Sequence[str]) -> str:
        """Return the text of `PARTITION_TAG`; `names` are the transforms' texts, such as `day(ts)`."""
        values = {}
        for name, low, high in zip(names, self.low, self.high, strict=True):
            values[name] = _plain(low) if low == high else [_plain(low), _plain(high)]
        return orjson.dumps(values).decode()


def part(value: str | int | None) -> KeyPart:
    """Return a transform's value as part of a key."""
    return (value is None, "" if value is None else value)


def hull(spans: Iterable[Span]) -> Span:
    """Return the narrowest span that contains all of some spans. Raises `ValueError` for none."""
    every = list(spans)
    return Span(min(span.low for span in every), max(span.high for span in every))


def tagged_span(file: AddFile, kinds: Mapping[str, type]) -> Span | None:
    """Return the span that a file's tag gives; None without a tag, or for one that is not of these transforms.

    `kinds` has for each transform's text, in the specification's order, what its values are: `str` or `int`.
    """
    try:
        values: Any = orjson.loads(file.tags.get(PARTITION_TAG, "null"))
    except ValueError:
        return None
    if not isinstance(values, dict) or values.keys() != kinds.keys():
        return None
    low, high = [], []
    for name, kind in kinds.items():
        ends = values[name] if isinstance(values[name], list) else [values[name]] * 2
        if len(ends) != 2 or not all(end is None or type(end) is kind for end in ends):
            return None
        low.append(part(ends[0]))
        high.append(part(ends[1]))
    span = Span(tuple(low), tuple(high))
    return span if span.low <= span.high else None


def cut(sizes: Sequence[int], least: int, most: int | None = None) -> list[range]:
    """Cut keys into contiguous ranges of their positions; `sizes` are the bytes of each key's rows, keys in order.

    A range ends once it holds `least` bytes, and before it would hold more than `most`. A key that alone has `least`
    bytes or more is a range of its own. So of `total` bytes come at most `2 * total // least` ranges where `most` is
    None.
    """
    ranges: list[range] = []
    start = held = 0
    for at, size in enumerate(sizes):
        full = held >= least or size >= least or (most is not None and held + size > most)
        if start < at and full:
            ranges.append(range(start, at))
            start, held = at, 0
        held += size
    if start < len(sizes):
        ranges.append(range(start, len(sizes)))
    return ranges


def _plain(value: KeyPart) -> str | int | None:
    number: str | int = value[1]
    return None if value[0] else number
