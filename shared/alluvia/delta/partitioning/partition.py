"""Partitioning: which file a row goes to. Pure.

Rows are sorted by partition and cut: each file holds one value of each identity column and a contiguous range of the
transforms' values, so that the statistics of the columns are as tight as a partition column would be, for every Delta
reader. The tag `alluvia.partition` of an add says which range it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, groupby, repeat
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.partitioning.spec import PartitionField, PartitionSpec
from alluvia.delta.partitioning.transforms import (
    PARTITION_TAG,
    Key,
    Span,
    cut,
    is_one_value,
    one_array,
    part,
    plain,
    transformed,
)
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass

APART_MAX = 8
"""Up to this many partition values get a file each, even for few rows."""
PARTITIONS_MAX = 100
"""Up to this many values get a file each if each has enough bytes, and all together fill at most one file."""
RANGES = 32
"""A range of several values holds at most about this fraction of rows that fill no file, so that it prunes well."""
FILLED_RANGES = 8
"""The same of rows that fill more than one file: so there are about as many files as they fill, or eight."""
RANGE_BYTES_MIN = 256 << 10
"""Ranges of fewer Arrow bytes are not worth a file each."""
RANGE_OVER_SHARE = 1.25
"""A range of several values holds at most this many times the target of one."""
FOLDER_CHARS_MAX = 200
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Partition:
    """What the rows of a file share: Delta's `values` of the partition columns, and a span of the `transforms`."""

    values: Mapping[str, str | None]
    transforms: tuple[PartitionField, ...]
    span: Span
    folder: str

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags of a file of this partition."""
        return {PARTITION_TAG: self.span.tag([str(each) for each in self.transforms])} if self.transforms else {}


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows of one partition value: their `key`, and how many they are."""

    values: tuple[str | None, ...]
    key: Key
    rows: int


def split(
    table: pa.Table,
    spec: PartitionSpec,
    order: Sequence[pa.ChunkedArray] = (),
    file_bytes: int | None = None,
    *,
    together: bool = False,
    apart: bool = False,
) -> Iterator[tuple[Partition, pa.Table]]:
    """Yield each partition with its rows, sorted by partition value and by `order`, columns of the same length.

    The identity columns are dropped from the rows. `file_bytes` is how many Arrow bytes make a file. `together` leaves
    all transforms' values in one range; `apart` gives each of up to `PARTITIONS_MAX` values its own range.
    """
    if not len(table):
        return
    groups, rows = grouped(table, spec, order)
    data = table.drop_columns(list(spec.identity_columns)) if spec.identity_columns else table
    if len(groups) == 1:
        [only] = groups
        yield partition_of(spec, only.values, Span(only.key, only.key)), data if rows is None else data.take(rows)
        return
    start, row_bytes = 0, table.nbytes / len(table)
    least = sys.maxsize if together else least_bytes(groups, row_bytes, file_bytes, apart=apart)
    for partition, count in partitions(groups, spec, row_bytes, least):
        yield partition, data.slice(start, count) if rows is None else data.take(rows.slice(start, count))
        start += count


def partitions(
    groups: Sequence[PartitionRows], spec: PartitionSpec, row_bytes: float, least: int
) -> Iterator[tuple[Partition, int]]:
    """Yield the partition of each file, and how many rows of the groups go there, in the order of the groups.

    A range of several values of the transforms ends once it holds `least` bytes.
    """
    most = int(least * RANGE_OVER_SHARE)
    for values, members in groupby(groups, lambda each: each.values):
        same = list(members)
        for positions in cut([max(1, int(each.rows * row_bytes)) for each in same], least, most):
            span = Span(same[positions.start].key, same[positions.stop - 1].key)
            yield partition_of(spec, values, span), sum(each.rows for each in same[positions.start : positions.stop])


