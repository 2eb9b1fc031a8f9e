"""A condition in the library's SQL as a filter of a DataFrame: the same rows, whatever the session's dialect and zone.

The part of a condition that pruning understands becomes an expression of Spark's, by which Parquet row groups are
skipped. Where that is all that the condition says, it is the filter; else the rows that are left go through the
condition itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache, reduce
from operator import and_, or_

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark knows it
from pyspark.sql.types import DataType, TimestampType

from alluvia.delta.schema.names import ColumnPath
from alluvia.delta.skipping.predicate import (
    And,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Or,
    Predicate,
    Unknown,
    columns_of,
)
from alluvia.engine.conditions.condition import Condition, condition
from alluvia.engine.conditions.fast_parser import plain_condition
from alluvia.engine.queries.parse import Node
from alluvia.errors import Unsupported
from alluvia_spark.frames import spare_later_tasks

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = re.compile(r"\w+", re.ASCII)


@dataclass(frozen=True)
class RowFilter:
    """A condition on the rows of a table. `text` is the library's SQL. Raises `Invalid` if it is not a condition."""

    text: str
    schema: pa.Schema
    parsed: Condition

    @classmethod
    def of(cls, text: str, schema: pa.Schema) -> RowFilter:
        """Read a condition."""
        return cls(text, schema, condition(text, schema))

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the rows for which the condition holds."""
        native = expression(self.parsed.predicate)
        kept = rows if native is None else rows.where(native)
        if self._says_all:
            return kept
        return kept.where(self._mask())

    def _mask(self) -> Column:
        """Return what Python computes of a row: only the columns that the condition names go there."""
        if not hasattr(F, "arrow_udf"):
            raise Unsupported(f"where: {self.text!r} needs Spark 4.1, or filter the DataFrame with Spark's own SQL")
        names = list(self.parsed.columns) or self.schema.names[:1]
        shown = pa.schema([self.schema.field(name).with_nullable(True) for name in names])
        text, schema = self.text, self.schema

        def mask(*columns: pa.Array) -> pa.Array:
            arrays = [each.cast(field.type) for each, field in zip(columns, shown, strict=True)]
            return _parsed(text, schema).mask(pa.RecordBatch.from_arrays(arrays, schema=shown))

        computed = F.arrow_udf(mask, "boolean")
        computed_mask: Column = computed(*map(named, names))
        return computed_mask

    @property
    def _says_all(self) -> bool:
        """Whether the predicate holds for exactly the rows that the condition holds for: no part of it was left out."""
        tree, predicate = plain_condition(self.text), self.parsed.predicate
        kinds = [self.schema.field(path[0]).type for path in columns_of(predicate)]
        exact = not any(pa.types.is_floating(kind) or pa.types.is_nested(kind) for kind in kinds)
        return tree is not None and exact and _tests(tree) == _comparisons(predicate)


@lru_cache(maxsize=8)
def _parsed(text: str, schema: pa.Schema) -> Condition:
    spare_later_tasks()
    return condition(text, schema)


def _tests(node: Node) -> int:
    """Return how many comparisons with one constant, tests for null and boolean columns there are in a tree."""
    kind = node["type"]
    if kind.startswith("CONJUNCTION_") or kind == "OPERATOR_NOT":
        return sum(map(_tests, node["children"]))
    if kind == "COMPARE_BETWEEN":
        return 2
    return len(node["children"]) - 1 if kind in ("COMPARE_IN", "COMPARE_NOT_IN") else 1


def _comparisons(predicate: Predicate) -> int:
    if isinstance(predicate, (And, Or)):
        return sum(map(_comparisons, predicate.children))
    if isinstance(predicate, Unknown):
        return 0
    return len(predicate.values) if isinstance(predicate, In) else 1


def expression(predicate: Predicate) -> Column | None:
    """Return a predicate as an expression of Spark's; None for one that says nothing."""
    if isinstance(predicate, Unknown):
        return None
    if isinstance(predicate, And):
        parts = [part for child in predicate.children if (part := expression(child)) is not None]
        return reduce(and_, parts) if parts else None
    if isinstance(predicate, Or):
        either = [expression(child) for child in predicate.children]
        known = [part for part in either if part is not None]
        return reduce(or_, known) if len(known) == len(either) else None
    column = named(predicate.column)
    if isinstance(predicate, IsNull):
        return column.isNull()
    if isinstance(predicate, IsNotNull):
        return column.isNotNull()
    if isinstance(predicate, In):
        return column.isin(*map(literal, predicate.values))
    return _compared(column, predicate)


def _compared(column: Column, predicate: Comparison) -> Column:
    value = literal(predicate.value)
    match predicate.op:
        case "=":
            return column == value
        case "!=":
            return column != value
        case "<":
            return column < value
        case "<=":
            return column <= value
        case ">":
            return column > value
        case ">=":
            return column >= value


def named(path: ColumnPath | str) -> Column:
    """Return a column, or a field of one, by its exact name."""
    return F.col(quoted(path))


def quoted(path: ColumnPath | str) -> str:
    """Return the exact name of a column, or of a field of one, as SQL has it."""
    parts = (path,) if isinstance(path, str) else path
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def literal(value: object) -> Column:
    """Return a constant of a predicate; times do not depend on the session's zone."""
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return F.timestamp_micros(F.lit((value - _EPOCH) // timedelta(microseconds=1)))
        return F.lit(value.isoformat(sep=" ")).cast("timestamp_ntz")
    if isinstance(value, date):
        return F.lit(value.isoformat()).cast("date")
    return F.lit(value)


def constant(value: object, kind: DataType) -> str:
    """Return a constant of a type without fields as SQL, in which no text of the value's stands as it is."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return f"timestamp_micros({(value - _EPOCH) // timedelta(microseconds=1)})"
    if value is None or isinstance(value, bytes):
        text = "NULL" if value is None else f"X'{value.hex()}'"
    else:
        text = _hex(value.isoformat(sep=" ") if isinstance(value, datetime) else str(value))
    return converted(text, kind)


def converted(sql: str, kind: DataType) -> str:
    """Return an expression in a type without fields, whatever the session takes `timestamp` for."""
    return f"CAST({sql} AS {'timestamp_ltz' if isinstance(kind, TimestampType) else kind.simpleString()})"


def identifier(name: str) -> str:
    """Return the exact name of a column as SQL, in which a session can replace nothing, nor read it as a pattern."""
    return quoted(name) if is_plain(name) else f"IDENTIFIER({_hex(quoted(name))})"


def is_plain(name: str) -> bool:
    """Whether a name has nothing that any session gives a meaning: some replace `${x}` even in quotes."""
    return _PLAIN.fullmatch(name) is not None


def _hex(text: str) -> str:
    return f"CAST(X'{text.encode().hex()}' AS STRING)"
