"""Prepared statements: a text that waits for the values of its parameters, which are bound and never part of it.

DuckDB knows a parameter's type once it has a value. JDBC asks before: its driver makes the columns that carry the
values from what the server says, and takes no number for a text. So a parameter has the type of the column that it is
compared with, assigned or inserted to, or the one that it is cast to; where nothing tells, it is a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.schema_names import name_of
from alluvia.engine.queries.tokens import Token, tokens_of
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog
from alluvia.query.permitted import visible_schema
from alluvia.sql.binding import parameter_names
from alluvia.sql.grammar.cursor import Cursor
from alluvia.sql.grammar.nodes import Insert
from alluvia.sql.grammar.statements import parse
from alluvia.sql.grammar.types import column_type
from alluvia.table_names import TABLE_NAME, lake_names

_COMPARED = frozenset(("=", "==", "<", ">", "<=", ">=", "<>", "!="))
_LIKE = frozenset(("like", "ilike"))
_COUNTED = frozenset(("limit", "offset"))
_BEFORE_TABLES = frozenset(("from", "join", "into", "table", "update", "using"))
_AFTER_TABLES = frozenset(("where", "on", "group", "order", "having", "limit", "select", "set", "values", "when"))
_SWAPPED_END = frozenset((")", ";", ",", "and", "or", ""))
Types = Mapping[str, pa.DataType]


def parameter_schema(text: str, catalog: Catalog) -> pa.Schema:
    """Return the parameters of a text, in the order in which they first come, with their types.

    Of tables, the catalog's are known that the text names, as far as the caller may see them.
    """
    try:
        tokens = tokens_of(text)
    except Invalid:  # a query that only DuckDB can read, which says what is wrong with it
        return pa.schema([])
    at = [number for number, token in enumerate(tokens) if token.kind == "parameter"]
    if not at:
        return pa.schema([])
    known, inserted = _columns(text, tokens, catalog), _inserted(text, catalog)
    kinds: dict[str, pa.DataType | None] = {}
    for count, number in enumerate(at, 1):
        token = tokens[number]
        name = text[token.start + 1 : token.end] or str(count)
        kinds[name] = kinds.get(name) or _type(text, tokens, number, known, inserted)
    return pa.schema([pa.field(name, kind or pa.string()) for name, kind in kinds.items()])


def _columns(text: str, tokens: Sequence[Token], catalog: Catalog) -> Types:
    """Return the types of the columns of the tables that a text names; none of a name that has several."""
    tables = catalog.readable(dict.fromkeys(_tables(text, tokens)))
    types: dict[str, set[pa.DataType]] = {}
    for snapshot in tables.values():
        for field in visible_schema(catalog, snapshot):
            types.setdefault(fold(field.name), set()).add(field.type)
    return {name: next(iter(kinds)) for name, kinds in types.items() if len(kinds) == 1}


def _tables(text: str, tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the lake's names of the tables that a text names, without those on branches."""
    listed = False
    for at, (before, token) in enumerate(pairwise(tokens), 1):
        if before.word in _BEFORE_TABLES or (listed and before.word == ","):
            listed = True
            parts, more = [fold(name_of(text, token))], at + 1
            while more + 1 < len(tokens) and tokens[more].word == "." and tokens[more + 1].kind in ("word", "quoted"):
                parts.append(fold(name_of(text, tokens[more + 1])))
                more += 2
            yield from filter(TABLE_NAME.fullmatch, lake_names(parts)[:1])
        elif token.kind == "word" and token.word in _AFTER_TABLES:
            listed = False


def _inserted(text: str, catalog: Catalog) -> Sequence[pa.DataType]:
    """Return the types of the columns that an INSERT of values fills, in its order; none for other statements."""
    with suppress(Invalid):
        nodes = [each.node for each in parse(text)]
        node = nodes[0] if len(nodes) == 1 else None
        if isinstance(node, Insert) and TABLE_NAME.fullmatch(node.table):
            snapshot = catalog.readable([node.table]).get(node.table)
            columns = (
                {} if snapshot is None else {fold(each.name): each.type for each in visible_schema(catalog, snapshot)}
            )
            names = list(columns) if node.columns is None else [fold(name) for name in node.columns]
            if node.is_values and all(name in columns for name in names):
                return [columns[name] for name in names]
    return ()


def _type(
    text: str, tokens: Sequence[Token], at: int, known: Types, inserted: Sequence[pa.DataType]
) -> pa.DataType | None:
    def word(number: int) -> str:
        return tokens[number].word if 0 <= number < len(tokens) else ""

    def column(number: int) -> pa.DataType | None:
        return known.get(name_of(text, tokens[number])) if 0 <= number < len(tokens) else None

    cast = at + 2 if word(at + 1) == "::" else at + 2 if word(at + 1) == "as" and word(at - 1) == "(" else None
    if cast is not None:
        with suppress(Invalid):
            cursor = Cursor(text, tokens)
            cursor.at = cast
            return column_type(cursor)
    before = word(at - 1)
    if before in _COMPARED:
        return column(at - 2)
    if word(at + 1) in _COMPARED and word(at + 3) in _SWAPPED_END:
        return column(at + 2)
    if before in _LIKE:
        return pa.string()
    if before in _COUNTED:
        return pa.int64()
    if before == "between":
        return column(at - 3 if word(at - 2) == "not" else at - 2)
    if before == "and" and word(at - 3) == "between":
        return column(at - 5 if word(at - 4) == "not" else at - 4)
    if before in ("(", ","):
        return _in_list(tokens, at, column, inserted)
    return None


