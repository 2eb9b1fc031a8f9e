"""The texts that stand alone as values in the rows of VALUES. Pure.

DuckDB gives all rows of VALUES one type a column before anybody can tell it the table's: of 1 and '2.75' it makes 1 and
3. So the texts are taken out, and each becomes a value of its column by itself. Those in lists and structs are marked
as texts, so that DuckDB does not make numbers of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from alluvia.query.parameters import Values
from alluvia.sql.binding import parameters
from alluvia.sql.grammar.tokens import Sql, Token, tokens_of

_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
Texts = Mapping[int, Mapping[int, str]]
"""By column, then by row."""


def without_texts(source: Sql, values: Values) -> tuple[Sql, Texts]:
    """Return VALUES with NULL for texts that are values alone, and these; parameters with a text are such, too.

    Texts that are values in a list or a struct are cast to VARCHAR.
    """
    tokens = tokens_of(source.text)
    named = {start: name for start, _, name in parameters(source, tokens)}
    found: dict[int, dict[int, str]] = {}
    edits = []
    for row, column, token in _alone(tokens):
        shown = source.text[token.start : token.end]
        text = values.get(named[token.start]) if token.start in named else _content(shown)
        if isinstance(text, str):
            found.setdefault(column, {})[row] = text
            # A parameter stays where it is, since others are counted after it.
            edits.append((token, f"CASE WHEN {shown} IS NULL THEN NULL END" if token.start in named else "NULL"))
    edits += [(token, f"{source.text[token.start : token.end]}::VARCHAR") for token in _within(tokens)]
    edits.sort(key=lambda edit: edit[0].start)
    text = source.text
    for token, new in reversed(edits):
        text = f"{text[: token.start]}{new}{text[token.end :]}"
    return source._replace(text=text), found


def _alone(tokens: Sequence[Token]) -> Iterator[tuple[int, int, Token]]:
    """Yield the texts and parameters that are all of a value, with row and column; none if more than rows follows."""
    row, column, depth = -1, 0, 0
    found = []
    for at, token in enumerate(tokens[1:], 1):
        if token.word in _OPENING:
            depth += 1
            if depth == 1:
                row, column = row + 1, 0
        elif token.word in _CLOSING:
            depth -= 1
        elif token.word == "," and depth == 1:
            column += 1
        elif depth == 0 and token.word != ",":
            return
        elif depth == 1 and token.kind in ("text", "parameter") and _is_alone(tokens, at):
            found.append((row, column, token))
    yield from found


def _within(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the texts that are all of a value in a list or a struct."""
    around: list[str] = []
    for at, token in enumerate(tokens):
        if token.word in _OPENING:
            around.append(token.word)
        elif token.word in _CLOSING and around:
            around.pop()
        elif token.kind == "text" and around and at + 1 < len(tokens):
            starts, ends = {"[": ("[", ","), "{": (":",)}.get(around[-1], ()), ("]", ",", "}")
            if tokens[at - 1].word in starts and tokens[at + 1].word in ends:
                yield token


def _is_alone(tokens: Sequence[Token], at: int) -> bool:
    return tokens[at - 1].word in ("(", ",") and tokens[at + 1].word in (")", ",")


def _content(shown: str) -> str | None:
    """Return what a text in quotes says; None for one with escapes."""
    quote = shown.index("'") if shown[0] in "'eE" else -1
    if quote == 0 or (quote == 1 and "\\" not in shown):
        return shown[quote + 1 : -1].replace("''", "'")
    if shown.startswith("$"):
        mark = shown.index("$", 1) + 1
        return shown[mark:-mark]
    return None
