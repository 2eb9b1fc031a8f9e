"""The text that DuckDB runs: the user's query, with each table name replaced by a view.

Pure. The text is spliced, not generated from the tree, so that what runs is what the user wrote. Then it is parsed
again: the tree must equal the checked one with the views in it, so a splicing error makes the query fail instead of
running something else. `check_tables` relies neither on `references`, which decides what each name means, nor on
`rewrite`: it refuses every name that DuckDB would look up elsewhere, for example as a file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from alluvia.delta.schema.names import fold
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.engine.duck.literals import quote_name
from alluvia.engine.queries.engine_tree import LOCATION
from alluvia.engine.queries.field_reads import FieldRead
from alluvia.engine.queries.functions import TABLE_FUNCTIONS
from alluvia.engine.queries.parse import Analyse, Node, Statement, analyse, read, same
from alluvia.engine.queries.references import Reference
from alluvia.engine.queries.shown_names import VIEW_SCHEMA
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass


def check_tables(root: Node, schema: str, views: Collection[str]) -> None:
    """Raise `Invalid`, naming it, for a table that is neither one of these views nor a common table expression."""
    _check(root, schema, frozenset(views), frozenset())


def _check(value: Any, schema: str, views: frozenset[str], ctes: frozenset[str]) -> None:
    if isinstance(value, list):
        for child in value:
            _check(child, schema, views, ctes)
    if not isinstance(value, dict):
        return
    for entry in (value.get("cte_map") or {}).get("map", ()):
        own = frozenset({fold(entry["key"])})
        recursive = entry["value"]["query"]["node"]["type"] == "RECURSIVE_CTE_NODE"
        _check(entry["value"], schema, views, ctes | own if recursive else ctes)
        ctes |= own
    if "class" not in value and not _is_known(value, schema, views, ctes):
        shown = value.get("table_name") or (value.get("function") or {}).get("function_name")
        raise Invalid(f"{shown!r} is neither a table of the lake nor a common table expression in scope")
    for key, child in value.items():
        if key != "cte_map":
            _check(child, schema, views, ctes)


def _is_known(node: Node, schema: str, views: frozenset[str], ctes: frozenset[str]) -> bool:
    kind = node.get("type")
    if kind == "BASE_TABLE":
        if node["catalog_name"] or node["at_clause"] is not None:
            return False
        if node["schema_name"]:
            return node["schema_name"] == schema and node["table_name"] in views
        return fold(node["table_name"]) in ctes
    if kind == "TABLE_FUNCTION":
        return fold(node["function"]["function_name"]) in TABLE_FUNCTIONS
    return kind != "SHOW_REF" or node["query"] is not None


# After these words the grammar takes the name of a table, but no alias.
_WITHOUT_ALIAS = frozenset({"table", "describe", "desc", "show", "summarize"})
_NAME = re.compile(rb'"(?:[^"]|"")*"|`(?:[^`]|``)*`|[A-Za-z0-9_$\x80-\xff]+')
_UNUSUAL = "this way of naming a table is not possible: name it plainly, after FROM or JOIN"


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The text to run, and the way back from its byte offsets to those of the user's text.

    `outer` goes on from the text that was rewritten, if that was not the user's own.
    """

    text: str
    _starts: tuple[int, ...]
    _sources: tuple[int, ...]
    outer: Callable[[int], int] = lambda offset: offset

    def position(self, offset: int) -> int:
        """Return the byte offset in the user's text that an offset of the rewritten text stems from."""
        at = bisect_right(self._starts, offset) - 1
        source = self._sources[at] + offset - self._starts[at]
        return self.outer(min(source, self._sources[at + 1]) if at + 1 < len(self._sources) else source)


def rewrite(
    statement: Statement,
    views: Mapping[Reference, str],
    analyse: Analyse = analyse,
    fields: Sequence[FieldRead] = (),
) -> Rewritten:
    """Put views, by their name within `VIEW_SCHEMA`, in the place of tables. Raises `Invalid` where that fails.

    `analyse` has DuckDB read the new text, and raises `QueryTooCostly` where its time is up. Where columns can stand
    for all `fields`, they do.
    """
    data = statement.text.encode()
    tokens = _Tokens(statement.starts, data)
    edits: list[tuple[int, int, str]] = []
    replacements: dict[int, Node] = {}
    for reference, view in views.items():
        changes, alias = _edits(reference, view, tokens)
        edits.extend(changes)
        replacements[id(reference.node)] = _view_node(reference.node, view, alias)
    if fields:
        with suppress(_Unusual):  # the query stays as it is if its name or text does not stand next to `->>`
            return _rewritten(
                statement,
                [*edits, *(_field_edit(field, tokens) for field in fields)],
                {**replacements, **{id(field.node): field.replacement for field in fields}},
                views,
                analyse,
            )
    return _rewritten(statement, edits, replacements, views, analyse)


class _Unusual(Invalid):
    """The text cannot be changed as planned."""


def _rewritten(
    statement: Statement,
    edits: Sequence[tuple[int, int, str]],
    replacements: Mapping[int, Node],
    views: Mapping[Reference, str],
    analyse: Analyse,
) -> Rewritten:
    data = statement.text.encode()
    rewritten = _splice(data, sorted(edits))
    try:
        root = read(rewritten.text, analyse).root
    except QueryTooCostly:
        raise
    except Invalid as error:
        raise _Unusual(_UNUSUAL) from error
    if not same(root, statement.root, replacements):
        raise _Unusual(_UNUSUAL)
    check_tables(root, VIEW_SCHEMA, set(views.values()))
    return rewritten


