"""Statements of a request: which of them may run, and running them as one transaction."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia import Lake
from alluvia.access.rights import Rights
from alluvia.errors import CommitUnknown, Forbidden
from alluvia.query.formats import Format, RenderedRows, render
from alluvia.query.parameters import Parameters
from alluvia.sql.grammar.first_word import is_query

from .settings import QuerySettings

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


def run_statements(
    lake: Lake, text: str, parameters: Parameters | None, form: Format, settings: QuerySettings, rights: Rights | None
) -> RenderedRows:
    """Run a text, and return its answer in a form. Nothing is committed if that is too large, or the time is up."""
    from alluvia.sql.run import execute  # which no single query loads

    ready: tuple[pa.Table, RenderedRows] | None = None

    def rendered(answer: pa.Table, limit_bytes: int = settings.result_limit_bytes) -> RenderedRows:
        nonlocal ready
        body = render(answer.schema, answer.to_batches(), form, limit_bytes)
        ready = answer, body
        return body

    try:
        answer = execute(lake, text, parameters, limits=settings.limits, ready=rendered, rights=rights)
    except CommitUnknown as error:
        raise CommitUnknown(f"check whether the statements took effect before you send them again: {error}") from error
    if ready is not None and ready[0] is answer:
        return ready[1]
    return rendered(answer, sys.maxsize)  # one row, with versions that were not known before: nothing may fail now
