"""Random rows of a table, by which a merge query is tried: few values each, so that keys repeat and tie. Pure.

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

from alluvia.delta.schema.types import is_zoned
from alluvia.engine.queries.parse import Node, is_constant, walk

LITERALS_MAX = 8
_NULL_SHARES = (0.0, 0.2, 0.5)
_SUMMED = 128
"""A number is used only if a sum of this many still fits its column."""
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
        values = [value["value"] for value in literals][:LITERALS_MAX]
        self._pools = [_pool(field.type, values) for field in schema]

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
