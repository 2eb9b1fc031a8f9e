"""Parse a query's text to the tree of its one SELECT, with DuckDB's own parser.

An expression has a `class` and a `type`; a query node, a table reference and a modifier have a `type` alone.

Only DuckDB's lexer and `json_serialize_sql` ever see the raw text: they read it and do nothing else.
(`extract_statements` of the Python client would already open files for IMPORT DATABASE.) Even so, some texts of a few
kilobytes keep them busy for hours: a text that a stranger sent is analysed in a process that can be killed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from alluvia.delta.arguments import check_text
from alluvia.engine.duck.database import planner
from alluvia.engine.duck.failures import query_error
from alluvia.engine.queries.dialect_hints import instead_of, instead_of_with
from alluvia.engine.queries.engine_tree import LOCATION, our_tree
from alluvia.engine.queries.qualified_columns import with_joined_stars, without_qualifiers
from alluvia.engine.queries.schema_names import without_schema
from alluvia.engine.queries.time_travel import in_our_form
from alluvia.errors import Invalid, cut
from alluvia.lazy_dataclasses import dataclass

Node = dict[str, Any]
_BRANCHES = (dict, list)


def walk(value: Any) -> Iterator[Node]:
    """Every dict at or below a value, parents first, however deep."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending += [child for child in reversed(value.values()) if child and isinstance(child, _BRANCHES)]
        elif isinstance(value, list):
            pending += [child for child in reversed(value) if child and isinstance(child, _BRANCHES)]


def outside_subqueries(expression: Node, *, lambdas: bool = True) -> Iterator[Node]:
    """Every dict at or below an expression, those of SELECTs in it left out: of a subquery, only its own node.

    Without `lambdas`, those of its lambda functions are left out as well.
    """
    pending: list[Any] = [expression]
    while pending:
        value = pending.pop()
        if isinstance(value, dict) and (lambdas or value.get("class") != "LAMBDA"):
            yield value
            inner = value.get("subquery") if value.get("class") == "SUBQUERY" else None
            pending.extend(child for child in value.values() if child is not inner)
        elif isinstance(value, list):
            pending.extend(value)


def without_locations(value: Any) -> Any:
    """Copy a tree without positions in the text."""
    if isinstance(value, dict):
        return {key: without_locations(child) for key, child in value.items() if key != LOCATION}
    if isinstance(value, list):
        return [without_locations(child) for child in value]
    return value


def same(one: Any, other: Any, replacements: Mapping[int, Node]) -> bool:
    """Whether two trees are equal but for positions, with other nodes in place of some of `other`, given by `id`."""
    pending = [(one, other)]
    while pending:
        one, other = pending.pop()
        other = replacements.get(id(other), other)
        if isinstance(one, dict) and isinstance(other, dict):
            if one.keys() - {LOCATION} != other.keys() - {LOCATION}:
                return False
            pending.extend((one[key], other[key]) for key in one if key != LOCATION)
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pending.extend(zip(one, other, strict=True))
        elif one != other or type(one) is not type(other):
            return False
    return True


def column_ref(*names: str) -> Node:
    """Return a column, by the parts of its name."""
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": list(names)}


def is_constant(node: Node) -> bool:
    """Whether an expression is one literal."""
    return node.get("class") == "CONSTANT"


def text_literal(node: Node | None) -> str | None:
    """Return the text of a text literal; None for anything else."""
    if node is None or not is_constant(node):
        return None
    value = node["value"]
    if value["is_null"] or value["type"]["id"] != "VARCHAR" or not isinstance(value["value"], str):
        return None
    return value["value"]


def integer_literal(node: Node) -> int | None:
    """Return the number of an integer literal; None for anything else."""
    if not is_constant(node) or node["value"]["is_null"] or node["value"]["type"]["id"] not in ("INTEGER", "BIGINT"):
        return None
    return int(node["value"]["value"])


