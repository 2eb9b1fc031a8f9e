"""Names with the schema that all tables are in: `main.t.id`, and `memory.main.t.id`, mean the column `t.id`. Pure.

Tools write columns so. A query knows its tables by names of one part, so the schema is blanked, and no position moves.
How `main.t` names a table is decided in `table_names`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.tokens import Token, whole_tokens
from alluvia.table_names import DATABASE, SCHEMA

_HINT = re.compile(rf'\b{SCHEMA}"?\s*\.', re.IGNORECASE)


def without_schema(text: str) -> str:
    """Return a text with spaces for the schema in front of columns of tables.

    A text that calls something else `main` is not changed: there, `main.a.b` may be a field of a column.
    """
    if _HINT.search(text) is None:
        return text
    tokens = whole_tokens(text)
    named = [at for at, token in enumerate(tokens) if name_of(text, token) == SCHEMA]
    if not all(_word(tokens, at + 1) == "." for at in named):
        return text
    for start, end in reversed(list(_prefixes(text, tokens, named))):
        text = f"{text[:start]}{' ' * len(text[start:end].encode())}{text[end:]}"
    return text


def _prefixes(text: str, tokens: Sequence[Token], named: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where `main.` stands in front of a column with its table."""
    for at in named:
        is_column = _word(tokens, at + 3) == "." and (_is_name(tokens, at + 4) or _word(tokens, at + 4) == "*")
        first = at
        if at >= 2 and tokens[at - 1].word == ".":
            first = at - 2
            if name_of(text, tokens[first]) != DATABASE or _word(tokens, first - 1) == ".":
                continue
        if is_column and _is_name(tokens, at + 2):
            yield tokens[first].start, tokens[at + 1].end


def _word(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].word if 0 <= at < len(tokens) else ""


def _is_name(tokens: Sequence[Token], at: int) -> bool:
    return at < len(tokens) and tokens[at].is_name


def name_of(text: str, token: Token) -> str:
    """Return the name that a token is, folded; empty if it is none."""
    if token.kind == "quoted":
        return fold(text[token.start + 1 : token.end - 1].replace('""', '"'))
    return token.word if token.kind == "word" else ""
