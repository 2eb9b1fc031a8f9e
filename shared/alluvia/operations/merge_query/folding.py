"""Folding: what a table's merge query (`alluvia.merge_query`) makes of its rows, in optimize and when they are read.

What is folded is dropped and added in one commit, and the query gives the same over rows and over folded rows, so
`<table>_final` does not depend on what was folded when. Only a table with a merge query loads DuckDB for it.

The values come from small sets, with null where a column allows it, and with the numbers, texts and times that the
query itself names and their neighbours, since that is where its conditions change their mind.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from alluvia.delta.arguments import check_names
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import Metadata
from alluvia.delta.properties import MERGE_QUERY, read_properties
from alluvia.delta.schema.types import is_zoned
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.queries.parse import Node, is_constant, walk
from alluvia.errors import Invalid
from alluvia.operations.reading.relations import Evaluate, Files, Relation

FINAL = "_final"
"""What a query adds to a table's name for its rows as the merge query folds them."""


def check_declared(metadata: Metadata, own: Callable[[], pa.Table | None] = lambda: None) -> None:
    """Raise `Invalid` for a merge query that a table cannot have; `own` returns some of its rows."""
    if read_properties(metadata.configuration).merge_query:
        from alluvia.operations.merge_query.merge_query_checks import check_merge_query

        check_merge_query(metadata, own())


def check_edit(snapshot: Snapshot, what: str, columns: Sequence[str] | None) -> None:
    """Raise `Invalid` for an edit of a table with a merge query whose outcome would depend on what was merged.

    `columns` are those that decide which rows are deleted; None for an edit that does more than delete.
    """
    if not snapshot.settings.merge_query:
        return
    keys = fold_keys(snapshot)
    if columns is None:
        raise Invalid(
            f"{what}: table {snapshot.name} has a merge query, so rows may have been merged already: "
            f"append new rows, which {MERGE_QUERY} folds with those that are there"
        )
    other = next((name for name in columns if name not in keys), None)
    if other is not None:
        raise Invalid(
            f"{what}: rows of {snapshot.name} may have been merged already, and {other} may have other values since: "
            f"use only columns that its merge query keeps, which are {', '.join(keys) or 'none'}"
        )


