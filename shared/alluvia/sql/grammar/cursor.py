"""A cursor over the tokens of a statement. Pure.

Statements that write are read here, token by token. Whatever DuckDB is to compute (a SELECT, a condition, a value) is
cut out of the text as it stands, and read again by DuckDB's own parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.dialect_hints import instead_of_quotes, number_instead_of
from alluvia.engine.queries.tokens import CLOSING, OPENING, Token, place_in, tokens_of
from alluvia.errors import Invalid
from alluvia.table_names import DATABASE, lake_names, name_in_schema

_QUERIES = frozenset(
    ("select", "from", "with", "values", "table", "pivot", "unpivot", "show", "describe", "desc", "summarize")
)
_QUERY = re.compile(rf"\b(?:{'|'.join(sorted(_QUERIES))})\b", re.IGNORECASE)

TO_WRITE_ON_A_BRANCH = (
    "to write on a branch, open it: `--branch` on the command line, lake.on_branch() in Python, the header "
    "X-Alluvia-Branch over HTTP"
)


class Sql(NamedTuple):
    """A piece of a text that DuckDB reads. `placeholders` counts the `?` in the text before it."""

    text: str
    placeholders: int = 0


class Cursor:
    """Reads the tokens of one statement from the front. Raises `Invalid`, with the place, for what does not fit.

    `known_as` has names by which the statement knows tables, where that is not the last part of the table's own name.
    """

    def __init__(
        self,
        text: str,
        tokens: Sequence[Token],
        placeholders: int = 0,
        known_as: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.text = text
        self._tokens = tokens
        self._placeholders = placeholders
        self._known_as = known_as
        self.at = 0

    def word(self, ahead: int = 0) -> str:
        """Return a word or a sign without taking it; empty for anything else, and at the end."""
        at = self.at + ahead
        return self._tokens[at].word if at < len(self._tokens) else ""

    @property
    def ended(self) -> bool:
        """Whether no token is left."""
        return self.at >= len(self._tokens)

    def accept(self, *words: str) -> bool:
        """Take some words if they come next."""
        if all(self.word(ahead) == word for ahead, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def expect(self, *words: str) -> None:
        """Take some words."""
        if not self.accept(*words):
            raise self.wrong(" ".join(words).upper())

    def end(self) -> None:
        """Check that no token is left."""
        if not self.ended:
            raise self.wrong("the end of the statement")

    def wrong(self, expected: str) -> Invalid:
        """Return the error for a token that is not what was expected."""
        if self.ended:
            return Invalid(f"{place_in(self.text, len(self.text))}: expected {expected}, but the statement ends")
        token = self._tokens[self.at]
        shown = self.text[token.start : token.end]
        place = place_in(self.text, token.start)
        before = self._tokens[self.at - 2] if self.at > 1 else token
        if (number := number_instead_of(self.text, before, token)) is not None:
            return Invalid(f"{place_in(self.text, before.start)}: {number}")
        if token.kind == "sign" and (quotes := instead_of_quotes(shown)) is not None:
            return Invalid(f"{place}: {quotes}")
        return Invalid(f"{place}: expected {expected}, got {shown:.50}")

    def identifier(self, what: str) -> str:
        """Take a name, as it is written."""
        if not self.ended:
            token = self._tokens[self.at]
            shown = self.text[token.start : token.end]
            if token.kind == "word" or (token.kind == "quoted" and len(shown) > 2):
                self.at += 1
                return shown if token.kind == "word" else shown[1:-1].replace('""', '"')
        raise self.wrong(what)

    def table(self, what: str = "the name of a table") -> str:
        """Take the lake's name of a table: `t`, `bronze.t` in a schema, or either with `._rejects` behind."""
        return self._table([fold(part) for part in self._parts(what)])

    def column_of_table(self) -> tuple[str, str]:
        """Take the lake's name of a table or a view, and behind it that of a column, as it is written."""
        what = "the name of a column behind that of its table, as in t.id"
        *parts, column = self._parts(what)
        if not parts:
            raise self.wrong(what)
        try:
            return self._table([fold(part) for part in parts]), column
        except Invalid as error:
            named = ".".join((*parts, column))
            raise Invalid(
                f"{named}: name a whole column, as in t.id or bronze.t.id, and no field in it; {TO_WRITE_ON_A_BRANCH}"
            ) from error

    def _parts(self, what: str) -> list[str]:
        parts = [self.identifier(what)]
        while self.accept("."):
            parts.append(self.identifier(what))
        return parts

    def _table(self, parts: Sequence[str]) -> str:
        name = next(iter(lake_names(parts)), ".".join(parts))
        if ":" in name or (name.count(".") > 1 and len(parts) > 2):
            raise Invalid(f"{'.'.join(parts)}: only queries name tables of a branch; {TO_WRITE_ON_A_BRANCH}")
        return name

    def alias_of(self, table: str) -> str:
        """Return the name by which the statement knows a table without an alias."""
        name = table.partition("/")[0]
        return self._known_as.get(name) or name_in_schema(name)

    def schema(self) -> str:
        """Take the name of a schema, with or without the database that DuckDB has."""
        what = "the name of a schema"
        name = fold(self.identifier(what))
        return fold(self.identifier(what)) if name == DATABASE and self.accept(".") else name

    @property
    def is_text(self) -> bool:
        """Whether a text literal comes next."""
        return not self.ended and self._tokens[self.at].kind == "text"

    def string(self, what: str) -> str:
        """Take a text literal."""
        if not self.ended and self._tokens[self.at].kind == "text":
            token = self._tokens[self.at]
            shown = self.text[token.start : token.end]
            if shown.startswith("'"):
                self.at += 1
                return shown[1:-1].replace("''", "'")
        raise self.wrong(f"{what} as text in single quotes")

    def number(self, what: str) -> int:
        """Take a whole number."""
        if not self.ended and self._tokens[self.at].kind == "number":
            token = self._tokens[self.at]
            shown = self.text[token.start : token.end]
            if shown.isdigit() and len(shown) < 19:
                self.at += 1
                return int(shown)
        raise self.wrong(f"{what} as a whole number")

    def until(self, *words: str, what: str) -> Sql:
        """Take all up to one of some words outside of brackets, CASE … END included, or up to the end."""
        first, depth, cases = self.at, 0, 0
        while not self.ended:
            word = self.word()
            if depth == 0 and cases == 0 and word in words:
                break
            depth += 1 if word in OPENING else -1 if word in CLOSING else 0
            if depth < 0:
                break
            cases += 1 if word == "case" else -1 if word == "end" and cases else 0
            self.at += 1
        if self.at == first:
            raise self.wrong(what)
        return self.slice(first, self.at)

    def brackets(self, what: str) -> Sql:
        """Take what is in the parentheses that come next."""
        if self.word() != "(":
            raise self.wrong(f"({what})")
        first = self.at + 1
        self.at += 1
        if self.word() != ")":
            self.until(what=what)
        inside = self.slice(first, self.at)
        self.expect(")")
        return inside

    def rest(self, what: str) -> Sql:
        """Take all that is left."""
        if self.ended:
            raise self.wrong(what)
        first, self.at = self.at, len(self._tokens)
        return self.slice(first, self.at)

    def slice(self, first: int, end: int) -> Sql:
        """Return the text from one token up to another."""
        before = sum(self.is_placeholder(token) for token in self._tokens[:first])
        if first >= end:
            return Sql("", self._placeholders + before)
        text = self.text[self._tokens[first].start : self._tokens[end - 1].end]
        return Sql(text, self._placeholders + before)

    def is_placeholder(self, token: Token) -> bool:
        """Whether a token is `?`."""
        return token.kind == "parameter" and self.text[token.start] == "?"

    def names(self, what: str) -> tuple[str, ...]:
        """Take names in parentheses, with commas between them."""
        self.expect("(")
        names = [self.identifier(what)]
        while self.accept(","):
            names.append(self.identifier(what))
        self.expect(")")
        return tuple(names)


def holds_query(sql: Sql) -> bool:
    """Whether a condition or a value has a subquery; it may also say so of one that has none."""
    if _QUERY.search(sql.text) is None:
        return False
    words = [token.word for token in tokens_of(sql.text)]
    return any(first == "(" and second in _QUERIES for first, second in pairwise(words))


def count_placeholders(text: str, tokens: Iterable[Token]) -> int:
    """Return how many of some tokens are `?`."""
    return sum(token.kind == "parameter" and text[token.start] == "?" for token in tokens)
