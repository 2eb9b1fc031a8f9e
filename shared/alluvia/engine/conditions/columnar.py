"""Compute the trees of `fast_parser` with Arrow, where it gives what DuckDB gives. Pure.

What is left to DuckDB: types but integers, DOUBLE, VARCHAR and BOOLEAN, comparisons between types, and sums that can
overflow in less than 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.names import fold
from alluvia.engine.queries.parse import Node, is_constant
from alluvia.lazy_dataclasses import dataclass

Mask = Callable[[pa.RecordBatch], pa.BooleanArray]
Compute = Callable[[pa.RecordBatch], pa.Array]
Kind = Literal["integer", "double", "text", "boolean", "other"]
_COMPARED = {
    "COMPARE_EQUAL": "equal",
    "COMPARE_NOTEQUAL": "not_equal",
    "COMPARE_LESSTHAN": "less",
    "COMPARE_LESSTHANOREQUALTO": "less_equal",
    "COMPARE_GREATERTHAN": "greater",
    "COMPARE_GREATERTHANOREQUALTO": "greater_equal",
}
_NAN_COMES_LAST = ("COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO")
_SUMS = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked"}
_DOUBLE_EXACT = 1 << 53


def definite(mask: pa.BooleanArray) -> pa.BooleanArray:
    """Return a mask with false in place of null."""
    return pc.fill_null(mask, pa.scalar(False, pa.bool_())) if mask.null_count else mask


class _NotComputableError(Exception):
    """DuckDB must compute it."""


@dataclass(frozen=True, slots=True)
class _Value:
    """A value for each row: an array, or a scalar where `constant` has it. `wide` is a BIGINT to DuckDB too."""

    kind: Kind
    compute: Callable[[pa.RecordBatch], Any]
    constant: int | str | None = None
    wide: bool = False


def computed_condition(expression: Node, schema: pa.Schema) -> Mask | None:
    """Return what computes a condition for rows of a schema: a boolean array; None where DuckDB must.

    It raises `pa.ArrowInvalid` where a number overflows.
    """
    try:
        return _Compiler(schema).condition(expression)
    except _NotComputableError:
        return None


def computed_value(expression: Node, schema: pa.Schema, kind: pa.DataType) -> Compute | None:
    """Return what computes a value of exactly a type for rows of a schema; None where DuckDB must. Raises as above."""
    try:
        value = _Compiler(schema).value(expression)
    except _NotComputableError:
        return None
    fits = {"integer": pa.types.is_int64(kind) and (value.wide or value.constant is not None)}
    fits |= {"double": pa.types.is_float64(kind), "text": pa.types.is_string(kind)}
    if not fits.get(value.kind, False):
        return None
    if value.constant is None:
        return value.compute
    return lambda rows: pa.repeat(pa.scalar(value.constant, kind), len(rows))


class _Compiler:
    def __init__(self, schema: pa.Schema) -> None:
        self._names = {fold(field.name): field for field in schema}
        if len(self._names) < len(schema):
            raise _NotComputableError

    def condition(self, node: Node) -> Mask:
        kind = node["type"]
        if kind in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
            parts = [self.condition(child) for child in node["children"]]
            return _joined(pc.and_kleene if kind == "CONJUNCTION_AND" else pc.or_kleene, parts)
        if kind == "OPERATOR_NOT":
            inner = self.condition(node["children"][0])
            return lambda rows: pc.invert(inner(rows))
        if kind in _COMPARED:
            return self._comparison(kind, self.value(node["left"]), self.value(node["right"]))
        if kind == "COMPARE_BETWEEN":
            middle, lower, upper = (self.value(node[name]) for name in ("input", "lower", "upper"))
            from_lower = self._comparison("COMPARE_GREATERTHANOREQUALTO", middle, lower)
            to_upper = self._comparison("COMPARE_LESSTHANOREQUALTO", middle, upper)
            return _joined(pc.and_kleene, [from_lower, to_upper])
        if kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
            return self._membership(node["children"], negated=kind == "COMPARE_NOT_IN")
        value = self.value(node["children"][0] if kind.startswith("OPERATOR_IS_") else node)
        if value.constant is not None:
            raise _NotComputableError
        if kind.startswith("OPERATOR_IS_"):
            test = pc.is_null if kind == "OPERATOR_IS_NULL" else pc.is_valid
            return lambda rows: test(value.compute(rows))
        if value.kind != "boolean":
            raise _NotComputableError
        return value.compute

    def value(self, node: Node) -> _Value:
        if is_constant(node):
            held = node["value"]["value"]
            if isinstance(held, str):
                return _Value("text", lambda _: pa.scalar(held, pa.string()), held)
            return _Value("integer", lambda _: pa.scalar(held, pa.int64()), held)
        if node["class"] == "COLUMN_REF":
            return self._column(node["column_names"])
        if node["class"] != "FUNCTION":
            raise _NotComputableError
        left, right = (self.value(child) for child in node["children"])
        return self._remainder(left, right) if node["function_name"] == "%" else self._sum(node, left, right)

    def _column(self, names: list[str]) -> _Value:
        field = self._names.get(fold(names[0]))
        if field is None or len(names) > 1:
            raise _NotComputableError
        name, kind = field.name, field.type
        if pa.types.is_int64(kind):
            return _Value("integer", lambda rows: rows[name], wide=True)
        if pa.types.is_integer(kind):
            return _Value("integer", lambda rows: pc.cast(rows[name], pa.int64()))
        kinds: dict[Kind, bool] = {
            "double": pa.types.is_float64(kind),
            "text": pa.types.is_string(kind),
            "boolean": pa.types.is_boolean(kind),
        }
        return _Value(next((each for each, is_it in kinds.items() if is_it), "other"), lambda rows: rows[name])

    def _comparison(self, kind: str, left: _Value, right: _Value) -> Mask:
        compare = getattr(pc, _COMPARED[kind])
        if left.constant is not None and right.constant is not None:
            raise _NotComputableError
        if left.kind == right.kind and left.kind in ("integer", "text"):
            return lambda rows: compare(left.compute(rows), right.compute(rows))
        number = _exact_double(right)
        if left.kind != "double" or number is None:
            raise _NotComputableError

        def compared(rows: pa.RecordBatch) -> pa.BooleanArray:
            values = left.compute(rows)
            verdicts: pa.BooleanArray = compare(values, number)
            return pc.or_kleene(verdicts, pc.is_nan(values)) if kind in _NAN_COMES_LAST else verdicts

        return compared

    def _membership(self, children: list[Node], *, negated: bool) -> Mask:
        value, *others = (self.value(child) for child in children)
        if value.constant is not None or value.kind not in ("integer", "text"):
            raise _NotComputableError
        if any(other.kind != value.kind or other.constant is None for other in others):
            raise _NotComputableError
        kind = pa.int64() if value.kind == "integer" else pa.string()
        wanted = pa.array([other.constant for other in others], kind)

        def membership(rows: pa.RecordBatch) -> pa.BooleanArray:
            values = value.compute(rows)
            verdicts = pc.is_in(values, value_set=wanted)
            verdicts = pc.invert(verdicts) if negated else verdicts
            return _null_where_null(verdicts, values)

        return membership

    def _remainder(self, left: _Value, right: _Value) -> _Value:
        divisor = right.constant
        if left.kind != "integer" or left.constant is not None or not isinstance(divisor, int) or divisor <= 0:
            raise _NotComputableError

        by = pa.scalar(divisor, pa.int64())
        return _Value("integer", lambda rows: pc.remainder(left.compute(rows), by), wide=left.wide)

    def _sum(self, node: Node, left: _Value, right: _Value) -> _Value:
        compute = getattr(pc, _SUMS[node["function_name"]])
        if left.kind == right.kind == "integer" and (left.wide or right.wide):
            return _Value("integer", lambda rows: compute(left.compute(rows), right.compute(rows)), wide=True)
        number = _exact_double(right)
        if left.kind != "double" or number is None:
            raise _NotComputableError
        return _Value("double", lambda rows: compute(left.compute(rows), number))


def _joined(join: Callable[[pa.BooleanArray, pa.BooleanArray], pa.BooleanArray], parts: list[Mask]) -> Mask:
    def joined(rows: pa.RecordBatch) -> pa.BooleanArray:
        verdicts = parts[0](rows)
        for part in parts[1:]:
            verdicts = join(verdicts, part(rows))
        return verdicts

    return joined


def _null_where_null(mask: pa.BooleanArray, values: pa.Array) -> pa.BooleanArray:
    return pc.replace_with_mask(mask, pc.is_null(values), pa.scalar(None, pa.bool_())) if values.null_count else mask


def _exact_double(value: _Value) -> pa.Scalar | None:
    number = value.constant
    exact = isinstance(number, int) and abs(number) < _DOUBLE_EXACT
    return pa.scalar(float(number), pa.float64()) if exact and number is not None else None
