"""A cache of parsed queries: consoles and published queries send the same texts again.

A tree never changes, so several queries can share one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from alluvia.engine.queries.field_reads import FieldRead
from alluvia.engine.queries.parse import Analyse, Statement, parse
from alluvia.engine.queries.references import Reference, References, find_references
from alluvia.engine.queries.rewrite import Rewritten, rewrite
from alluvia.lazy_dataclasses import dataclass
from alluvia.recent import Recent

KEPT_CHARS_MAX = 100_000
"""Total length of all texts. A tree takes about 100 bytes of memory for each character, at most 420."""
TEXT_KEPT_CHARS_MAX = 4096


@dataclass(slots=True)
class _Known:
    """A parsed query, its references with and without parameters, and its last rewritten text."""

    statement: Statement
    references: dict[bool, References] = field(default_factory=dict)
    rewritten: tuple[tuple[object, ...], Rewritten] | None = None


_KNOWN: Recent[str, _Known] = Recent(KEPT_CHARS_MAX)


def known_statement(text: str) -> Statement | None:
    """Return a parsed query; None if the cache does not have it."""
    known = _KNOWN.get(text)
    return None if known is None else known.statement


def parsed(text: str, analyse: Analyse) -> Statement:
    """Return a parsed query. Raises what `parse` does."""
    statement = known_statement(text)
    if statement is None:
        statement = parse(text, analyse)
        if len(text) <= TEXT_KEPT_CHARS_MAX:
            _KNOWN.keep(text, _Known(statement), len(text))
    return statement


def references_of(statement: Statement, *, parameters: bool) -> References:
    """Return the tables that a query names. Raises what `find_references` does."""
    known = _known(statement)
    if parameters not in known.references:
        known.references[parameters] = find_references(statement.root, parameters=parameters)
    return known.references[parameters]


def rewritten(
    statement: Statement, views: Mapping[Reference, str], analyse: Analyse, fields: Sequence[FieldRead]
) -> Rewritten:
    """Return the text to run. Raises what `rewrite` does."""
    known = _known(statement)
    put = tuple((id(reference.node), view) for reference, view in views.items())
    key = (put, tuple((id(each.node), each.path, each.column, each.alias) for each in fields))
    if (last := known.rewritten) is None or last[0] != key:
        last = known.rewritten = key, rewrite(statement, views, analyse, fields)
    return last[1]


def _known(statement: Statement) -> _Known:
    """Return the entry of a query. A query that was expanded from views is new each time, so its entry is not kept."""
    known = _KNOWN.get(statement.text)
    return known if known is not None and known.statement is statement else _Known(statement)