QUERY_LIMIT_BYTES = 256 * 1024
TREE_LIMIT_BYTES = 16_000_000
"""Python takes about ten times as much memory for a tree as its JSON has bytes."""
_EXPLAIN = b"explain"
_SYMMETRIC = re.compile(r"\bbetween\s+symmetric\b", re.IGNORECASE)
# DuckDB takes these for spaces, outside of quotes and comments, but counts positions in the text without them.
_APART = re.compile(
    r"""'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|(?P<quote>\$\w*\$).*?(?:(?P=quote)|\Z)"""
    "|(?P<space>[\u00a0\u2000-\u200f\u202f\u205f\u2060\u3000\ufeff])",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Analysis:
    """A text as DuckDB parses it: the byte offsets at which its tokens start, and its syntax tree as JSON.

    The word EXPLAIN in front is left out of the tree.
    """

    starts: Sequence[int]
    tree: bytes


Analyse = Callable[[str], Analysis]


@dataclass(frozen=True, slots=True)
class Statement:
    """One SELECT, or an EXPLAIN of one. Positions in `root` and `starts`, of tokens, are byte offsets into `text`."""

    text: str
    root: Node
    explain: bool
    starts: Sequence[int]


def analyse(text: str) -> Analysis:
    """Have DuckDB read a text, in this process. Raises `duckdb.Error`."""
    from alluvia.engine.duck.native import duckdb

    comment = duckdb.token_type.comment
    starts = [start for start, kind in duckdb.tokenize(text) if kind != comment]
    serialize = "SELECT json_serialize_sql($1)"
    [(tree,)] = planner().execute(serialize, [_explained(text.encode(), starts).decode()]).fetchall()
    return Analysis(starts, tree.encode())


def parse(text: str, analyse: Analyse = analyse) -> Statement:
    """Parse what a user sent. Raises `Invalid` unless it is one SELECT, or EXPLAIN of one, with DuckDB's message.

    `analyse` has DuckDB read the text; what it raises is passed on.
    """
    check_text("query", text, "SELECT 1")
    _check(text)

    def limited(text: str) -> Analysis:
        parsed = analyse(text)
        if len(parsed.tree) > TREE_LIMIT_BYTES:
            raise Invalid("the query names or computes too many things: shorten it, or put the values into a table")
        return parsed

    return read(text, limited)


def parse_stored(text: str, example: str) -> Statement:
    """Parse a query that a table keeps. Raises `Invalid`, also for an EXPLAIN; `example` is a query of that kind."""
    check_text("query", text, example)
    statement = parse(text.rstrip().rstrip(";"))
    if statement.explain:
        raise Invalid(f"the query cannot be an EXPLAIN: write the SELECT alone, such as {example}")
    return statement


def read(text: str, analyse: Analyse = analyse) -> Statement:
    """Parse a text of any length, as `parse` does. Versions of tables are then as DuckDB takes them."""
    text = in_our_form(with_joined_stars(without_schema(text)))
    parsed = analyse(text)
    data = _explained(text.encode(), parsed.starts)
    word = _first_word(text.encode(), parsed.starts)
    answer = _tree(parsed, text.encode())
    if answer["error"]:
        _refuse(answer, text, data, word)
    statements = answer["statements"]
    if len(statements) != 1:
        held = "no statement" if not statements else f"{len(statements)} statements"
        raise Invalid(f"the query contains {held}: send exactly one SELECT")
    root = statements[0]["node"]
    text, starts = without_qualifiers(text, list(walk(root)), parsed.starts)
    return Statement(text, root, word == _EXPLAIN.decode(), starts)


def _tree(parsed: Analysis, text: bytes) -> Any:
    """Return the tree of a text. Raises `Invalid` if it is nested too deeply to handle."""
    try:
        return our_tree(parsed.tree, text, parsed.starts)
    except RecursionError as error:
        raise Invalid("the query is nested too deeply: split it into common table expressions") from error


def _check(text: str) -> None:
    if "\0" in text:
        raise Invalid("the query contains a NUL character: remove it")
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise Invalid("the query is not valid Unicode: it contains an unpaired surrogate") from error
    if len(data) > QUERY_LIMIT_BYTES:
        raise Invalid(f"the query has {len(data)} bytes, more than the limit of {QUERY_LIMIT_BYTES}: shorten it")
    for match in _APART.finditer(text):
        if (space := match["space"]) is not None:
            msg = f"the query contains a U+{ord(space):04X} outside quotes: replace it with a plain space, or remove it"
            raise Invalid(msg)
    if not data.strip():
        raise Invalid("the query is empty: send one SELECT")


def _first_word(data: bytes, starts: Sequence[int]) -> str:
    start = end = starts[0] if starts else len(data)
    while data[end : end + 1].isalpha():  # of bytes: ASCII letters
        end += 1
    return data[start:end].decode().lower()


def _explained(data: bytes, starts: Sequence[int]) -> bytes:
    """Blank the word EXPLAIN in front of a text, so that every position stays as it is."""
    if _first_word(data, starts).encode() != _EXPLAIN:
        return data
    return data[: starts[0]] + b" " * len(_EXPLAIN) + data[starts[0] + len(_EXPLAIN) :]


def _refuse(answer: Any, text: str, data: bytes, word: str) -> None:
    message = str(answer.get("error_message", ""))
    if _SYMMETRIC.search(text) and not message.startswith("Only SELECT"):
        raise Invalid("BETWEEN SYMMETRIC is not supported: write BETWEEN least(a, b) AND greatest(a, b)")
    if answer.get("error_type") != "parser" or message.startswith("Only SELECT"):
        if word == "pivot":
            raise Invalid("a PIVOT must name its values here: PIVOT … ON column IN (…)")
        if not message.startswith("Only SELECT"):
            raise Invalid(f"DuckDB does not implement this ({cut(message)})")
        if word == _EXPLAIN.decode():
            raise Invalid("only EXPLAIN of one SELECT is supported")
        instead = instead_of_with(text) if word == "with" else None
        if instead is not None:
            raise Invalid(instead)
        raise Invalid(f"only a SELECT can be run here, not {word.upper() or 'this'}")
    if message.startswith("NameListToString"):
        raise Invalid(
            "a query names a table in at most three parts, as in fix.bronze.events. Leave the database out. For "
            "rejected events on a branch, open the branch (--branch, lake.on_branch(), X-Alluvia-Branch) and name "
            "bronze.events._rejects"
        )
    if message.startswith("Max expression depth"):
        raise Invalid("the query is nested too deeply: split it into common table expressions")
    if word == _EXPLAIN.decode() and data.split()[:1] and data.split()[0].lower() in (b"analyze", b"(analyze,"):
        raise Invalid("EXPLAIN ANALYZE is not supported: run the query, or EXPLAIN it")
    shown = str(answer.get("position", ""))
    position = int(shown) if shown.isdigit() else None
    instead = instead_of(text, position)
    if instead is not None:
        raise Invalid(instead)
    raise query_error("Parser", message, text, position)
