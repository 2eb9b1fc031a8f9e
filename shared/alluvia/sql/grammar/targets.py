"""Columns that UPDATE, DELETE and MERGE name with the schema of the table: `bronze.t.id` is the column `t.id`. Pure.

The schema is blanked, and no position moves. Where MERGE has two tables of one name, as in
`MERGE INTO silver.t USING bronze.t`, they are known as `silver$t` and `bronze$t`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from alluvia.engine.queries.qualified_columns import joined
from alluvia.engine.queries.schema_names import name_of
from alluvia.engine.queries.tokens import Token
from alluvia.errors import Invalid
from alluvia.table_names import DATABASE, SCHEMA

_TARGETS = {"update": 1, "delete": 2, "merge": 2}
"""The number of words before the table, by the first of them."""
_Parts = tuple[str, ...]


def without_schemas(text: str, tokens: Sequence[Token]) -> tuple[str, Sequence[Token], Mapping[str, str]]:
    """Return a statement and its tokens, in which columns name the tables that it is about in one part.

    Also returned are the names by which it then knows tables without an alias, by their own names, where those differ
    from the last part. Raises `Invalid` where a subquery has a table of such a name.
    """
    first = _TARGETS.get(tokens[0].word)
    tables = [] if first is None else list(_tables(text, tokens, first))
    own_names = [parts[-1] for _, parts in tables]
    edits: dict[int, tuple[int, str]] = {}
    known_as: dict[str, str] = {}
    for _, parts in tables:
        if len(parts) > 1:
            is_ambiguous = own_names.count(parts[-1]) > 1 and len({parts for _, parts in tables}) > 1
            found, name = _columns(text, tokens, tables[-1][0], parts, is_ambiguous=is_ambiguous)
            edits |= {at: (count, name) for at, count in found.items()}
            known_as[".".join(parts)] = name
    kept: list[Token] = []
    dropped = 0
    for at, token in enumerate(tokens):
        if (edit := edits.get(at)) is not None:
            dropped, name = edit
            end = tokens[at + dropped - 1].end
            text = f"{text[: token.start]}{name.rjust(end - token.start)}{text[end:]}"
            kept.append(Token("word", name, end - len(name), end))
        if dropped:
            dropped -= 1
        else:
            kept.append(token)
    return text, kept, known_as


def _tables(text: str, tokens: Sequence[Token], at: int) -> Iterator[tuple[int, _Parts]]:
    """Yield the table that a statement changes, and the one that MERGE uses, if they have no alias.

    Each comes with the number of the token behind it.
    """
    parts, at = _name(text, tokens, at)
    if parts and _word(tokens, at) in ("", "set", "where", "using"):
        yield at, parts
    if tokens[0].word != "merge":
        return
    while at < len(tokens) and tokens[at].word != "using":
        at += 1
    parts, at = _name(text, tokens, at + 1)
    if parts and _word(tokens, at) in ("on", "using"):
        yield at, parts


def _name(text: str, tokens: Sequence[Token], at: int) -> tuple[_Parts, int]:
    """Return the parts of the table's name that begins at a token, and the number of the token behind it."""
    parts = []
    while at < len(tokens) and tokens[at].is_name:
        parts.append(name_of(text, tokens[at]))
        if _word(tokens, at + 1) != ".":
            at += 1
            break
        at += 2
    named = parts[1:] if parts[:1] == [DATABASE] else parts
    return tuple(named[1:] if named[:1] == [SCHEMA] else named), at


def _columns(
    text: str, tokens: Sequence[Token], first: int, parts: _Parts, *, is_ambiguous: bool
) -> tuple[dict[int, int], str]:
    """Return where columns have a table's whole name in front, each with the number of its tokens, and the new name."""
    found: dict[int, int] = {}
    is_read = has_others = False
    for at in range(first, len(tokens)):
        named, behind = _name(text, tokens, at)
        if _word(tokens, at - 1) == "." or not named:
            continue
        if named[: len(parts)] == parts and (len(named) > len(parts) or _word(tokens, behind) == "*"):
            written = 1 + (tokens[at].word == DATABASE)
            found[at] = 2 * (len(parts) + written) - 3
        elif named == parts:
            is_read = True
        elif named[-1] == parts[-1]:
            has_others = True
    if not any(token.word == "select" for token in tokens[first:]):
        is_read = has_others = False
    renamed = is_ambiguous or (has_others and bool(found))
    if renamed and is_read:
        shown = ".".join(parts)
        raise Invalid(f"several tables here are called {parts[-1]}: write AS and a name behind {shown}")
    return found, joined(parts) if renamed else parts[-1]


def _word(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].word if 0 <= at < len(tokens) else ""
