"""Whether one file can contain matching rows, by its partition values and statistics. Pure.

A file can match unless its statistics prove that no row of it does; where they are absent or unreadable it can.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from math import isnan
from typing import Any

import pyarrow as pa

from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.paths import is_own_name
from alluvia.delta.partitioning.values import partition_value
from alluvia.delta.schema.names import ColumnPath, find
from alluvia.delta.skipping.predicate import And, Comparison, In, IsNotNull, IsNull, Or, Predicate, columns_of
from alluvia.delta.statistics.typed import has_bounds, parse_statistics, typed_value, whole_number, widened

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
        self._statistics = parse_statistics(file.stats, exact=exact)
        self.rows = whole_number(self._statistics.get("numRecords"))
        self._bounds: dict[ColumnPath, tuple[Any, Any] | None] = {}
        self._nulls: dict[ColumnPath, int | None] = {}

    def bounds(self, column: ColumnPath) -> tuple[Any, Any] | None:
        """Return a value at or below, and one at or above, every value of a column; None if that is not known."""
        if column not in self._bounds:
            self._bounds[column] = self._read_bounds(column)
        return self._bounds[column]

    def _read_bounds(self, column: ColumnPath) -> tuple[Any, Any] | None:
        if column[0] in self._partition_columns:
            value = self._partition_value(column[0])
            return None if value is None else (value, value)
        kind = type_of(self._schema, column)
        if kind is None or not has_bounds(kind):
            return None
        low = typed_value(find(self._statistics.get("minValues"), column), kind)
        high = typed_value(find(self._statistics.get("maxValues"), column), kind)
        if low is None or high is None:
            return None
        bounds = widened(low, high, kind, own=is_own_name(self._file.path))
        return bounds if bounds is not None and bounds[0] <= bounds[1] else None

    def is_floating(self, column: ColumnPath) -> bool:
        """Whether a column holds floating-point numbers."""
        kind = type_of(self._schema, column)
        return kind is not None and pa.types.is_floating(kind)

    def nulls(self, column: ColumnPath) -> int | None:
        """Return the number of rows in which a column is null; None if that is not known."""
        if column not in self._nulls:
            self._nulls[column] = self._read_nulls(column)
        return self._nulls[column]

    def _read_nulls(self, column: ColumnPath) -> int | None:
        if column[0] in self._partition_columns:
            return self.rows if self._partition_value(column[0]) is None else 0
        kind = type_of(self._schema, column)
        if kind is None or pa.types.is_struct(kind):
            return None
        count = whole_number(find(self._statistics.get("nullCount"), column))
        loose = self._file.deletion_vector is not None or self._statistics.get("tightBounds") is False
        return count if not loose or count in (0, self.rows) else None

    def _partition_value(self, name: str) -> Any:
        return partition_value(self._file, name, self._schema.field(name).type)


def type_of(schema: pa.Schema, column: ColumnPath) -> pa.DataType | None:
    """Return the type of a column or of a field in it; None if there is none."""
    at = schema.get_field_index(column[0])
    if at < 0:
        return None
    kind = schema.field(at).type
    for name in column[1:]:
        if not pa.types.is_struct(kind) or (position := kind.get_field_index(name)) < 0:
            return None
        kind = kind.field(position).type
    return kind


def needs_exact(predicate: Predicate, schema: pa.Schema) -> bool:
    """Whether a predicate looks at decimals, whose digits statistics must keep."""
    return any(pa.types.is_decimal(type_of(schema, column) or pa.null()) for column in columns_of(predicate))


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


def within(op: str, value: Any, low: Any, high: Any) -> bool:
    """Whether a value from `low` to `high` can compare so with a constant; true where they cannot be compared."""
    try:
        if op == "=":
            return bool(low <= value <= high)
        if op == "!=":
            return not (low == value == high)
        return _COMPARE[op](low if op.startswith("<") else high, value)
    except (TypeError, ArithmeticError):
        return True


def nan_may_match(op: str, value: Any, *, floating: bool) -> bool:
    """Whether a NaN could match: statistics leave it out, and in SQL it sorts above every number."""
    return floating and (is_nan(value) or op in (">", ">=", "!="))


def is_nan(value: Any) -> bool:
    """Whether a constant is not a number, although its type is numeric."""
    return value.is_nan() if isinstance(value, Decimal) else isinstance(value, float) and isnan(value)


def _all_null(column: ColumnPath, file: FileStatistics) -> bool:
    nulls = file.nulls(column)
    return nulls is not None and nulls == file.rows


def _can_compare(comparison: Comparison, file: FileStatistics) -> bool:
    if _all_null(comparison.column, file):
        return False
    bounds = file.bounds(comparison.column)
    floating = file.is_floating(comparison.column)
    if bounds is None or nan_may_match(comparison.op, comparison.value, floating=floating):
        return True
    return within(comparison.op, comparison.value, *bounds)
