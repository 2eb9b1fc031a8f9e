"""Columns with the schema or the branch of their table in front: `bronze.events.id` is the column `events.id`. Pure.

A query knows its tables by names of one part, those of the entries of FROM. So the parts in front are blanked in
the text and left out of the tree, and no position moves. Where two tables would then have one name, as in
`FROM bronze.events JOIN silver.events`, they are known as `bronze$events` and `silver$events`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from alluvia.delta.schema.names import fold
from alluvia.engine.duck.literals import quote_name
from alluvia.engine.queries.engine_tree import LOCATION
from alluvia.engine.queries.schema_names import name_of
from alluvia.engine.queries.tokens import whole_tokens
from alluvia.errors import Invalid
from alluvia.table_names import DATABASE, SCHEMA

KNOWN_AS = "known_as"
"""The key of a table in a tree that has no alias, and another name in its query than its own."""
_SIGN = "$"
"""It joins the parts of such a name: no name of a table has it, and no keyword."""
_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")
_STAR = re.compile(r"\.\s*\*")
_Node = dict[str, Any]
_Parts = tuple[str, ...]


def joined(parts: Sequence[str]) -> str:
    """Return the name by which a query knows a table whose own name means another one, too."""
    return _SIGN.join(parts)


def with_joined_stars(text: str) -> str:
    """Return a text with `bronze$events.*` for `bronze.events.*`, which DuckDB's grammar lacks."""
    if _STAR.search(text) is None:
        return text
    tokens = whole_tokens(text)
    for at in range(len(tokens) - 1, 3, -1):
        first = at - 2
        if [tokens[at].word, tokens[at - 1].word] != ["*", "."] or not tokens[first].is_name:
            continue
        while first >= 2 and tokens[first - 1].word == "." and tokens[first - 2].is_name:
            first -= 2
        if first < at - 2:
            name = joined([name_of(text, token) for token in tokens[first : at - 1 : 2]])
            text = _with_name(text, tokens[first].start, tokens[at - 2].end, name)
    return text


def without_qualifiers(text: str, nodes: Sequence[_Node], starts: Sequence[int]) -> tuple[str, Sequence[int]]:
    """Return a text, and the byte offsets of its tokens, in which each column names its table in one part.

    Changes the `nodes` of its tree likewise. Raises `Invalid` where a table needs an alias.
    """
    tables = {id(node): parts for node in nodes if len(parts := _table(node)) > 1}
    if not tables:
        return text, starts
    by_name = {name: parts for parts in tables.values() for name in _named_by(parts)}
    by_name |= {parts: parts for parts in tables.values()}
    stars = {joined(name): parts for name, parts in by_name.items()}
    columns = [(node, name) for node in nodes if (name := _qualifier(node, by_name)) and node[LOCATION] in starts]
    starred = [node for node in nodes if node.get("class") == "STAR" and fold(node["relation_name"]) in stars]
    used = {by_name[name] for _, name in columns} | {stars[fold(node["relation_name"])] for node in starred}
    known_as = {parts: joined(parts) for parts in _ambiguous(nodes, tables, used)}
    for node in nodes:
        if (parts := tables.get(id(node), ())) in known_as:
            node[KNOWN_AS] = known_as[parts]
    kept, data = list(starts), text.encode()
    for node, name in sorted(columns, key=lambda column: -int(column[0][LOCATION])):
        first = bisect_left(kept, node[LOCATION])
        last = first + 2 * (len(name) - 1)
        start, known = kept[first], known_as.get(by_name[name])
        if known is None:
            data = data[:start] + b" " * (kept[last] - start) + data[kept[last] :]
            node[LOCATION] = kept[last]
            del kept[first:last]
        else:
            data = data[:start] + _padded(known, kept[last + 1] - start) + data[kept[last + 1] :]
            del kept[first + 1 : last + 1]
        node["column_names"] = [known or node["column_names"][len(name) - 1], *node["column_names"][len(name) :]]
    text = data.decode()
    for node in starred:
        name_of_star = fold(node["relation_name"])
        known = known_as.get(stars[name_of_star]) or stars[name_of_star][-1]
        text = _with_star_of(text, name_of_star, known)
        node["relation_name"] = known
    return text, kept


