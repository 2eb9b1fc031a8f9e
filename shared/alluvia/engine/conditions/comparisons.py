"""`column op constant` in pruning's terms: never narrower than what DuckDB computes. Pure but for casting literals.

DuckDB casts both sides to one type before it compares. Where that cast is exact, or rounds in a way that cannot bring a
row in, the comparison is passed on; where it may, it becomes a wider one, or `Unknown`:

* A number compared with an integer column is exact, but a floating-point one turns the column's values into floating
  point: beyond 2^53 (2^24 for FLOAT) neighbours fall together, so such constants are left out.
* A decimal column compared with a floating-point number is rounded to one: left out.
* A floating-point column is compared in its own type or in DOUBLE, with the constant rounded: the constant's
  neighbourhood is widened. NaN sorts above every number; pruning itself (`delta.skipping.pruning`) keeps a file of
  floating-point numbers for `>`, `>=` and `!=`, since statistics leave NaN out.
* A date column compared with a timestamp becomes one with that timestamp's day.
"""

from __future__ import annotations

import math
import sys
from datetime import date, datetime
from decimal import Decimal
from typing import cast

import pyarrow as pa

from alluvia.delta.schema.types import is_zoned
from alluvia.delta.skipping.predicate import And, Comparison, Operator, Predicate, Unknown
from alluvia.engine.conditions.constants import Constant, Constants, moment_us
from alluvia.engine.conditions.operands import Operand, is_midnight, to_date, to_datetime, truncate, year_us

FLIPPED: dict[str, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
NEGATED: dict[str, Operator] = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_FLOAT_EXACT_BITS = {"float": 24, "double": 53}


def compare(operand: Operand, op: Operator, constant: Constant, constants: Constants) -> Predicate:
    """Return a necessary condition for `operand op constant`."""
    value = _typed(operand, constant, constants)
    if value is None:
        return Unknown()
    try:
        if operand.is_year:
            return _compare_year(operand, op, value)
        if operand.unit is not None:
            return _compare_unit(operand, op, moment_us(value))
        if pa.types.is_timestamp(operand.kind) or pa.types.is_date32(operand.kind):
            return _compare_moment(operand, op, moment_us(value))
    except (OverflowError, ValueError):
        return Unknown()
    return _compare_value(operand, op, value)


def family(constant: Constant) -> str:
    """Return a name that constants share if comparing with one cannot change how another is compared."""
    if constant.value is None:
        return "literal"
    kind = constant.value.type
    return "exact number" if pa.types.is_integer(kind) or pa.types.is_decimal(kind) else str(kind)


def _typed(operand: Operand, constant: Constant, constants: Constants) -> pa.Scalar | None:
    if constant.literal is None:
        return constant.value
    if operand.is_year or operand.literal_type is None:
        return None
    if pa.types.is_string(operand.kind):
        return pa.scalar(constant.literal)
    values = constants.cast([constant.literal], operand.literal_type)
    return values[0] if values else None


def _compare_value(operand: Operand, op: Operator, value: pa.Scalar) -> Predicate:
    kind, given = operand.kind, value.type
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        if pa.types.is_integer(given) or pa.types.is_decimal(given):
            return Comparison(operand.column, op, value.as_py())
        return _compare_integer_with_float(operand, op, value) if pa.types.is_integer(kind) else Unknown()
    if pa.types.is_floating(kind):
        return _compare_float(operand, op, value)
    if pa.types.is_boolean(kind) and pa.types.is_boolean(given) and op in ("=", "!="):
        return Comparison(operand.column, op, value.as_py())
    if (pa.types.is_string(kind) and pa.types.is_string(given)) or (
        pa.types.is_binary(kind) and pa.types.is_binary(given)
    ):
        return Comparison(operand.column, op, value.as_py())
    return Unknown()


def _compare_integer_with_float(operand: Operand, op: Operator, value: pa.Scalar) -> Predicate:
    bits = _FLOAT_EXACT_BITS.get(str(value.type))
    number = value.as_py()
    if bits is None or not math.isfinite(number) or abs(number) >= 1 << bits:
        return Unknown()
    return Comparison(operand.column, op, number)


def _compare_float(operand: Operand, op: Operator, value: pa.Scalar) -> Predicate:
    given = value.type
    if not (pa.types.is_integer(given) or pa.types.is_decimal(given) or pa.types.is_floating(given)) or op == "!=":
        return Unknown()
    number = cast("int | float | Decimal", value.as_py())
    try:
        middle = float(number)
    except OverflowError:
        return Unknown()
    if not math.isfinite(middle):
        return Unknown()
    margin = 0.0 if _is_exact(operand.kind, given, middle) else _rounding(middle, operand.kind)
    low, high = middle - margin, middle + margin
    if op == "=" and margin:
        return And((Comparison(operand.column, ">=", low), Comparison(operand.column, "<=", high)))
    return Comparison(operand.column, op, high if op.startswith("<") else low)


def _is_exact(kind: pa.DataType, given: pa.DataType, number: float) -> bool:
    if not pa.types.is_float64(kind):
        return False
    return pa.types.is_float64(given) or (pa.types.is_integer(given) and abs(number) < 1 << 53)


def _rounding(number: float, kind: pa.DataType) -> float:
    """Return more than what rounding to the column's type can move a number by."""
    if pa.types.is_float64(kind):
        return abs(number) * sys.float_info.epsilon * 4 + sys.float_info.min
    return abs(number) * 2.0**-21 + 2.0**-120


def _compare_moment(operand: Operand, op: Operator, at_us: int | None) -> Predicate:
    if at_us is None:
        return Unknown()
    if pa.types.is_date32(operand.kind) and not is_midnight(at_us):
        # The day's own midnight is below the constant, the next one above.
        if op == "!=":
            return Unknown()
        op = cast("Operator", {"<": "<=", ">=": ">"}.get(op, op))
    return Comparison(operand.column, op, _moment(operand.kind, at_us))


def _moment(kind: pa.DataType, at_us: int) -> date | datetime:
    if pa.types.is_date32(kind):
        return to_date(at_us)
    return to_datetime(at_us) if is_zoned(kind) else to_datetime(at_us).replace(tzinfo=None)


def _compare_unit(operand: Operand, op: Operator, at_us: int | None) -> Predicate:
    """Compare the start of the unit that a column's time is in with a constant: a range of the column itself."""
    if at_us is None or op == "!=" or operand.unit is None:
        return Unknown()
    start, following = truncate(at_us, operand.unit)
    is_start = start == at_us
    if op == "=":
        bounds: list[tuple[Operator, int]] = [(">=", start), ("<", following)]
    elif op == "<":
        bounds = [("<", start if is_start else following)]
    elif op == "<=":
        bounds = [("<", following)]
    else:
        bounds = [(">=", start if is_start and op == ">=" else following)]
    comparisons = tuple(_compare_moment(operand, bound_op, bound_us) for bound_op, bound_us in bounds)
    return comparisons[0] if len(comparisons) == 1 else And(comparisons)


def _compare_year(operand: Operand, op: Operator, value: pa.Scalar) -> Predicate:
    if not pa.types.is_integer(value.type):
        return Unknown()
    return _compare_unit(operand, op, year_us(value.as_py()))
