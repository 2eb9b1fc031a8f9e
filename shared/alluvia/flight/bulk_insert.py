"""Many rows of values for one INSERT: as one write, which makes one file and not one for each row. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.query.parameters import arrow_row, named_values
from alluvia.sql.grammar.nodes import Insert
from alluvia.sql.grammar.statements import SqlStatement
from alluvia.sql.grammar.tokens import tokens_of

Values = Mapping[str, Any]


def as_rows(statements: Sequence[SqlStatement], sets: Sequence[Values | None]) -> tuple[Insert, pa.Table] | None:
    """Return an INSERT and the rows that it writes, where its VALUES are parameters and nothing else.

    None for any other statement, where the values of a parameter differ in type, and where a row has other values than
    the statement has parameters: then each row is a statement, which says what is wrong.
    """
    node = statements[0].node if len(statements) == 1 else None
    if len(sets) < 2 or not isinstance(node, Insert) or not node.is_values or node.source is None:
        return None
    names = _only_parameters(node.source.text)
    rows = [each for each in sets if each is not None and each.keys() == set(names)]
    if not names or len(rows) < len(sets):
        return None
    values = {str(at): [each[name] for each in rows] for at, name in enumerate(names)}
    try:
        lists = arrow_row(named_values(values))
    except Invalid:
        return None
    columns = {name: cast("pa.ListArray", lists[name].combine_chunks()).flatten() for name in values}
    return node, pa.table(columns)


def _only_parameters(text: str) -> list[str]:
    """Return the names of the parameters in `VALUES (?, …)`; none if there is anything else."""
    tokens = [token for token in tokens_of(text) if token.word != ";"]
    words = [token.word for token in tokens]
    parameters, commas = tokens[2:-1:2], words[3:-1:2]
    if words[:2] != ["values", "("] or words[-1:] != [")"] or len(parameters) != len(commas) + 1:
        return []
    if any(token.kind != "parameter" for token in parameters) or any(word != "," for word in commas):
        return []
    return [text[token.start + 1 : token.end] or str(at) for at, token in enumerate(parameters, 1)]
