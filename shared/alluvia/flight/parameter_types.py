"""The types of a statement's parameters, guessed from what stands around them.

DuckDB knows a parameter's type once it has a value. JDBC asks before: its driver makes the columns that carry the
values from what the server says, and takes no number for a text. So a parameter has the type of the column that it is
compared with, assigned or inserted to, or the one that it is cast to; where nothing tells, it is a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.errors import Invalid
from alluvia.operations.catalog.catalog import Catalog
from alluvia.query.visible import visible_schema
from alluvia.sql.binding import named
from alluvia.sql.grammar.nodes import Insert
from alluvia.sql.grammar.statements import parse
from alluvia.sql.grammar.tokens import Cursor, Token, tokens_of
from alluvia.sql.grammar.types import column_type
from alluvia.table_names import TABLE_NAME

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
    found: dict[str, pa.DataType | None] = {}
    for count, number in enumerate(at, 1):
        token = tokens[number]
        name = text[token.start + 1 : token.end] or str(count)
        found[name] = found.get(name) or _type(text, tokens, number, known, inserted)
    return pa.schema([pa.field(name, kind or pa.string()) for name, kind in found.items()])


def _columns(text: str, tokens: Sequence[Token], catalog: Catalog) -> Types:
    """Return the types of the columns of the tables that a text names; none of a name that has several."""
    tables = catalog.readable(dict.fromkeys(name for name in _tables(text, tokens) if TABLE_NAME.fullmatch(name)))
    found: dict[str, set[pa.DataType]] = {}
    for snapshot in tables.values():
        for field in visible_schema(catalog, snapshot):
            found.setdefault(fold(field.name), set()).add(field.type)
    return {name: next(iter(kinds)) for name, kinds in found.items() if len(kinds) == 1}


def _tables(text: str, tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the names that stand where those of tables do."""
    listed = False
    for before, token in pairwise(tokens):
        if before.word in _BEFORE_TABLES or (listed and before.word == ","):
            listed = True
            yield named(text, token)
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
        return known.get(named(text, tokens[number])) if 0 <= number < len(tokens) else None

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
