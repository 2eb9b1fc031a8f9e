"""From an SQL text to its statements. Pure.

A text that is one SELECT is left to DuckDB as it stands: only its first word is looked at here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from alluvia.engine.queries.schema_names import without_schema
from alluvia.engine.queries.tokens import Token, check_size, tokens_of
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.sql.grammar.cursor import Cursor, Sql, count_placeholders
from alluvia.sql.grammar.first_word import QUERIES, first_word, is_query
from alluvia.sql.grammar.nodes import (
    AlterTable,
    Attach,
    Clone,
    Comment,
    Control,
    CreateBranch,
    CreateSchema,
    CreateStream,
    CreateTable,
    CreateTag,
    CreateView,
    Delete,
    DropBranch,
    DropSchema,
    DropStream,
    DropTable,
    DropTag,
    DropView,
    External,
    Insert,
    Maintain,
    Merge,
    Node,
    PublishBranch,
    Query,
    RestoreLake,
    Show,
    Update,
    reads_more,
)

STATEMENTS_MAX = 1000
_READS = re.compile(r"\b(?:select|from|table)\b", re.IGNORECASE)
_SHOWS = frozenset({"show", "describe", "desc"})


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """One statement of a text: `writes` unless it only reads; `kind` is its first word, or words, such as `insert`."""

    kind: str
    writes: bool
    text: str
    node: Node

    @property
    def alone(self) -> bool:
        """Whether no transaction can hold it."""
        of_lakes = (Attach | External | Clone | CreateView | DropView | CreateSchema | DropSchema) | (
            CreateStream | DropStream | CreateTag | DropTag | CreateBranch | DropBranch | PublishBranch | RestoreLake
        )
        return isinstance(self.node, of_lakes | Maintain) or (
            isinstance(self.node, Comment) and self.node.kind == "view"
        )

    @property
    def defines(self) -> bool:
        """Whether it may be in a text that sets up a lake, statement by statement. None replaces rows of a table."""
        if isinstance(self.node, CreateTable):
            return not self.node.or_replace
        carries_on = isinstance(self.node, PublishBranch | RestoreLake | Maintain)
        return (self.alone and not carries_on) or isinstance(self.node, AlterTable | DropTable | Comment)

    @property
    def needs_transaction(self) -> bool:
        """Whether it reads tables before it writes, or writes twice, so that it needs a transaction even alone."""
        node = self.node
        if isinstance(node, Insert):
            reads = node.source is not None and _READS.search(node.source.text) is not None
            return node.source is not None and (reads or not node.is_values)
        if isinstance(node, Delete | Update):
            return reads_more(node)
        return isinstance(node, Merge) or (
            isinstance(node, CreateTable) and (node.query is not None or node.or_replace)
        )

    @property
    def controls(self) -> bool:
        """Whether it begins or ends a transaction."""
        return isinstance(self.node, Control)


def parse(text: str) -> list[SqlStatement]:
    """Return the statements of a text. Raises `Invalid`, with the place, for one that cannot be read or is refused.

    What is wrong within a SELECT shows when it runs.
    """
    check_size(text)
    text = without_schema(text)
    word = first_word(text)
    if is_query(text):
        return [_query(word, text)]
    try:
        tokens = tokens_of(text)
    except Invalid:
        if word in QUERIES or word in _SHOWS:  # DuckDB takes more, or has a better message for it
            return [_query(word, text)]
        raise
    parts = list(_parts(tokens))
    if len(parts) <= 1 and word in QUERIES:
        return [_query(word, text)]
    if len(parts) > STATEMENTS_MAX:
        raise Invalid(
            f"the text has {len(parts)} statements, more than the limit of {STATEMENTS_MAX}: send several texts"
        )
    _check_placeholders(text, tokens)
    statements, before = [], 0
    for part in parts:
        statements.append(_statement(text, part, before))
        before += count_placeholders(text, part)
    return statements


def _query(word: str, text: str, placeholders: int = 0) -> SqlStatement:
    return SqlStatement(
        "select" if word in ("", "(") else word, writes=False, text=text, node=Query(Sql(text, placeholders))
    )


def _parts(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield the tokens of each statement; empty ones are left out."""
    first = 0
    for at, token in enumerate(tokens):
        if token.word == ";":
            if at > first:
                yield tokens[first:at]
            first = at + 1
    if first < len(tokens):
        yield tokens[first:]


def _check_placeholders(text: str, tokens: Sequence[Token]) -> None:
    kinds = {
        text[token.start + 1 : token.end][:1].isdigit() or text[token.start]
        for token in tokens
        if token.kind == "parameter"
    }
    if "?" in kinds and len(kinds) > 1:
        raise Invalid("the SQL has both ? and named parameters: use one kind")


def _statement(text: str, tokens: Sequence[Token], placeholders: int) -> SqlStatement:
    shown = text[tokens[0].start : tokens[-1].end]
    first = tokens[0].word
    cursor = Cursor(text, tokens, placeholders)
    if first in _SHOWS:
        asked = _show(cursor)
        if asked is None:
            return _query(first, shown, placeholders)
        return SqlStatement(asked.what, writes=False, text=shown, node=asked)
    if first in QUERIES:
        return _query(first, shown, placeholders)
    from alluvia.sql.grammar.grammar import READERS, refuse  # loads what reads statements that write
    from alluvia.sql.grammar.targets import without_schemas

    if first not in READERS:
        refuse(cursor)
        return _query(first or "unknown", shown, placeholders)
    text, tokens, known_as = without_schemas(text, tokens)
    cursor = Cursor(text, tokens, placeholders, known_as)
    kind, node = READERS[first](cursor)
    cursor.end()
    return SqlStatement(kind, writes=not isinstance(node, Control), text=shown, node=node)


def _show(cursor: Cursor) -> Show | None:
    """Return what is shown of the lake itself; None for what DuckDB answers."""
    if cursor.accept("show", "schemas"):
        node = Show("show schemas")
    elif cursor.accept("show", "tables", "from") or cursor.accept("show", "tables", "in"):
        node = Show("show tables", cursor.schema())
    elif cursor.accept("show", "views"):
        node = Show("show views")
    elif cursor.accept("show", "streams"):
        node = Show("show streams")
    elif cursor.accept("show", "create"):
        if not cursor.accept("table"):
            cursor.expect("view")
        node = Show("show create", cursor.table())
    elif cursor.word() in ("describe", "desc") and cursor.word(1) in ("detail", "history") and _is_name(cursor, 2):
        what = cursor.word(1)
        cursor.at += 2
        cursor.accept("table")
        name = cursor.table()
        limit = cursor.number("LIMIT") if what == "history" and cursor.accept("limit") else None
        node = Show(f"describe {what}", name, limit)
    else:
        return None
    cursor.end()
    return node


def _is_name(cursor: Cursor, ahead: int) -> bool:
    at, cursor.at = cursor.at, cursor.at + ahead
    there = not cursor.ended
    cursor.at = at
    return there