def _in_list(
    tokens: Sequence[Token], at: int, column: Callable[[int], pa.DataType | None], inserted: Sequence[pa.DataType]
) -> pa.DataType | None:
    """Return the type of a value in a list: of IN, or of the values of an INSERT, by its place."""
    depth, place = 0, 0
    for number in range(at - 1, -1, -1):
        word = tokens[number].word
        if word in (")", "]", "}"):
            depth += 1
        elif word in ("(", "[", "{") and depth:
            depth -= 1
        elif word == "(":
            before = tokens[number - 1].word if number else ""
            if before == "in":
                negated = number > 1 and tokens[number - 2].word == "not"
                return column(number - 3 if negated else number - 2)
            if before in ("values", ",") and place < len(inserted):
                return inserted[place]
            return None
        elif word == "," and not depth:
            place += 1
    return None


SETS_MAX = 100_000
"""So many rows of values may be bound at once."""
VALUES_MAX = 1_000_000
"""In all rows and columns together, those within lists and structs included."""
VALUES_BYTES_MAX = 20 << 20
"""A request has half of that, so these are columns of the same bytes."""
_PLAIN = (
    *(pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary),
    *(pa.types.is_date, pa.types.is_timestamp, pa.types.is_time),
)
"""Types whose values take about as much in Python as they do on the wire. Those of others may repeat one for ever."""


@dataclass(slots=True)
class Prepared:
    """A statement, in the transaction of a handle if that is not empty, with the columns that it answers as a query.

    `ended` says that the client has committed that transaction, or rolled it back.
    `rows` has the values of each run, by the names of parameters; None where no values are bound. They stay as Arrow
    until they run, which takes a fraction of what they take in Python.
    """

    text: str
    transaction: bytes
    is_query: bool
    columns: pa.Schema
    rows: pa.Table | None = None
    ended: bool = False

    @property
    def runs(self) -> int:
        """How often it is to run: once for each row of values, and once without values."""
        return 1 if self.rows is None else self.rows.num_rows

    def sets(self) -> list[dict[str, Any] | None]:
        """Return the values of each run by name, as Python's; None where no values are bound.

        Raises `Invalid` for a value that Python does not have, such as a day after the year 9999.
        """
        if self.rows is None:
            return [None]
        names = self.rows.column_names
        columns = [_in_python(name, column) for name, column in zip(names, self.rows.columns, strict=True)]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def fitted(text: str, rows: pa.Table | None) -> pa.Table | None:
    """Return rows of values with the names of a text's parameters; None if there are no values.

    They go by name if the columns are called as the parameters are, else in their order. Raises `Invalid` where they
    do not match, are too many, or a value is of a type that SQL does not get.
    """
    if rows is None or not rows.num_columns:
        return None
    names = parameter_names(text)
    if rows.num_rows > SETS_MAX:
        raise Invalid(f"{rows.num_rows} rows of values were bound, more than the limit of {SETS_MAX}: bind fewer")
    if rows.num_columns != len(names):
        raise Invalid(f"the SQL has {len(names)} parameters, and {rows.num_columns} values were bound")
    given = [name.removeprefix("$") for name in rows.column_names]
    order = given if set(given) == set(names) else names
    if sum(_count(chunk) for column in rows.columns for chunk in column.chunks) > VALUES_MAX:
        raise Invalid(f"more than {VALUES_MAX} values were bound, in all rows and columns: bind fewer at a time")
    if rows.nbytes > VALUES_BYTES_MAX:
        raise Invalid(f"the values take more than {VALUES_BYTES_MAX} bytes: bind fewer at a time")
    columns = [_plain(name, column) for name, column in zip(order, rows.columns, strict=True)]
    # Else they would keep all of the request, of which they may be a part.
    return pa.table(columns, names=order).take(pa.array(range(rows.num_rows), pa.int64()))


def _plain(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values with times in microseconds. Raises `Invalid` for finer ones, and for other types."""
    kind = column.type
    if not _is_plain(kind):
        raise Invalid(
            f"parameter {name} has the type {kind!s:.100}, which SQL does not get: send plain values or lists"
        )
    if not pa.types.is_timestamp(kind) or kind.unit != "ns":
        return column
    try:
        return column.cast(pa.timestamp("us", kind.tz))
    except (pa.ArrowException, ValueError) as error:
        raise Invalid(f"parameter {name} has a value that SQL does not get: {error}") from None


def _in_python(name: str, column: pa.ChunkedArray) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise Invalid(f"parameter {name} has a value that SQL does not get: {error}") from None
    return values


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_plain(field.type) for field in kind.fields)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_plain(kind.value_type)
    return any(each(kind) for each in _PLAIN)


def _count(values: pa.Array) -> int:
    """Return how many values there are, those within lists and structs included."""
    if isinstance(values, pa.StructArray):
        return len(values) + sum(_count(each) for each in values.flatten())
    if isinstance(values, pa.ListArray | pa.LargeListArray):
        return len(values) + _count(values.flatten())
    return len(values)