def put_subqueries(statement: Statement, queries: Mapping[Reference, str]) -> Rewritten:
    """Put SELECTs in the place of tables. The result must be parsed and checked like a user's text."""
    data = statement.text.encode()
    tokens = _Tokens(statement.starts, data)
    edits: list[tuple[int, int, str]] = []
    for reference, query in queries.items():
        first = tokens.at(reference.node[LOCATION])
        last = first
        while tokens.text(last + 1) == ".":
            last += 2
        start, before = tokens.start(first), tokens.text(first - 1)
        text = f"({query}\n)"
        if before in _WITHOUT_ALIAS:
            text = f"FROM {text}"
            if before == "table":
                start = tokens.start(first - 1)
        if not reference.node["alias"]:
            text += f" AS {quote_name(reference.alias)}"
        edits.append((start, tokens.end(last), text))
    return _splice(data, sorted(edits))


class _Tokens:
    """The tokens of a text, with their byte offsets; comments and space are none."""

    def __init__(self, starts: Sequence[int], data: bytes) -> None:
        self._data = data
        self._starts = starts

    def at(self, offset: int) -> int:
        """Return the number of the token that starts at an offset. Raises `Invalid` if none does."""
        number = bisect_right(self._starts, offset) - 1
        if number < 0 or self._starts[number] != offset:
            raise Invalid(_UNUSUAL)
        return number

    def start(self, number: int) -> int:
        return self._starts[number]

    def start_of_next(self, number: int) -> int:
        """Return where the token after one starts, or the text ends."""
        return self._starts[number + 1] if number + 1 < len(self._starts) else len(self._data)

    def end(self, number: int) -> int:
        """Return where a token ends. Only for names and punctuation."""
        start = self._starts[number]
        match = _NAME.match(self._data, start)
        return match.end() if match else start + 1

    def text(self, number: int) -> str:
        """Return a word or a sign, in lower case; empty beyond the end."""
        if not 0 <= number < len(self._starts):
            return ""
        return self._data[self._starts[number] : self.end(number)].lower().decode(errors="replace")

    def after_parenthesis(self, number: int) -> int:
        """Return the number of the token after the parenthesis that opens at a token."""
        depth = 0
        while number < len(self._starts):
            sign = self._data[self._starts[number] : self._starts[number] + 1]
            depth += {b"(": 1, b")": -1}.get(sign, 0)
            number += 1
            if depth == 0:
                break
        return number


def _edits(reference: Reference, view: str, tokens: _Tokens) -> tuple[list[tuple[int, int, str]], str]:
    """Return the changes (start, end, new text) that one reference needs, and the alias that it then has."""
    node = reference.node
    first = tokens.at(node[LOCATION])
    last = first
    while tokens.text(last + 1) == ".":
        last += 2
    following = last + 1
    end = tokens.end(last)
    if reference.is_function:
        following = tokens.after_parenthesis(following)
        end = tokens.end(following - 1)
    alias = node["alias"]
    name = f"{VIEW_SCHEMA}.{view}"
    if not alias and tokens.text(first - 1) not in _WITHOUT_ALIAS:
        alias = reference.alias
        name += f" AS {quote_name(alias)}"
    edits = [(tokens.start(first), end, name)]
    if not reference.is_function and node["at_clause"] is not None:
        edits.append(_cut_at_clause(following, tokens))
    return edits, alias


def _field_edit(field: FieldRead, tokens: _Tokens) -> tuple[int, int, str]:
    """Return the change that puts a column in the place of a field that is read. Raises `_Unusual`."""
    column, path = field.node["children"]
    first = tokens.at(column[LOCATION])
    last = tokens.at(path[LOCATION])
    if last != first + 2 * len(field.names) or tokens.at(field.node[LOCATION]) != last - 1:
        raise _Unusual(_UNUSUAL)
    return tokens.start(first), tokens.start_of_next(last), field.text


def _cut_at_clause(number: int, tokens: _Tokens) -> tuple[int, int, str]:
    """Return the change that removes `AT (…)`, which stands behind the alias."""
    while tokens.text(number) and (tokens.text(number) != "at" or tokens.text(number + 1) != "("):
        number = tokens.after_parenthesis(number)
    last = tokens.after_parenthesis(number + 1) - 1
    return tokens.start(number), tokens.end(last), " "


def _view_node(node: Node, view: str, alias: str) -> Node:
    return {
        "type": "BASE_TABLE",
        "alias": alias,
        "sample": node["sample"],
        "schema_name": VIEW_SCHEMA,
        "table_name": view,
        "column_name_alias": node["column_name_alias"],
        "catalog_name": "",
        "at_clause": None,
    }


def _splice(data: bytes, edits: list[tuple[int, int, str]]) -> Rewritten:
    parts: list[bytes] = []
    starts, sources = [0], [0]
    at = length = 0
    for start, end, new in edits:
        parts += [data[at:start], new.encode()]
        length += start - at
        starts += [length, length + len(parts[-1])]
        sources += [start, end]
        length += len(parts[-1])
        at = end
    parts.append(data[at:])
    return Rewritten(b"".join(parts).decode(), tuple(starts), tuple(sources))
