"""The tokens of an SQL text, read alike for statements, queries and the prompt. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from alluvia.delta.arguments import check_text
from alluvia.delta.schema.names import fold
from alluvia.errors import Invalid

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
    | (?P<parameter>\$(?![^\W\d]\w*+\$)\w++|\?)
    | (?P<number>(?:\d[\d_]*+)?\.?\d[\d_]*+(?:[eE][-+]?\d++)?|\d++\.)
    | (?P<word>(?![eE]')[^\W\d][\w$]*+)
    | (?P<strange>[{_SPACES}'"$\0]|[eE])
    | (?P<sign>::|:=|=>|->>|->|<=|>=|<>|!=|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"/\*|\*/")
_OPERATORS = frozenset((*"-+*/<>=~!@#%^&|`?:", "::", ":=", "=>", "->>", "->", "<=", ">=", "<>", "!=", "||"))
OPENING, CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


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

    @property
    def is_name(self) -> bool:
        """Whether it is a word or a name in quotes."""
        return self.kind in ("word", "quoted")


def tokens_of(text: str) -> list[Token]:
    """Return a text's tokens. Raises `Invalid` for a text that is too long, nested too deeply, or broken off."""
    check_size(text)
    tokens: list[Token] = []
    at, closing, operator_from = 0, [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        kind = "" if match is None or match.lastgroup is None else match.lastgroup
        if match is None or kind == "strange":
            at += text[at] in "eE"  # the quote of a text with escapes
            if text.startswith('""', at):
                raise Invalid(f"{place_in(text, at)}: a name in quotes is empty")
            error = Unfinished if text[at] in "'\"$" else Invalid
            raise error(f"{place_in(text, at)}: {_strange(text[at])}")
        start, at = at, match.end()
        if kind == "comment":
            at = _comment_end(text, start)
        elif kind != "space":
            shown = match[0]
            if shown in OPENING:
                closing.append(OPENING[shown])
                if len(closing) > DEPTH_MAX:
                    raise Invalid(f"{place_in(text, start)}: the SQL is nested more than {DEPTH_MAX} levels deep")
            elif shown in CLOSING and (not closing or closing.pop() != shown):
                raise Invalid(f"{place_in(text, start)}: {shown!r} closes nothing that is open")
            elif shown not in _OPERATORS or not tokens or tokens[-1].end < start or tokens[-1].word not in _OPERATORS:
                operator_from = start
            elif at - operator_from > OPERATOR_LENGTH_MAX:
                raise Invalid(f"{place_in(text, operator_from)}: an operator has more than {OPERATOR_LENGTH_MAX} signs")
            tokens.append(Token(kind, fold(shown) if kind == "word" else shown if kind == "sign" else "", start, at))
            if len(tokens) > TOKENS_MAX:
                raise Invalid(f"the SQL has more than {TOKENS_MAX} words and signs: send the rows as a file instead")
    if closing:
        raise Invalid(f"{place_in(text, len(text))}: the SQL ends where {closing[-1]!r} is missing")
    return tokens


def whole_tokens(text: str) -> list[Token]:
    """Return a text's tokens; none of a text that is broken off, which DuckDB refuses with its own reason."""
    try:
        return tokens_of(text)
    except Invalid:
        return []


def masked(text: str) -> str:
    """Return an SQL expression with `?` for each text and number, and without comments.

    Where it cannot be told which part is a value, all of it is `?`.
    """
    try:
        shown = _TOKEN.sub(_shown, _without_comments(text) if "/*" in text else text)
    except Invalid:
        return "?"
    return " ".join(shown.split())


def _shown(token: re.Match[str]) -> str:
    kind, shown = token.lastgroup, token[0]
    if kind in ("text", "number"):
        return "?"
    if kind == "word":
        start, end = token.span()
        before, after = token.string[max(start - 1, 0) : start], token.string[end : end + 1]
        is_part_of_value = before.isalnum() or before == "_" or (after == "'" and fold(shown) in ("b", "e", "x"))
        return "" if is_part_of_value else shown  # as of 0x1F and x'1f'
    if kind == "strange" and shown in "'\"$":
        raise Unfinished(_strange(shown))
    return " " if kind in ("space", "strange") else shown


def _without_comments(text: str) -> str:
    kept, at = list[str](), 0
    while (token := _TOKEN.match(text, at)) is not None:
        is_comment = token.lastgroup == "comment"
        kept.append(" " if is_comment else token[0])
        at = _comment_end(text, at) if is_comment else token.end()
    return "".join(kept)


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
    for mark in _COMMENT.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
        if depth > DEPTH_MAX:
            raise Invalid(f"{place_in(text, start)}: comments are nested more than {DEPTH_MAX} levels deep")
    raise Unfinished(f"{place_in(text, start)}: a comment that is opened here is never closed")


def place_in(text: str, at: int) -> str:
    """Return the line and the column of an offset, as errors name them."""
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - text.rfind(chr(10), 0, at)}"
