"""Which statements of a request may run, over HTTP and Flight SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alluvia.errors import Forbidden
from alluvia.sql.grammar.first_word import is_query

if TYPE_CHECKING:
    from alluvia.sql.grammar.statements import SqlStatement

WRITES_ARE_OFF = (
    "To allow writes, start `alluvia serve` with --allow-writes; in AWS, deploy with alluvia:sql_writes=true and send "
    "statements to POST /sql (ALLUVIA_ALLOW_WRITES=true and a role that may write, for a function of your own)"
)
"""The remedy, in errors."""


def allowed_statements(text: str, *, writes: bool) -> list[SqlStatement]:
    """Return the statements of a text; none of one query. Raises `Forbidden` for VACUUM, and writes that may not be."""
    if is_query(text):
        return []  # which loads nothing that reads statements
    from alluvia.sql.grammar.nodes import Query
    from alluvia.sql.grammar.statements import parse

    statements = parse(text)
    for statement in statements:
        name = statement.kind.upper()
        if statement.writes and not writes:
            raise Forbidden(f"{name} writes, and only reads are allowed here. {WRITES_ARE_OFF}")
        if statement.kind == "vacuum":
            raise Forbidden("VACUUM deletes files, which no request may: run `alluvia vacuum`, or the vacuum function")
    return [] if len(statements) == 1 and isinstance(statements[0].node, Query) else statements


def has_writes(text: str) -> bool:
    """Whether a text has statements that are not reads."""
    if is_query(text):
        return False
    from alluvia.sql.grammar.statements import parse

    return any(statement.writes or statement.kind == "vacuum" for statement in parse(text))
