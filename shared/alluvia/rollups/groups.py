"""The groups of a rollup that a change touches: their keys, and what can be said of those to leave out files.

The query itself tells them: over the rows that were inserted and deleted it gives a row for each group of theirs. Those
rows go to a file, since there can be many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field
from datetime import date, datetime
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.arrow_parquet import pq
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.skipping.predicate import And, Comparison, IsNull, Or, Predicate, Unknown
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.constants import Constants
from alluvia.engine.conditions.predicates import table_predicate
from alluvia.engine.duck.literals import quote_text
from alluvia.engine.queries.parse import Node, parse
from alluvia.engine.queries.scopes import Filter, Scope, table_item
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.reading.relations import LocalRows
from alluvia.rollups.definition import RollupQuery

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
        bounds = pc.min_max(values)
        try:
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
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

    @property
    def in_rollup(self) -> Predicate:
        """Return what the rollup's rows of the groups meet."""
        parts: list[Predicate] = []
        for name, values in self.ranges.items():
            either: list[Predicate] = [IsNull((name,))] if values.nulls else []
            if values.low is not None:
                either.append(And((Comparison((name,), ">=", values.low), Comparison((name,), "<=", values.high))))
            if values.known and either:
                parts.append(either[0] if len(either) == 1 else Or(tuple(either)))
        return And(tuple(parts)) if parts else Unknown()

    def in_source(self, query: RollupQuery, source: Snapshot, columns: Sequence[str], names: Sequence[str]) -> Scan:
        """Return a scan of the source's files that can hold the groups' rows.

        `columns` are those of the source that the query sees, and `names` the rollup's.
        """
        conditions = []
        for name, values in self.ranges.items():
            condition = range_condition(values)
            if condition is not None:
                conditions.append(replaced_column(condition, query.root["select_list"][names.index(name)]))
        return scan_of(query, source, columns, conditions)


@dataclass(frozen=True, slots=True)
class Touched:
    """The groups that a change touches: those to compute again, and those to fold the rows of into what there is."""

    recomputed: Groups
    folded: Groups

    @property
    def count(self) -> int:
        """Return the number of groups."""
        return self.recomputed.count + self.folded.count

    def in_rollup(self, rollup: Snapshot) -> Scan:
        """Return a scan of the rollup's files that can hold the groups."""
        parts = tuple(groups.in_rollup for groups in (self.recomputed, self.folded) if groups.count)
        return Scan(rollup, parts[0] if len(parts) == 1 else Or(parts))


def write_touched(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, keys: Sequence[str], path: Callable[[str], Path]
) -> Touched:
    """Write groups to files. Batches have columns in the order of `schema`, and last whether to compute them again."""
    with ExitStack() as stack:
        recomputed, folded = (
            stack.enter_context(_GroupWriter(schema, keys, path(name))) for name in ("recomputed", "folded")
        )
        for batch in batches:
            again = pc.equal(batch.column(batch.num_columns - 1), pa.scalar(value=True))
            recomputed.write(batch.filter(again))
            folded.write(batch.filter(pc.invert(again)))
        return Touched(recomputed.groups(), folded.groups())


def write_groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema, path: Path) -> Groups:
    """Write groups, whose columns are their keys alone, to a file."""
    with _GroupWriter(schema, schema.names, path) as writer:
        for batch in batches:
            writer.write(batch)
    return writer.groups()


class _GroupWriter:
    """Writes groups to a file, in a `with` block."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], path: Path) -> None:
        self._schema = pa.schema([column.with_nullable(True) for column in schema])
        self._path = path
        self._count = 0
        self._ranges = {key: Range() for key in keys}

    def __enter__(self) -> Self:
        self._writer = pq.ParquetWriter(self._path, self._schema, store_schema=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        arrays = [column.cast(kind.type) for column, kind in zip(batch.columns, self._schema, strict=False)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        for key, values in self._ranges.items():
            values.widen(rows[key])
        self._count += len(rows)
        self._writer.write_batch(rows)

    def groups(self) -> Groups:
        return Groups(LocalRows(self._path, self._schema), self._count, self._ranges)


def scan_of(query: RollupQuery, source: Snapshot, columns: Sequence[str], conditions: Sequence[Node] = ()) -> Scan:
    """Return a scan of the files that the query needs, of rows for which some conditions hold besides its own.

    `columns` are those of the source that the query sees.
    """
    schema = pa.schema([source.schema.field(name) for name in columns])
    scope = Scope((table_item(query.table, schema),), frozenset())
    own = query.root["where_clause"]
    filters = [Filter(node, scope) for node in (*([] if own is None else [own]), *conditions)]
    return Scan(source, table_predicate(query.table, filters, schema, Constants(0)))


def range_condition(values: Range) -> Node | None:
    """Return a condition on a column `k` that holds for every value of a range."""
    if not values.known:
        return None
    parts = ["k IS NULL"] if values.nulls else []
    if values.low is not None:
        parts.append(f"k BETWEEN {_literal(values.low)} AND {_literal(values.high)}")
    if not parts:
        return None
    condition: Node = parse(f"SELECT k FROM t WHERE {' OR '.join(parts)}").root["where_clause"]  # noqa: S608
    return condition


def _literal(value: Any) -> str:
    if isinstance(value, bool | int):
        return str(value).lower()
    if isinstance(value, str):
        return quote_text(value)
    kind = "DATE" if not isinstance(value, datetime) else "TIMESTAMPTZ" if value.tzinfo else "TIMESTAMP"
    return f"CAST({quote_text(value.isoformat(' ') if isinstance(value, datetime) else value.isoformat())} AS {kind})"


def replaced_column(condition: Node, key: Node) -> Node:
    """Put a key's expression in the place of the column of a condition."""

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            if value.get("class") == "COLUMN_REF":
                return {**key, "alias": ""}
            return {name: replaced(child) for name, child in value.items()}
        return [replaced(child) for child in value] if isinstance(value, list) else value

    about: Node = replaced(condition)
    return about


def range_sql(ranges: Mapping[str, Range], quoted: Mapping[str, str]) -> list[str]:
    """Return conditions for DuckDB to leave rows out by; `quoted` are the keys in SQL."""
    return [
        f"{quoted[name]} BETWEEN {_literal(values.low)} AND {_literal(values.high)}"
        for name, values in ranges.items()
        if values.known and not values.nulls and values.low is not None
    ]
