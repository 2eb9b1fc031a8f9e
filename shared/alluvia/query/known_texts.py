"""The syntax of the queries that were sent last: consoles and published queries send the same texts again.

A tree never changes once it is made, so that several queries may use one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alluvia.engine.queries.field_reads import FieldRead
from alluvia.engine.queries.parse import Analyse, Statement, parse
from alluvia.engine.queries.references import Reference, References, find_references
from alluvia.engine.queries.rewrite import Rewritten, rewrite
from alluvia.recent import Recent

STATEMENTS_KEPT = 128
TEXT_KEPT_CHARS_MAX = 4096
_STATEMENTS: Recent[str, Statement] = Recent(STATEMENTS_KEPT)
_REFERENCES: Recent[tuple[str, bool], tuple[Statement, References]] = Recent(STATEMENTS_KEPT)
_REWRITTEN: Recent[tuple[object, ...], tuple[Statement, Rewritten]] = Recent(STATEMENTS_KEPT)


def known_statement(text: str) -> Statement | None:
    """Return a query, parsed; None if it was not sent of late."""
    return _STATEMENTS.get(text)


def parsed(text: str, analyse: Analyse) -> Statement:
    """Return a query, parsed. Raises what `parse` does."""
    statement = known_statement(text)
    if statement is None:
        statement = parse(text, analyse)
        if len(text) <= TEXT_KEPT_CHARS_MAX:
            _STATEMENTS.keep(text, statement)
    return statement


def references_of(statement: Statement, *, parameters: bool) -> References:
    """Return the tables that a query names. Raises what `find_references` does."""
    key = (statement.text, parameters)
    known = _REFERENCES.get(key)
    if known is not None and known[0] is statement:
        return known[1]
    references = find_references(statement.root, parameters=parameters)
    if len(statement.text) <= TEXT_KEPT_CHARS_MAX:
        _REFERENCES.keep(key, (statement, references))
    return references


def rewritten(
    statement: Statement, views: Mapping[Reference, str], analyse: Analyse, fields: Sequence[FieldRead]
) -> Rewritten:
    """Return the text to run. Raises what `rewrite` does."""
    put = tuple((id(reference.node), view) for reference, view in views.items())
    key = (statement.text, put, tuple((id(each.node), each.path, each.column, each.alias) for each in fields))
    known = _REWRITTEN.get(key)
    if known is not None and known[0] is statement:
        return known[1]
    text = rewrite(statement, views, analyse, fields)
    if len(statement.text) <= TEXT_KEPT_CHARS_MAX:
        _REWRITTEN.keep(key, (statement, text))
    return text
