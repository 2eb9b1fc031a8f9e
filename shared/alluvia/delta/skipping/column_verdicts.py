"""Which of many files can contain matching rows, by columns of partition values and statistics. Pure.

For every file the verdict is the one of `verdicts.can_match`; here it costs a few operations on whole columns. What
Arrow would compare otherwise than Python (a float with a big integer, say) is compared value by value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.action_rows import LogRows
from alluvia.delta.schema.names import ColumnPath
from alluvia.delta.schema.types import is_zoned
from alluvia.delta.skipping.predicate import And, Comparison, In, IsNotNull, IsNull, Or, Predicate, columns_of
from alluvia.delta.skipping.verdicts import is_nan, nan_may_match, type_of, within
from alluvia.delta.statistics.column_bounds import Bounds, bounds_of, partition_bounds
from alluvia.delta.statistics.typed import has_bounds

FEW_VALUES = 8
_EXACT_FLOAT = 1 << 53


def matching(
    predicate: Predicate, rows: LogRows[AddFile], schema: pa.Schema, partition_columns: Sequence[str]
) -> pa.BooleanArray:
    """Return for each file whether it can hold a row for which a predicate holds."""
    known: dict[ColumnPath, Bounds] = {}
    stored: list[tuple[ColumnPath, pa.DataType]] = []
    for column in sorted(columns_of(predicate)):
        kind = type_of(schema, column)
        if column[0] in partition_columns:
            known[column] = partition_bounds(rows, column[0], schema.field(column[0]).type)
        elif kind is not None:
            stored.append((column, kind))
    if stored:
        known |= bounds_of(rows, stored)
    return _Verdicts(known, schema, len(rows)).of(predicate)


class _Verdicts:
    def __init__(self, known: dict[ColumnPath, Bounds], schema: pa.Schema, count: int) -> None:
        self._known = known
        self._schema = schema
        self._count = count

    def of(self, predicate: Predicate) -> pa.BooleanArray:
        if isinstance(predicate, And):
            return self._all(self.of(child) for child in predicate.children)
        if isinstance(predicate, Or):
            return self._any(self.of(child) for child in predicate.children)
        if not isinstance(predicate, (Comparison, In, IsNull, IsNotNull)) or predicate.column not in self._known:
            empty = isinstance(predicate, In) and not predicate.values
            return self._constant(value=not empty)
        bounds = self._known[predicate.column]
        if isinstance(predicate, IsNull):
            return pc.fill_null(pc.not_equal(bounds.nulls, 0), fill_value=True)
        some = pc.invert(pc.fill_null(pc.equal(bounds.nulls, bounds.rows), fill_value=False))
        if isinstance(predicate, IsNotNull):
            return some
        if isinstance(predicate, In):
            return pc.and_(some, self._in(predicate, bounds))
        return pc.and_(some, self._compare(predicate.column, predicate.op, predicate.value, bounds))

    def _compare(self, column: ColumnPath, op: str, value: Any, bounds: Bounds) -> pa.BooleanArray:
        kind = type_of(self._schema, column) or bounds.low.type
        if nan_may_match(op, value, floating=pa.types.is_floating(kind)):
            return self._constant(value=True)
        constant = _scalar(value, kind)
        try:
            verdicts = _by_value(op, value, bounds) if constant is None else _at_once(op, constant, bounds)
        except pa.ArrowException:
            verdicts = _by_value(op, value, bounds)
        return pc.fill_null(verdicts, fill_value=True)

    def _in(self, predicate: In, bounds: Bounds) -> pa.BooleanArray:
        try:
            values = sorted(predicate.values)  # type: ignore[type-var]
        except (TypeError, ArithmeticError):
            values = []
        kind = type_of(self._schema, predicate.column) or bounds.low.type
        plain = not any(is_nan(value) or _scalar(value, kind) is None for value in values)
        if len(values) <= FEW_VALUES or not plain:
            return self._any(self._compare(predicate.column, "=", value, bounds) for value in predicate.values)
        candidates = self._all(
            (
                self._compare(predicate.column, ">=", values[0], bounds),
                self._compare(predicate.column, "<=", values[-1], bounds),
            )
        )
        return self._with_one_of(values, candidates, bounds)

    def _with_one_of(self, values: Sequence[Any], candidates: pa.BooleanArray, bounds: Bounds) -> pa.BooleanArray:
        """Return which candidates have bounds around one of some values, which ascend, or no known bounds."""
        verdicts = candidates.to_pylist()
        at = pc.indices_nonzero(candidates)
        lows, highs = bounds.low.take(at).to_pylist(), bounds.high.take(at).to_pylist()
        for place, low, high in zip(at.to_pylist(), lows, highs, strict=True):
            if low is not None:
                first = bisect_left(values, low)
                verdicts[place] = first < len(values) and values[first] <= high
        return pa.array(verdicts, pa.bool_())

    def _all(self, masks: Iterable[pa.BooleanArray]) -> pa.BooleanArray:
        joint = self._constant(value=True)
        for mask in masks:
            joint = pc.and_(joint, mask)
        return joint

    def _any(self, masks: Iterable[pa.BooleanArray]) -> pa.BooleanArray:
        joint = self._constant(value=False)
        for mask in masks:
            joint = pc.or_(joint, mask)
        return joint

    def _constant(self, *, value: bool) -> pa.BooleanArray:
        return pa.repeat(pa.scalar(value), self._count)


def _at_once(op: str, value: pa.Scalar, bounds: Bounds) -> pa.BooleanArray:
    low, high = bounds.low, bounds.high
    if op == "=":
        return pc.and_(pc.less_equal(low, value), pc.greater_equal(high, value))
    if op == "!=":
        return pc.invert(pc.and_(pc.equal(low, value), pc.equal(high, value)))
    compare = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}[op]
    return compare(low if op.startswith("<") else high, value)


def _by_value(op: str, value: Any, bounds: Bounds) -> pa.BooleanArray:
    pairs = zip(bounds.low.to_pylist(), bounds.high.to_pylist(), strict=True)
    verdicts = [None if low is None or high is None else within(op, value, low, high) for low, high in pairs]
    return pa.array(verdicts, pa.bool_())


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """Return a constant that Arrow compares with a column as Python does; None if there is none."""
    if not has_bounds(kind) or not _comparable(value, kind):
        return None
    try:
        if pa.types.is_integer(kind):
            return pa.scalar(value, pa.int64())
        if pa.types.is_floating(kind):
            return pa.scalar(float(value), pa.float64())
        if pa.types.is_decimal(kind):
            return pa.scalar(value if isinstance(value, Decimal) else Decimal(value))
        return pa.scalar(value, kind)
    except (pa.ArrowException, ValueError, OverflowError):
        return None


def _comparable(value: Any, kind: pa.DataType) -> bool:
    whole = type(value) is int
    if pa.types.is_integer(kind):
        return whole
    if pa.types.is_floating(kind):
        return type(value) is float or (whole and abs(value) <= _EXACT_FLOAT)
    if pa.types.is_decimal(kind):
        return whole or (type(value) is Decimal and value.is_finite())
    if pa.types.is_string(kind):
        return type(value) is str
    if pa.types.is_date(kind):
        return type(value) is date
    return isinstance(value, datetime) and is_zoned(kind) == (value.tzinfo is not None)
