"""The tokens of an SQL text, and a cursor over them. Pure.

Statements that write are read here, token by token. Whatever DuckDB is to compute (a SELECT, a condition, a value) is
cut out of the text as it stands, and read again by DuckDB's own parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from alluvia.delta.arguments import check_text
from alluvia.delta.schema.names import fold
from alluvia.errors import Invalid
from alluvia.table_names import REJECTS

TEXT_LIMIT_BYTES = 256 * 1024
TOKENS_MAX = 100_000
DEPTH_MAX = 100
OPERATOR_LENGTH_MAX = 64
"""DuckDB's parser takes minutes for an operator of thousands of signs, such as `1 +++…+ 1`."""
_SPACES = "\u00a0\u2000-\u200f\u202f\u205f\u2060\u3000\ufeff"
_TOKEN = re.compile(
    rf"""(?P<space>[ \t\r\n\f\v]++|--[^\r\n]*+)
    | (?P<comment>/\*)
    | (?P<text>[eE]'(?:[^'\\]|\\.|'')*+'|'[^']*+(?:''[^']*+)*+'|(?P<quote>\$(?:[^\W\d]\w*+)?\$).*?(?P=quote))
    | (?P<quoted>"(?:[^"]|"")++")
    | (?P<parameter>\$\w++|\?)
    | (?P<number>(?:\d[\d_]*+)?\.?\d[\d_]*+(?:[eE][-+]?\d++)?|\d++\.)
    | (?P<word>[^\W\d][\w$]*+)
    | (?P<strange>[{_SPACES}'"$\0])
    | (?P<sign>::|=>|->>|->|<=|>=|<>|!=|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
_QUERIES = frozenset(
    ("select", "from", "with", "values", "table", "pivot", "unpivot", "show", "describe", "desc", "summarize")
)
_QUERY = re.compile(rf"\b(?:{'|'.join(sorted(_QUERIES))})\b", re.IGNORECASE)
_COMMENT = re.compile(r"/\*|\*/")
_OPERATORS = frozenset((*"-+*/<>=~!@#%^&|`?:", "::", "=>", "->>", "->", "<=", ">=", "<>", "!=", "||"))
_OPENING, _CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


class Unfinished(Invalid):
    """A quote or a comment is opened, and never closed."""


class Token(NamedTuple):
    """A token: its kind (`word`, `quoted`, `text`, `number`, `parameter` or `sign`), and where it is in the text.

    `word` is the text of a word, folded, or of a sign; empty for anything else.
    """

    kind: str
    word: str
    start: int
    end: int


class Sql(NamedTuple):
    """A piece of a text that DuckDB reads. `placeholders` counts the `?` in the text before it."""

    text: str
    placeholders: int = 0


def tokens_of(text: str) -> list[Token]:
    """Return a text's tokens. Raises `Invalid` for a text that is too long, nested too deeply, or broken off."""
    check_size(text)
    found: list[Token] = []
    at, closing, operator_from = 0, [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        kind = "" if match is None or match.lastgroup is None else match.lastgroup
        if match is None or kind == "strange":
            if text.startswith('""', at):
                raise Invalid(f"{_place(text, at)}: a name in quotes is empty")
            error = Unfinished if text[at] in "'\"$" else Invalid
            raise error(f"{_place(text, at)}: {_strange(text[at])}")
        start, at = at, match.end()
        if kind == "comment":
            at = _comment_end(text, start)
        elif kind != "space":
            shown = match[0]
            if shown in _OPENING:
                closing.append(_OPENING[shown])
                if len(closing) > DEPTH_MAX:
                    raise Invalid(f"{_place(text, start)}: the SQL is nested more than {DEPTH_MAX} levels deep")
            elif shown in _CLOSING and (not closing or closing.pop() != shown):
                raise Invalid(f"{_place(text, start)}: {shown!r} closes nothing that is open")
            elif shown not in _OPERATORS or not found or found[-1].end < start or found[-1].word not in _OPERATORS:
                operator_from = start
            elif at - operator_from > OPERATOR_LENGTH_MAX:
                raise Invalid(f"{_place(text, operator_from)}: an operator has more than {OPERATOR_LENGTH_MAX} signs")
            found.append(Token(kind, fold(shown) if kind == "word" else shown if kind == "sign" else "", start, at))
            if len(found) > TOKENS_MAX:
                raise Invalid(f"the SQL has more than {TOKENS_MAX} words and signs: send the rows as a file instead")
    if closing:
        raise Invalid(f"{_place(text, len(text))}: the SQL ends where {closing[-1]!r} is missing")
    return found


def check_size(text: object) -> None:
    """Raise `Invalid` unless it is a text that is not too long."""
    check_text("query", text, "SELECT 1")
    assert isinstance(text, str)  # noqa: S101 - `check_text` has seen to it
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    if size > TEXT_LIMIT_BYTES:
        raise Invalid(f"the query has {size} bytes, more than the limit of {TEXT_LIMIT_BYTES}: shorten it")


def _strange(mark: str) -> str:
    if mark in "'\"$":
        return "a quote that is opened here is never closed"
    if mark == "\0":
        return "the query contains a NUL character: remove it"
    return f"the query contains a U+{ord(mark):04X} outside quotes: replace it with a plain space, or remove it"


def _comment_end(text: str, start: int) -> int:
    depth = 0
    for found in _COMMENT.finditer(text, start):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return found.end()
        if depth > DEPTH_MAX:
            raise Invalid(f"{_place(text, start)}: comments are nested more than {DEPTH_MAX} levels deep")
    raise Unfinished(f"{_place(text, start)}: a comment that is opened here is never closed")


def _place(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - text.rfind(chr(10), 0, at)}"


class Cursor:
    """Reads the tokens of one statement from the front. Raises `Invalid`, with the place, for what does not fit."""

    def __init__(self, text: str, tokens: Sequence[Token], placeholders: int = 0) -> None:
        self.text = text
        self._tokens = tokens
        self._placeholders = placeholders
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
            return Invalid(f"{_place(self.text, len(self.text))}: expected {expected}, but the statement ends")
        token = self._tokens[self.at]
        shown = self.text[token.start : token.end]
        return Invalid(f"{_place(self.text, token.start)}: expected {expected}, got {shown:.50}")

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
        """Take the lake's name of a table: `t`, or `t._rejects`."""
        name = fold(self.identifier(what))
        if not self.accept("."):
            return name
        if fold(self.identifier(what)) != REJECTS:
            raise Invalid(f"{name}: a lake has no schemas or catalogs: write the name of the table alone")
        return f"{name}/{REJECTS}"

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
            depth += 1 if word in _OPENING else -1 if word in _CLOSING else 0
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
        found = [self.identifier(what)]
        while self.accept(","):
            found.append(self.identifier(what))
        self.expect(")")
        return tuple(found)


def holds_query(sql: Sql) -> bool:
    """Whether a condition or a value has a subquery; it may also say so of one that has none."""
    if _QUERY.search(sql.text) is None:
        return False
    words = [token.word for token in tokens_of(sql.text)]
    return any(first == "(" and second in _QUERIES for first, second in pairwise(words))


def count_placeholders(text: str, tokens: Iterable[Token]) -> int:
    """Return how many of some tokens are `?`."""
    return sum(token.kind == "parameter" and text[token.start] == "?" for token in tokens)