def _table(node: _Node) -> _Parts:
    """Return the parts of the name of a table without an alias, folded; none of anything else."""
    if node.get("alias") or "class" in node:
        return ()
    parts: tuple[str, ...] = ()
    if node.get("type") == "BASE_TABLE":
        parts = (node["catalog_name"], node["schema_name"], node["table_name"])
    elif node.get("type") == "TABLE_FUNCTION":
        function = node["function"]
        parts = (function["catalog"], function["schema"], function["function_name"])
    named = tuple(fold(part) for part in parts if part)
    named = named[1:] if named[:1] == (DATABASE,) else named
    return named[1:] if named[:1] == (SCHEMA,) else named


def _named_by(parts: _Parts) -> Iterator[_Parts]:
    """Yield the names that columns may have for a table besides its own, without those in the schema `main`."""
    yield (DATABASE, *parts)
    for first in range(1, len(parts) - 1):
        if parts[first] != SCHEMA:
            yield parts[first:]


def _qualifier(node: _Node, by_name: Mapping[_Parts, _Parts]) -> _Parts | None:
    """Return the table's name in front of a column; None where it has one part, or there is no such table."""
    if node.get("class") != "COLUMN_REF":
        return None
    names = tuple(map(fold, node["column_names"]))
    longest = range(len(names) - 1, 1, -1)
    return next((names[:length] for length in longest if names[:length] in by_name), None)


def _ambiguous(nodes: Iterable[_Node], tables: Mapping[int, _Parts], used: Collection[_Parts]) -> Iterator[_Parts]:
    """Yield the tables whose own name is that of another entry of the same FROM, or, where columns name them in full,
    of another entry anywhere.
    """
    everywhere: dict[str, set[_Parts]] = defaultdict(set)
    for node in nodes:
        for entry in node.get("cte_map", {}).get("map", ()):
            everywhere[fold(entry["key"])].add(())
        if node.get("type") != "SELECT_NODE":
            continue
        here: dict[str, set[_Parts]] = defaultdict(set)
        for entry in _entries(node["from_table"]):
            parts = tables.get(id(entry))
            function = entry.get("function") or {}
            name = entry["alias"] or entry.get("table_name") or function.get("function_name") or ""
            here[fold(name)].add(() if parts is None else parts)
        for name, named in here.items():
            everywhere[name] |= named
            if len(named) > 1:
                yield from filter(None, named)
    yield from (parts for parts in used if len(everywhere[parts[-1]]) > 1)


def _entries(node: _Node) -> Iterator[_Node]:
    if node["type"] == "JOIN":
        yield from _entries(node["left"])
        yield from _entries(node["right"])
    else:
        yield node


def _with_star_of(text: str, before: str, name: str) -> str:
    """Return a text with another name in front of `.*`."""
    tokens = whole_tokens(text)
    for at in range(len(tokens) - 3, -1, -1):
        if name_of(text, tokens[at]) == before and [each.word for each in tokens[at + 1 : at + 3]] == [".", "*"]:
            text = _with_name(text, tokens[at].start, tokens[at].end, name)
    return text


def _with_name(text: str, start: int, end: int, name: str) -> str:
    return text[:start] + _padded(name, len(text[start:end].encode())).decode() + text[end:]


def _padded(name: str, length: int) -> bytes:
    """Return a name in SQL, and spaces, so that no position moves. Raises `Invalid` where that is not possible."""
    shown = (name if _PLAIN.fullmatch(name) else quote_name(name)).encode()
    if len(shown) > length:
        raise Invalid(f"the query has several tables of one name: write AS and a name of its own behind {name}")
    return shown.ljust(length)