def least_bytes(
    groups: Sequence[PartitionRows], row_bytes: float, file_bytes: int | None = None, *, apart: bool = False
) -> int:
    """Return how many Arrow bytes a range of several partition values should hold; 0 for a file for each value.

    `file_bytes` is how many make a file. `apart` has the same meaning as for `split`.
    """
    size = int(sum(each.rows for each in groups) * row_bytes)
    if len(groups) <= PARTITIONS_MAX and (file_bytes is None or size <= file_bytes):
        return 0 if apart or len(groups) <= APART_MAX else RANGE_BYTES_MIN
    if file_bytes is None or size <= file_bytes:
        return max(RANGE_BYTES_MIN, size // RANGES)
    return min(file_bytes, max(RANGE_BYTES_MIN, size // FILLED_RANGES))


def grouped(
    table: pa.Table, spec: PartitionSpec, order: Sequence[pa.ChunkedArray] = ()
) -> tuple[list[PartitionRows], pa.Array | None]:
    """Return the partition values of rows, and the rows' numbers sorted by them and by `order`; None if they are.

    Not by `group_by`, which would have a cold start load Acero, and with it all of pyarrow's datasets.
    """
    if not spec.fields and not order:
        return [PartitionRows((), (), len(table))], None
    if not len(table):
        return [], None
    columns = [one_array(_values(table, each)) for each in spec.fields]
    if len(table) == 1:
        return _groups(spec, columns, [1]), None
    codes = pa.repeat(pa.scalar(0, pa.int64()), len(table))
    for field, column in zip(spec.fields, columns, strict=True):
        if field.transform is None:
            codes = _appearance(_paired(codes, _appearance(column)))
    for field, column in zip(spec.fields, columns, strict=True):
        if field.transform is not None:
            codes = _ranks(_paired(codes, _ranks(column)))
    groups = codes.value_counts()
    counts = groups.field("counts").take(pc.array_sort_indices(groups.field("values"))).to_pylist()
    rows = None if len(counts) == 1 and _are_sorted(order) else _sorted(codes, order)
    starts = pa.array([end - count for end, count in zip(accumulate(counts), counts, strict=True)], pa.int64())
    first = starts if rows is None else rows.take(starts)
    return _groups(spec, [column.take(first) for column in columns], counts), rows


def _values(table: pa.Table, field: PartitionField) -> pa.ChunkedArray:
    column = table[field.column]
    return column if field.transform is None else transformed(column, field)


def _groups(spec: PartitionSpec, columns: Sequence[pa.Array], counts: Sequence[int]) -> list[PartitionRows]:
    texts, keys = [], []
    for field, column in zip(spec.fields, columns, strict=True):
        plain_values = plain(column, field)
        if field.transform is None:
            texts.append([partition_text(each, field.column) for each in plain_values])
        else:
            keys.append([part(each) for each in plain_values])
    values = zip(*texts, strict=True) if texts else repeat(())
    groups = zip(values, zip(*keys, strict=True) if keys else repeat(()), counts, strict=False)
    return [PartitionRows(*each) for each in groups]


def _paired(codes: pa.Int64Array, more: pa.Int64Array) -> pa.Int64Array:
    """Return a number for each pair of numbers, in the order of the pairs."""
    return pc.add(pc.multiply(codes, pa.scalar(pc.max(more).as_py() + 1, pa.int64())), more)


def _appearance(values: pa.Array) -> pa.Int64Array:
    """Return a number for each value, null too: 0 for the first, 1 for the next one that differs …"""
    return pc.dictionary_encode(values, null_encoding="encode").indices.cast(pa.int64())


def _ranks(values: pa.Array) -> pa.Int64Array:
    """Return a number for each value in the values' order: 0 for the least, 1 for the next …, null last."""
    if is_one_value(values):
        return pa.repeat(pa.scalar(0, pa.int64()), len(values))
    encoded = pc.dictionary_encode(values)
    ranks = pc.array_sort_indices(pc.array_sort_indices(encoded.dictionary)).cast(pa.int64())
    return pc.fill_null(ranks.take(encoded.indices), pa.scalar(len(encoded.dictionary), pa.int64()))


def _are_sorted(order: Sequence[pa.ChunkedArray]) -> bool:
    """Whether rows are known to be sorted, as those of one kind of event are that came in the order of their time."""
    columns = [column for column in order if not is_one_value(column)]
    if not columns:
        return True
    [first, *others] = columns
    if others or first.null_count or pa.types.is_floating(first.type):
        return False
    values = one_array(first)
    return bool(pc.all(pc.less_equal(values.slice(0, len(values) - 1), values.slice(1))).as_py())


def _sorted(codes: pa.Array, order: Sequence[pa.ChunkedArray]) -> pa.Array:
    if not order:
        return pc.array_sort_indices(codes)  # stable
    columns = [codes, *map(one_array, order)]
    names = [str(at) for at in range(len(columns))]
    return pc.sort_indices(pa.table(columns, names), sort_keys=[(name, "ascending") for name in names])


def misfits(table: pa.Table, spec: PartitionSpec) -> dict[int, str]:
    """Return why rows can be in no partition, by their numbers: each distinct value is judged once."""
    reasons: dict[int, str] = {}
    for field in spec.fields:
        encoded = one_array(_values(table, field)).dictionary_encode()
        for at in range(len(encoded.dictionary)):
            try:
                _groups(PartitionSpec((field,)), [encoded.dictionary.slice(at, 1)], [1])
            except Invalid as error:
                rows = pc.indices_nonzero(pc.equal(encoded.indices, at)).to_pylist()
                reasons = dict.fromkeys(rows, str(error)) | reasons
    return reasons


def partition_of(spec: PartitionSpec, values: Sequence[str | None], span: Span) -> Partition:
    """Return the partition of some values of the identity columns and a span of the transforms'."""
    texts, ends = iter(values), iter(zip(span.low, span.high, strict=True))
    folders = []
    for field in spec.fields:
        if field.transform is None:
            text = next(texts)
            name = NULL_FOLDER if text is None else _quoted(text)
        else:
            low, high = (NULL_FOLDER if null else _quoted(str(value)) for null, value in next(ends))
            name = low if low == high else f"{low}..{high}"
        folders.append(f"{_short(f'{_quoted(field.folder)}={name}')}/")
    return Partition(dict(zip(spec.stored_columns, values, strict=True)), spec.transforms, span, "".join(folders))


@lru_cache(maxsize=256)
def _quoted(text: str) -> str:
    return quote(text, safe="")


def _short(name: str) -> str:
    """Return a folder name short enough for file systems: readers take values from the log, not from paths."""
    if len(name) <= FOLDER_CHARS_MAX:
        return name
    digest = blake2b(name.encode(), digest_size=12).hexdigest()
    return f"{name[: FOLDER_CHARS_MAX - len(digest) - 1]}-{digest}"


def partition_text(value: Any, column: str) -> str | None:
    """Return a partition value as text in the log. Source: Delta protocol, "Partition Value Serialization".

    Raises `Invalid` for the empty string, which the log cannot tell from null.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    if isinstance(value, Decimal):
        return format(value, "f")
    if value == "":
        raise Invalid(f"column {column}: the empty string cannot be a partition value; use null")
    return value.isoformat() if isinstance(value, date) else str(value)
