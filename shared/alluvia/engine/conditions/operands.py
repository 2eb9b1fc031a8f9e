"""What a condition compares: a column of a table, or the day, month or other unit of a time column. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa

from alluvia.delta.schema.names import ColumnPath, fold
from alluvia.delta.schema.types import is_zoned
from alluvia.engine.duck.relation import duckdb_type
from alluvia.engine.queries.parse import Node, text_literal
from alluvia.engine.queries.references import Reference
from alluvia.engine.queries.scopes import Item, Scope
from alluvia.lazy_dataclasses import dataclass

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_US = 86_400_000_000
_FIXED_US = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": _DAY_US}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
UNITS = frozenset({*_FIXED_US, *_MONTHS, "week"})


def truncate(at_us: int, unit: str) -> tuple[int, int]:
    """Return the start of the unit that a moment is in, and the start of the next.

    Raises `OverflowError` or `ValueError` outside the years 1 to 9999.
    """
    if unit in _FIXED_US:
        start = at_us - at_us % _FIXED_US[unit]
        return start, start + _FIXED_US[unit]
    moment = to_datetime(at_us)
    if unit == "week":
        day = at_us // _DAY_US - moment.weekday()
        return day * _DAY_US, (day + 7) * _DAY_US
    step = _MONTHS[unit]
    first = (moment.month - 1) // step * step
    return _month_us(moment.year, first), _month_us(moment.year, first + step)


def _month_us(year: int, months: int) -> int:
    start = datetime(year + months // 12, months % 12 + 1, 1, tzinfo=UTC)
    return (start - _EPOCH) // timedelta(microseconds=1)


def year_us(year: int) -> int:
    """Return the start of a year."""
    return _month_us(year, 0)


def to_datetime(at_us: int) -> datetime:
    """Return an aware UTC datetime. Raises `OverflowError` outside the years 1 to 9999."""
    return _EPOCH + timedelta(microseconds=at_us)


def to_date(at_us: int) -> date:
    """Return the day that a moment is in. Raises `OverflowError` outside the years 1 to 9999."""
    return to_datetime(at_us).date()


def is_midnight(at_us: int) -> bool:
    """Whether a day starts at a moment."""
    return at_us % _DAY_US == 0


_NAMED_BY_DUCKDB = ("unnamed_", "__unnamed_")
"""So begin the names of entries of FROM that the query gives no name."""
_WHOLE_DAYS = ("day", "week", "month", "quarter", "year")


@dataclass(frozen=True, slots=True)
class Operand:
    """A column, by its path and type, or its time cut down to `unit`; `is_year` when only the year's number is left.

    `literal_type` is the DuckDB type that a text literal takes when it is compared with this.
    """

    column: ColumnPath
    kind: pa.DataType
    literal_type: str | None
    unit: str | None = None
    is_year: bool = False


@dataclass(frozen=True, slots=True)
class ColumnFinder:
    """Finds the columns of one table, which has a schema, among the names of a scope."""

    target: Reference
    scope: Scope
    schema: pa.Schema
    _found: dict[tuple[str, ...], Operand | None] = field(default_factory=dict, compare=False, repr=False)

    def operand(self, node: Node) -> Operand | None:
        """Return what an expression is of the table's, or None if it is anything else."""
        kind = node["class"]
        if kind == "COLUMN_REF":
            names = tuple(node["column_names"])
            if names not in self._found:
                self._found[names] = self._column(names)
            return self._found[names]
        if node["type"] == "ARRAY_EXTRACT":
            return self._field(node["children"])
        if kind == "CAST":
            return _cast(self.operand(node["child"]), node["cast_type"]["id"])
        if kind == "FUNCTION":
            return self._function(fold(node["function_name"]), node["children"])
        return None

    def _function(self, name: str, children: list[Node]) -> Operand | None:
        if name == "year" and len(children) == 1:
            return _year(self.operand(children[0]))
        if len(children) != 2:
            return None
        if name == "struct_extract":
            return self._field(children)
        unit = fold(text_literal(children[0]) or "")
        if name in ("date_part", "datepart") and unit == "year":
            return _year(self.operand(children[1]))
        if name in ("date_trunc", "datetrunc"):
            return _truncated(self.operand(children[1]), unit)
        return None

    def _field(self, children: list[Node]) -> Operand | None:
        parent, name = self.operand(children[0]), text_literal(children[1])
        if parent is None or parent.unit or parent.is_year or name is None:
            return None
        return _descend(parent, [name])

    def _column(self, names: Sequence[str]) -> Operand | None:
        first = fold(names[0])
        named = [item for item in self.scope.items if item.alias == first]
        if len(names) > 1 and named:
            return self._of_item(named[0], names[1:]) if len(named) == 1 else None
        if len(names) > 1 and first.startswith(_NAMED_BY_DUCKDB):
            return None
        if self.scope.merged is None or first in self.scope.merged:
            return None
        owners = [item for item in self.scope.items if item.has(first)]
        return self._of_item(owners[0], names) if len(owners) == 1 else None

    def _of_item(self, item: Item, names: Sequence[str]) -> Operand | None:
        name = fold(names[0])
        if not item.has(name):
            return None
        if item.derived is not None:
            inside = ColumnFinder(self.target, item.derived.scope, self.schema)
            operand = inside.operand(item.derived.columns[name])
            return operand if operand is None or len(names) == 1 else _descend(operand, names[1:])
        if item.reference is not self.target:
            return None
        column = item.names[name]
        return _descend(plain_operand((column,), self.schema.field(column).type), names[1:])


def _descend(operand: Operand, names: Sequence[str]) -> Operand | None:
    column, kind = operand.column, operand.kind
    if names and operand.unit is not None:
        return None
    for name in names:
        if not pa.types.is_struct(kind):
            return None
        field = next((one for one in kind if fold(one.name) == fold(name)), None)
        if field is None:
            return None
        column, kind = (*column, field.name), field.type
    return plain_operand(column, kind)


def plain_operand(column: ColumnPath, kind: pa.DataType) -> Operand:
    """Return a column as it is."""
    nested = pa.types.is_nested(kind) or pa.types.is_null(kind)
    return Operand(column, kind, None if nested else duckdb_type(kind))


def _is_time(operand: Operand | None) -> bool:
    return (
        operand is not None
        and not operand.is_year
        and operand.unit is None
        and (pa.types.is_timestamp(operand.kind) or pa.types.is_date32(operand.kind))
    )


def _cast(operand: Operand | None, target: str) -> Operand | None:
    """A cast of a time to DATE cuts it to the day; one between the timestamps, in UTC, changes nothing."""
    if operand is None or operand.is_year:
        return None
    if target == "DATE" and operand.unit in _WHOLE_DAYS:
        return replace(operand, literal_type="DATE")
    if not _is_time(operand):
        return None
    if target == "DATE":
        return replace(operand, literal_type="DATE", unit="day")
    return replace(operand, literal_type=target) if target in ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE") else None


def _truncated(operand: Operand | None, unit: str) -> Operand | None:
    if operand is None or not _is_time(operand) or unit not in UNITS:
        return None
    if pa.types.is_date32(operand.kind) and unit not in _WHOLE_DAYS:
        return (
            None  # DuckDB's optimizer gets a date cut to the hour wrong; with its rows left out, the error would vary
        )
    return replace(operand, literal_type="TIMESTAMPTZ" if is_zoned(operand.kind) else "TIMESTAMP", unit=unit)


def _year(operand: Operand | None) -> Operand | None:
    return replace(operand, unit="year", is_year=True) if operand is not None and _is_time(operand) else None
