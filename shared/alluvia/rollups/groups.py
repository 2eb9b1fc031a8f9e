"""The groups of a rollup that a change touches: their keys, and what can be said of those to leave out files.

The query itself tells them: over the rows that were inserted and deleted it gives a row for each group of theirs. Those
rows go to a file, since there can be many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from alluvia.duck.relation import quote_text
from alluvia.expressions.constants import Constants
from alluvia.expressions.parse import parse
from alluvia.expressions.predicates import table_predicate
from alluvia.expressions.scopes import Filter, Scope, table_item
from alluvia.expressions.tree import Node
from alluvia.operations.relations import LocalRows
from alluvia.rollups.definition import RollupQuery
from alluvia.table.scan import Scan
from alluvia.table.skipping.predicate import And, Comparison, IsNull, Or, Predicate, Unknown
from alluvia.table.snapshot import Snapshot

_BOUNDED = (int, str, date, datetime)
_CHARS_MAX = 1000


@dataclass(slots=True)
class Range:
    """The lowest and highest value of a key, None where there is none that can be compared; whether one is null."""

    low: Any = None
    high: Any = None
    nulls: bool = False
    known: bool = True

    def widen(self, values: pa.Array) -> None:
        """Take in more values."""
        self.nulls = self.nulls or values.null_count > 0
        if pa.types.is_floating(values.type) or pa.types.is_nested(values.type) or pa.types.is_binary(values.type):
            self.known = False
        if not self.known or values.null_count == len(values):
            return
        found = pc.min_max(values)
        try:
            low, high = found["min"].as_py(), found["max"].as_py()
        except (ValueError, OverflowError):  # a time that Python has not
            self.known = False
            return
        if not isinstance(low, _BOUNDED) or (isinstance(low, str) and len(low) + len(high) > _CHARS_MAX):
            self.known = False
            return
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows of touched groups, one each: `rows` is their file, `count` their number, `ranges` those of the keys."""

    rows: LocalRows
    count: int = 0
    ranges: Mapping[str, Range] = field(default_factory=dict)

    def in_rollup(self, rollup: Snapshot) -> Scan:
        """Return a scan of the rollup's files that can hold the groups."""
        parts: list[Predicate] = []
        for name, values in self.ranges.items():
            either: list[Predicate] = [IsNull((name,))] if values.nulls else []
            if values.low is not None:
                either.append(And((Comparison((name,), ">=", values.low), Comparison((name,), "<=", values.high))))
            if values.known and either:
                parts.append(either[0] if len(either) == 1 else Or(tuple(either)))
        return Scan(rollup, And(tuple(parts)) if parts else Unknown())

    def in_source(self, query: RollupQuery, source: Snapshot, columns: Sequence[str], names: Sequence[str]) -> Scan:
        """Return a scan of the source's files that can hold the groups' rows.

        `columns` are those of the source that the query sees, and `names` the rollup's.
        """
        conditions = []
        for name, values in self.ranges.items():
            condition = _condition(values)
            if condition is not None:
                conditions.append(_about(condition, query.root["select_list"][names.index(name)]))
        return scan_of(query, source, columns, conditions)


def write_groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema, keys: Sequence[str], path: Path) -> Groups:
    """Write groups, of columns in the order of `schema`, to a file."""
    schema = pa.schema([column.with_nullable(True) for column in schema])
    count, ranges = 0, {key: Range() for key in keys}
    with pq.ParquetWriter(path, schema, store_schema=False) as writer:
        for batch in batches:
            rows = pa.RecordBatch.from_arrays(
                [column.cast(kind.type) for column, kind in zip(batch.columns, schema, strict=True)], schema=schema
            )
            for key, values in ranges.items():
                values.widen(rows[key])
            count += len(rows)
            writer.write_batch(rows)
    return Groups(LocalRows(path, schema), count, ranges)


def scan_of(query: RollupQuery, source: Snapshot, columns: Sequence[str], conditions: Sequence[Node] = ()) -> Scan:
    """Return a scan of the files that the query needs, of rows for which some conditions hold besides its own.

    `columns` are those of the source that the query sees.
    """
    schema = pa.schema([source.schema.field(name) for name in columns])
    scope = Scope((table_item(query.table, schema),), frozenset())
    own = query.root["where_clause"]
    filters = [Filter(node, scope) for node in (*([] if own is None else [own]), *conditions)]
    return Scan(source, table_predicate(query.table, filters, schema, Constants(0)))


def _condition(values: Range) -> Node | None:
    """Return a condition on a column `k` that holds for every value of a range."""
    if not values.known:
        return None
    parts = ["k IS NULL"] if values.nulls else []
    if values.low is not None:
        parts.append(f"k BETWEEN {_literal(values.low)} AND {_literal(values.high)}")
    if not parts:
        return None
    found: Node = parse(f"SELECT k FROM t WHERE {' OR '.join(parts)}").root["where_clause"]  # noqa: S608
    return found


def _literal(value: Any) -> str:
    if isinstance(value, bool | int):
        return str(value).lower()
    if isinstance(value, str):
        return quote_text(value)
    kind = "DATE" if not isinstance(value, datetime) else "TIMESTAMPTZ" if value.tzinfo else "TIMESTAMP"
    return f"CAST({quote_text(value.isoformat(' ') if isinstance(value, datetime) else value.isoformat())} AS {kind})"


def _about(condition: Node, key: Node) -> Node:
    """Put a key's expression in the place of the column of a condition."""

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            if value.get("class") == "COLUMN_REF":
                return {**key, "alias": ""}
            return {name: replaced(child) for name, child in value.items()}
        return [replaced(child) for child in value] if isinstance(value, list) else value

    found: Node = replaced(condition)
    return found


def range_sql(ranges: Mapping[str, Range], quoted: Mapping[str, str]) -> list[str]:
    """Return conditions for DuckDB to leave rows out by; `quoted` are the keys as SQL has them."""
    return [
        f"{quoted[name]} BETWEEN {_literal(values.low)} AND {_literal(values.high)}"
        for name, values in ranges.items()
        if values.known and not values.nulls and values.low is not None
    ]
