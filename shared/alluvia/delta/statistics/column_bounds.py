"""The bounds of a column in many files at once: from struct statistics if a checkpoint has them, else from JSON.

Pure, except that rows are opened on demand. What is derived is kept with the rows, which never change.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, timedelta
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.action_rows import LogRows
from alluvia.delta.log.paths import is_own_name
from alluvia.delta.partitioning.values import parse_partition_text, partition_value
from alluvia.delta.schema.names import ColumnPath
from alluvia.delta.schema.types import is_zoned
from alluvia.delta.statistics.typed import (
    CUT_ENDS,
    FLOAT_DIGITS,
    OFFSET_SECONDS,
    OFFSETS_WHOLE_SINCE,
    ColumnStatistics,
    has_bounds,
    parse_texts,
    widened_decimals,
    within_years,
)
from alluvia.delta.statistics.written import LAST_CHARACTER, TEXT_LENGTH_MAX
from alluvia.lazy_dataclasses import dataclass

STRUCT = "stats_parsed"
_MILLISECOND = pa.scalar(1000, pa.duration("us"))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one column in many files: each file's number of rows, bounds and nulls. Null is unknown.

    `low` and `high` are known together; they hold no matter who wrote them.
    """

    rows: pa.Int64Array
    low: pa.Array
    high: pa.Array
    nulls: pa.Int64Array


def bounds_of(rows: LogRows[AddFile], columns: Iterable[tuple[ColumnPath, pa.DataType]]) -> dict[ColumnPath, Bounds]:
    """Return what is known about some columns other than partition columns, by their types."""
    wanted = list(columns)
    missing = [(column, kind) for column, kind in wanted if ("bounds", column, kind) not in rows.derived]
    structs = has_structs(rows)
    texts: list[tuple[ColumnPath, pa.DataType]] = []
    for column, kind in missing:
        statistics = struct_statistics(rows, column, kind) if structs else None
        if statistics is None:
            texts.append((column, kind))
        else:
            tight = rows.column((STRUCT, "tightBounds"))
            tight = tight if tight is None else tight.cast(pa.bool_())
            rows.derived["bounds", column, kind] = _bounds(rows, row_counts(rows), tight, statistics, kind)
    if texts:
        parsed = parse_texts(_texts(rows), dict(texts))
        for column, kind in texts:
            statistics = parsed.columns[column]
            rows.derived["bounds", column, kind] = _bounds(rows, parsed.rows, parsed.tight, statistics, kind)
    return {column: rows.derived["bounds", column, kind] for column, kind in wanted}


def partition_bounds(rows: LogRows[AddFile], name: str, kind: pa.DataType) -> Bounds:
    """Return what is known of a partition column: each file's value. Raises `Corrupt`, naming a file."""
    key = ("partition", name, kind)
    if key not in rows.derived:
        values = partition_array(rows, name, kind)
        numbers = row_counts(rows)
        rows.derived[key] = Bounds(numbers, values, values, pc.if_else(pc.is_valid(values), 0, numbers))
    bounds: Bounds = rows.derived[key]
    return bounds


def partition_array(rows: LogRows[AddFile], name: str, kind: pa.DataType) -> pa.Array:
    """Return each file's value of a partition column. Raises `Corrupt`, naming a file whose text is not a value."""
    texts = rows.map_texts("partitionValues", name)
    codes = texts.dictionary_encode()
    values: list[Any] = []
    for at, text in enumerate(codes.dictionary.to_pylist()):
        try:
            values.append(parse_partition_text(text, kind))
        except (ValueError, ArithmeticError):
            position = pc.index(codes.indices, pa.scalar(at, codes.indices.type)).as_py()
            values.append(partition_value(next(iter(rows.actions([position]))), name, kind))
    return pa.array(values, kind).take(codes.indices)


def has_structs(rows: LogRows[AddFile]) -> bool:
    """Whether every file whose statistics are known has them as a struct."""
    key = "has structs"
    if key not in rows.derived:
        numbers = rows.column((STRUCT, "numRecords"))
        if numbers is None or not pa.types.is_integer(numbers.type):
            rows.derived[key] = False
        else:
            rows.derived[key] = not numbers.null_count or _without_texts(rows)
    return bool(rows.derived[key])


def struct_statistics(rows: LogRows[AddFile], column: ColumnPath, kind: pa.DataType) -> ColumnStatistics | None:
    """Return a column's struct statistics in its type; None where JSON might say more."""
    count = len(rows)
    nulls = None if pa.types.is_struct(kind) else _leaf(rows, "nullCount", column, pa.int64())
    low = high = None
    if has_bounds(kind):
        low, high = _leaf(rows, "minValues", column, kind), _leaf(rows, "maxValues", column, kind)
        if (low is None or high is None or nulls is None) and not _without_texts(rows):
            return None
    elif nulls is None and not pa.types.is_struct(kind) and not _without_texts(rows):
        return None
    return ColumnStatistics(
        pa.nulls(count, kind) if low is None else low,
        pa.nulls(count, kind) if high is None else high,
        pa.nulls(count, pa.int64()) if nulls is None else nulls,
    )


