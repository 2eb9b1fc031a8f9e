"""Data skipping: which files can hold rows that match, by partition values and statistics. Pure.

A file is kept unless its statistics prove that no row of it matches; where they are absent or unreadable it is kept.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from alluvia.log.actions import AddFile
from alluvia.table.partition import parse_partition_text
from alluvia.table.predicate import (
    And,
    Column,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Or,
    Predicate,
    Unknown,
    columns_of,
)
from alluvia.table.statistics import LAST_CHARACTER, TEXT_LENGTH_MAX

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class FileStatistics:
    """What is known of one file: its rows, and per column a minimum, a maximum and the number of nulls."""

    def __init__(self, file: AddFile, schema: pa.Schema, partition_columns: Sequence[str], *, exact: bool) -> None:
        self._file = file
        self._schema = schema
        self._partition_columns = partition_columns
        self._statistics = _parse(file.stats, exact=exact)
        self.rows = self._statistics.get("numRecords")

    def bounds(self, column: Column) -> tuple[Any, Any] | None:
        """Return a value at or below, and one at or above, every value of a column; None if that is not known."""
        if column[0] in self._partition_columns:
            value = self._partition_value(column[0])
            return None if value is None else (value, value)
        kind = _type_of(self._schema, column)
        low = _find(self._statistics.get("minValues"), column)
        high = _find(self._statistics.get("maxValues"), column)
        if kind is None or low is None or high is None:
            return None
        return _typed_bounds(low, high, kind)

    def is_floating(self, column: Column) -> bool:
        """Whether a column holds floating-point numbers."""
        kind = _type_of(self._schema, column)
        return kind is not None and bool(pa.types.is_floating(kind))

    def nulls(self, column: Column) -> int | None:
        """Return the number of rows in which a column is null; None if that is not known."""
        if column[0] in self._partition_columns:
            return self.rows if self._partition_value(column[0]) is None else 0
        count = _find(self._statistics.get("nullCount"), column)
        return count if isinstance(count, int) else None

    def _partition_value(self, name: str) -> Any:
        return parse_partition_text(self._file.partition_values.get(name), self._schema.field(name).type)


def prune(
    files: Iterable[AddFile], predicate: Predicate, schema: pa.Schema, partition_columns: Sequence[str]
) -> list[AddFile]:
    """Return the files that can hold rows for which a predicate holds, in their order."""
    if isinstance(predicate, Unknown):
        return list(files)
    exact = any(pa.types.is_decimal(_type_of(schema, column) or pa.null()) for column in columns_of(predicate))
    kept = []
    for file in files:
        statistics = FileStatistics(file, schema, partition_columns, exact=exact)
        if can_match(predicate, statistics):
            kept.append(file)
    return kept


def can_match(predicate: Predicate, file: FileStatistics) -> bool:
    """Whether a file can hold a row for which a predicate holds."""
    if isinstance(predicate, And):
        return all(can_match(child, file) for child in predicate.children)
    if isinstance(predicate, Or):
        return any(can_match(child, file) for child in predicate.children)
    if isinstance(predicate, Comparison):
        return _can_compare(predicate, file)
    if isinstance(predicate, In):
        return any(_can_compare(Comparison(predicate.column, "=", value), file) for value in predicate.values)
    if isinstance(predicate, IsNull):
        return file.nulls(predicate.column) != 0
    if isinstance(predicate, IsNotNull):
        return not _all_null(predicate.column, file)
    return True


def _all_null(column: Column, file: FileStatistics) -> bool:
    nulls = file.nulls(column)
    return nulls is not None and nulls == file.rows


def _can_compare(comparison: Comparison, file: FileStatistics) -> bool:
    if _all_null(comparison.column, file):
        return False
    bounds = file.bounds(comparison.column)
    value = comparison.value
    if bounds is None or _nan_may_match(comparison, file):
        return True
    low, high = bounds
    try:
        if comparison.op == "=":
            return bool(low <= value <= high)
        if comparison.op == "!=":
            return not (low == value == high)
        return _COMPARE[comparison.op](low if comparison.op.startswith("<") else high, value)
    except TypeError:
        return True


def _nan_may_match(comparison: Comparison, file: FileStatistics) -> bool:
    """Whether a NaN could match: statistics leave it out, and in SQL it sorts above every number."""
    if not file.is_floating(comparison.column):
        return False
    is_nan = comparison.value != comparison.value
    return is_nan or comparison.op in (">", ">=", "!=")


def _parse(text: str | None, *, exact: bool) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        parsed = json.loads(text, parse_float=Decimal) if exact else orjson.loads(text)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _find(tree: Any, column: Column) -> Any:
    for name in column:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree


def _type_of(schema: pa.Schema, column: Column) -> pa.DataType | None:
    at = schema.get_field_index(column[0])
    if at < 0:
        return None
    kind = schema.field(at).type
    for name in column[1:]:
        if not pa.types.is_struct(kind) or (position := kind.get_field_index(name)) < 0:
            return None
        kind = kind.field(position).type
    return kind


def _typed_bounds(low: Any, high: Any, kind: pa.DataType) -> tuple[Any, Any] | None:
    """Return JSON bounds in the column's own terms; None where they are not of its type."""
    try:
        if pa.types.is_timestamp(kind):
            # Other writers cut a maximum to the millisecond, downwards.
            return _moment(low, kind), _moment(high, kind) + timedelta(milliseconds=1)
        if pa.types.is_date(kind):
            return date.fromisoformat(low[:10]), date.fromisoformat(high[:10])
        if pa.types.is_decimal(kind):
            return Decimal(low), Decimal(high)
    except (ValueError, TypeError, OverflowError, ArithmeticError):
        return None
    wanted: type | tuple[type, ...] = (int, float)
    if pa.types.is_string(kind):
        wanted = str
        if isinstance(high, str) and len(high) >= TEXT_LENGTH_MAX:
            high += LAST_CHARACTER  # other writers cut a maximum without a tie-breaker
    elif pa.types.is_integer(kind):
        wanted = int
    elif not pa.types.is_floating(kind):
        return None
    fits = all(isinstance(value, wanted) and not isinstance(value, bool) for value in (low, high))
    return (low, high) if fits else None


def _moment(text: str, kind: pa.DataType) -> datetime:
    moment = datetime.fromisoformat(text)
    if kind.tz is None:
        return moment.replace(tzinfo=None)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
