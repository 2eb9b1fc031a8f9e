"""Parse a query's text to the tree of its one SELECT, with DuckDB's own parser.

Only `json_serialize_sql` ever sees the raw text: it parses and does nothing else. (`extract_statements` of the Python
client would already open files for IMPORT DATABASE.)
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import duckdb

from alluvia.duck.connection import planner
from alluvia.duck.failures import query_error
from alluvia.errors import Invalid
from alluvia.expressions.tree import Node
from alluvia.table.arguments import check_text

QUERY_LIMIT_BYTES = 256 * 1024
_EXPLAIN = b"explain"
# DuckDB takes these for spaces, outside of quotes and comments, but counts positions in the text without them.
_APART = re.compile(
    r"""'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|(?P<quote>\$\w*\$).*?(?:(?P=quote)|\Z)"""
    "|(?P<space>[\u00a0\u2000-\u200f\u202f\u205f\u2060\u3000\ufeff])",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One SELECT, or an EXPLAIN of one. Positions in `root` are byte offsets into `text`."""

    text: str
    root: Node
    explain: bool


def parse(text: str) -> Statement:
    """Parse what a user sent. Raises `Invalid` unless it is one SELECT, or EXPLAIN of one, with DuckDB's message."""
    check_text("query", text, "SELECT 1")
    _check(text)
    return read(text)


def read(text: str) -> Statement:
    """Parse a text of any length, as `parse` does."""
    data = text.encode()
    word_at, word = _first_word(text, data)
    explain = word == _EXPLAIN.decode()
    if explain:
        # Blanked, so that every position stays as it is in the user's text.
        data = data[:word_at] + b" " * len(_EXPLAIN) + data[word_at + len(_EXPLAIN) :]
    answer = _serialize(data.decode())
    if answer["error"]:
        _refuse(answer, text, data, word)
    statements = answer["statements"]
    if len(statements) != 1:
        held = "no statement" if not statements else f"{len(statements)} statements"
        msg = f"the query contains {held}: send exactly one SELECT"
        raise Invalid(msg)
    return Statement(text, statements[0]["node"], explain)


def _serialize(text: str) -> Any:
    """Return what DuckDB's parser makes of a text. Raises `Invalid` if that is nested too deeply to handle."""
    try:
        row = planner().execute("SELECT json_serialize_sql($1)", [text]).fetchone()
        return json.loads(row[0]) if row else {}
    except RecursionError as error:
        msg = "the query is nested too deeply: split it into common table expressions"
        raise Invalid(msg) from error


def _check(text: str) -> None:
    if "\0" in text:
        msg = "the query contains a NUL character: remove it"
        raise Invalid(msg)
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        msg = "the query is not valid Unicode: it contains an unpaired surrogate"
        raise Invalid(msg) from error
    if len(data) > QUERY_LIMIT_BYTES:
        msg = f"the query has {len(data)} bytes, more than the limit of {QUERY_LIMIT_BYTES}: shorten it"
        raise Invalid(msg)
    for found in _APART.finditer(text):
        if (space := found["space"]) is not None:
            msg = f"the query contains a U+{ord(space):04X} outside quotes: replace it with a plain space, or remove it"
            raise Invalid(msg)
    if not data.strip():
        msg = "the query is empty: send one SELECT"
        raise Invalid(msg)


def _first_word(text: str, data: bytes) -> tuple[int, str]:
    tokens = duckdb.tokenize(text)
    if not tokens:
        return 0, ""
    start = tokens[0][0]
    end = start
    while data[end : end + 1].isalpha():  # of bytes: ASCII letters
        end += 1
    return start, data[start:end].decode().lower()


def _refuse(answer: Any, text: str, data: bytes, word: str) -> None:
    message = str(answer.get("error_message", ""))
    if answer.get("error_type") != "parser" or message.startswith("Only SELECT"):
        if word == "pivot":
            msg = "a PIVOT must name its values: PIVOT … ON column IN (…)"
            raise Invalid(msg)
        if word == _EXPLAIN.decode():
            msg = "only EXPLAIN of one SELECT is supported"
            raise Invalid(msg)
        msg = f"only a SELECT can be run here, not {word.upper() or 'this'}"
        raise Invalid(msg)
    if message.startswith("Max expression depth"):
        msg = "the query is nested too deeply: split it into common table expressions"
        raise Invalid(msg)
    if word == _EXPLAIN.decode() and data.split()[:1] and data.split()[0].lower() in (b"analyze", b"(analyze,"):
        msg = "EXPLAIN ANALYZE is not supported: run the query, or EXPLAIN it"
        raise Invalid(msg)
    position = str(answer.get("position", ""))
    raise query_error("Parser", message, text, int(position) if position.isdigit() else None)