def _leaf(rows: LogRows[AddFile], group: str, column: ColumnPath, kind: pa.DataType) -> pa.Array | None:
    """Return a leaf of the struct statistics in a type; None where there is none of that type."""
    stored = rows.column((STRUCT, group, *column))
    if stored is None or not _same_family(stored.type, kind):
        return None
    try:
        values = stored.cast(kind)
    except pa.ArrowException:
        return None
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(values), values, None)
    return within_years(values) if pa.types.is_timestamp(kind) else values


_FAMILIES = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_date)
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def _same_family(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Whether values of a type can be those of another, maybe of another width."""
    if pa.types.is_timestamp(kind):
        return pa.types.is_timestamp(stored) and is_zoned(stored) == is_zoned(kind)
    if pa.types.is_string(kind):
        return any(is_kind(stored) for is_kind in _TEXTS)
    return any(is_kind(stored) and is_kind(kind) for is_kind in _FAMILIES)


def _without_texts(rows: LogRows[AddFile]) -> bool:
    if rows.type_of(("stats",)) is None:
        return True
    if "texts" not in rows.derived:
        texts = rows.column(("stats",))
        rows.derived["texts"] = texts is None or texts.null_count == len(texts)
    return bool(rows.derived["texts"])


def _texts(rows: LogRows[AddFile]) -> pa.Array:
    texts = rows.column(("stats",))
    return pa.nulls(len(rows), pa.string()) if texts is None else texts.cast(pa.string())


def row_counts(rows: LogRows[AddFile]) -> pa.Int64Array:
    """Return each file's number of rows, deleted ones included; null where its statistics do not say it."""
    if "rows" not in rows.derived:
        counts = rows.column((STRUCT, "numRecords")) if has_structs(rows) else None
        rows.derived["rows"] = parse_texts(_texts(rows), {}).rows if counts is None else counts.cast(pa.int64())
    kept: pa.Int64Array = rows.derived["rows"]
    return kept


def _bounds(
    rows: LogRows[AddFile],
    numbers: pa.Int64Array,
    tight: pa.BooleanArray | None,
    statistics: ColumnStatistics,
    kind: pa.DataType,
) -> Bounds:
    low, high = statistics.low, statistics.high
    if pa.types.is_timestamp(kind):
        low, high = _widened_times(rows, low, high, kind)
    elif pa.types.is_string(kind):
        long = pc.greater_equal(pc.binary_length(high), TEXT_LENGTH_MAX)
        if pc.any(long).as_py():
            cut = pc.replace_substring_regex(high, CUT_ENDS, "")
            high = pc.if_else(long, pc.binary_join_element_wise(cut, LAST_CHARACTER, ""), high)
    elif pa.types.is_decimal128(kind) and kind.precision > FLOAT_DIGITS:
        low, high = _widened_decimals(low, high, kind)
    if has_bounds(kind):
        ordered = pc.fill_null(pc.less_equal(low, high), fill_value=False)
        low, high = (pc.if_else(ordered, values, None) for values in (low, high))
    return Bounds(numbers, low, high, _sure(rows, numbers, tight, statistics.nulls.cast(pa.int64())))


def _widened_times(
    rows: LogRows[AddFile], low: pa.Array, high: pa.Array, kind: pa.DataType
) -> tuple[pa.Array, pa.Array]:
    """Return bounds of times as `typed.widened` does."""
    since = pa.scalar(OFFSETS_WHOLE_SINCE.replace(tzinfo=UTC if is_zoned(kind) else None), kind)
    slack = pa.scalar(OFFSET_SECONDS if is_zoned(kind) else timedelta(milliseconds=1), pa.duration("us"))
    old_low, old_high = (pc.fill_null(pc.less(bound, since), fill_value=False) for bound in (low, high))
    lower, higher = low, pc.add(high, _MILLISECOND)
    if pc.any(old_low).as_py():
        others = pa.array([not is_own_name(key) for key in rows.keys.to_pylist()], pa.bool_())
        lower = pc.if_else(pc.and_(old_low, others), pc.subtract(low, slack), low)
        higher = pc.if_else(pc.and_(old_high, others), pc.add(high, slack), higher)
    return within_years(lower), within_years(higher)


def _widened_decimals(low: pa.Array, high: pa.Array, kind: pa.Decimal128Type) -> tuple[pa.Array, pa.Array]:
    pairs = zip(low.to_pylist(), high.to_pylist(), strict=True)
    wide = [None if None in pair else widened_decimals(*pair, kind) for pair in pairs]
    lows, highs = zip(*(pair or (None, None) for pair in wide), strict=True) if wide else ((), ())
    return pa.array(lows, kind), pa.array(highs, kind)


def _sure(
    rows: LogRows[AddFile], numbers: pa.Int64Array, tight: pa.BooleanArray | None, nulls: pa.Int64Array
) -> pa.Int64Array:
    """Return numbers of nulls without those that deletion vectors may have made wrong."""
    loose = rows.with_vector()
    if tight is not None and pc.any(pc.invert(tight)).as_py():
        loose = pc.or_(loose, pc.fill_null(pc.invert(tight), fill_value=False))
    if not pc.any(loose).as_py():
        return nulls
    all_or_none = pc.or_(pc.equal(nulls, 0), pc.fill_null(pc.equal(nulls, numbers), fill_value=False))
    return pc.if_else(pc.and_(loose, pc.invert(pc.fill_null(all_or_none, fill_value=False))), None, nulls)