def fold_keys(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the columns that rows must share to be folded together, and that the folded row has unchanged."""
    from alluvia.engine.queries.merge_query import read_merge_query

    return read_merge_query(snapshot.settings.merge_query).keys(snapshot.schema)


def folded(read: Files, prefix: str = "") -> Relation:
    """Return the rows of some files of a table, folded; the names of its inputs and views begin with `prefix`."""
    from alluvia.engine.queries.merge_query import read_merge_query

    source, query = f"{prefix}source", read_merge_query(read.snapshot.settings.merge_query)
    schema = read.snapshot.schema
    return Relation({source: read}, {f"{prefix}folded": query.folded(source, schema)}, query.keys(schema))


def final(
    snapshot: Snapshot, evaluate: Evaluate, columns: Sequence[str] | None = None, where: str | None = None
) -> pa.Table:
    """Return the folded rows of a version for which an SQL condition holds, the columns asked for in that order.

    Only files are read that can hold such rows, by the condition's part on columns that folding keeps. Raises `Invalid`
    for a table without a merge query, an unknown column, or if `where` is not a condition.
    """
    if not snapshot.settings.merge_query:
        raise Invalid(f"table {snapshot.name} has no {MERGE_QUERY}: read it with scan(…)")
    if columns is not None:
        check_names("columns", columns)
    wanted = Scan(snapshot, columns=columns).schema
    relation = folded(Files(snapshot, list(snapshot.files)))
    matching: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    if where is not None:
        from alluvia.engine.conditions.condition import condition

        parsed = condition(where, snapshot.schema)
        relation, matching = relation.narrowed(parsed.predicate), parsed.filter

    def take(_: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
        schema = pa.schema([field.with_nullable(True) for field in snapshot.schema])
        tables = [pa.Table.from_batches([batch]).cast(schema) for batch in batches]
        rows = pa.concat_tables([schema.empty_table(), *tables])
        kept = rows if matching is None else pa.Table.from_batches(map(matching, rows.to_batches()), schema)
        return kept.select(wanted.names).cast(wanted)

    return evaluate(relation, take)


LITERALS_MAX = 8
_NULL_SHARES = (0.0, 0.2, 0.5)
_SUMMED = 128
"""A number is used only if a sum of so many still fits its column."""
_DAY = datetime(2026, 1, 30, 12, tzinfo=UTC)
_FLOATS = (0.1, 0.2, 0.3, -2.5, 1e16, float("nan"))
_TEXTS = ("", "a", "A", " a", "ab", "B", "7", *"bcdefghijklmnopqrstuvwxyz")
_BYTES = (b"a", b"\x00", b"")
_STEPS = (timedelta(0), timedelta(minutes=1), timedelta(hours=20), timedelta(days=3), timedelta(days=40))


class Samples:
    """Makes rows of a schema: many values of the columns that are `keys`, and few of the others.

    `root` is the query's tree, and `own` are rows that the table has, if any.
    """

    def __init__(self, schema: pa.Schema, root: Node, keys: Collection[str] = (), own: pa.Table | None = None) -> None:
        self._schema = schema
        self._chance = random.Random(1)
        self._keys = keys
        self._own = schema.empty_table() if own is None else own
        literals = [node["value"] for node in walk(root) if is_constant(node) and not node["value"]["is_null"]]
        found = [value["value"] for value in literals][:LITERALS_MAX]
        self._pools = [_pool(field.type, found) for field in schema]

    def rows(self, count: int, constant: Sequence[str] = ()) -> pa.Table:
        """Return some random rows that share the values of some columns."""
        columns = [
            self._column(field, pool, count, 1 if field.name in constant else count)
            for field, pool in zip(self._schema, self._pools, strict=True)
        ]
        return pa.table(columns, schema=self._schema)

    def _column(self, field: pa.Field, pool: Callable[[random.Random], Any], count: int, drawn: int) -> pa.Array:
        chance = self._chance
        number = chance.choice((4, 64)) if field.name in self._keys else chance.choice((2, 3, 5))
        few = [pool(chance) for _ in range(number)]
        nulls = chance.choice(_NULL_SHARES) if field.nullable else 0.0

        def value() -> Any:
            return None if chance.random() < nulls else chance.choice(few)

        values = [value() for _ in range(drawn)]
        return pa.array(values if drawn == count else values * count, field.type)

    def own_rows(self, count: int) -> pa.Table:
        """Return some rows that the table has; none where it has none."""
        start = self._chance.randrange(max(1, len(self._own)))
        return self._own.slice(start, count)


def _pool(kind: pa.DataType, literals: Sequence[Any]) -> Callable[[random.Random], Any]:
    """Return what draws a value of a type that is not null."""
    if pa.types.is_struct(kind):
        parts = [(field.name, _pool(field.type, literals)) for field in kind.fields]
        return lambda chance: {name: draw(chance) for name, draw in parts}
    if pa.types.is_map(kind):
        key, item = _pool(kind.key_type, literals), _pool(kind.item_type, literals)
        return lambda chance: [(key(chance), item(chance))]
    if pa.types.is_list(kind):
        element = _pool(kind.value_type, literals)
        return lambda chance: [element(chance) for _ in range(chance.randint(0, 2))]
    values = [*_plain(kind), *_near(kind, literals)]
    return lambda chance: chance.choice(values)


def _plain(kind: pa.DataType) -> Sequence[Any]:
    if pa.types.is_boolean(kind):
        return (True, False)
    if pa.types.is_integer(kind):
        return range(-1, 2) if kind.bit_width == 8 else [*range(-2, 5), *range(-10, 20, 3)]
    if pa.types.is_floating(kind):
        return _FLOATS
    if pa.types.is_decimal(kind):
        return [Decimal(number).scaleb(-kind.scale) for number in (-1, 0, 1)]
    if pa.types.is_string(kind):
        return _TEXTS
    if pa.types.is_binary(kind):
        return _BYTES
    return [_moment(kind, _DAY + step) for step in _STEPS]


def _moment(kind: pa.DataType, moment: datetime) -> date:
    if pa.types.is_date(kind):
        return moment.date()
    return moment if is_zoned(kind) else moment.replace(tzinfo=None)


def _near(kind: pa.DataType, literals: Sequence[Any]) -> Iterator[Any]:
    """Yield the literals that a column can hold, and what comes just before and after them."""
    for literal in literals:
        if pa.types.is_string(kind) and isinstance(literal, str):
            yield from (literal, literal + "a")
        elif pa.types.is_integer(kind) and isinstance(literal, int) and not isinstance(literal, bool):
            if abs(literal) * _SUMMED < 2 ** (kind.bit_width - 1):
                yield from (literal - 1, literal, literal + 1, -literal)
        elif pa.types.is_floating(kind) and isinstance(literal, (int, float)):
            yield float(literal)
        elif (pa.types.is_timestamp(kind) or pa.types.is_date(kind)) and isinstance(literal, str):
            with suppress(ValueError):
                moment = datetime.fromisoformat(literal).replace(tzinfo=UTC)
                yield from (_moment(kind, moment + timedelta(days=days)) for days in (-1, 0, 1))
