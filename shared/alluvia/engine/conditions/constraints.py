"""CHECK constraints, which a table's log holds as Spark SQL, checked by DuckDB.

Only what both engines compute identically is accepted: comparisons, logic, null tests, lists, ranges, LIKE, sums and
products of columns and literals. A constraint that needs more is refused by name, and the table is read-only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.list_sizes import SIZE_FUNCTION
from alluvia.delta.schema.names import fold
from alluvia.engine.conditions.columnar import definite
from alluvia.engine.conditions.condition import Condition, condition, expression_of
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.engine.duck.literals import quote_name
from alluvia.engine.queries.parse import Node, is_constant, walk
from alluvia.errors import Invalid, Unsupported

_CLASSES = frozenset({"BETWEEN", "CASE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "OPERATOR"})
_OPERATORS = frozenset(
    {"COMPARE_IN", "COMPARE_NOT_IN", "OPERATOR_COALESCE", "OPERATOR_IS_NOT_NULL", "OPERATOR_IS_NULL", "OPERATOR_NOT"}
)
_FUNCTIONS = frozenset({"+", "-", "*", "abs", "coalesce", "length", "array_length", "~~", "!~~"})
_SIZE_IN_DUCKDB = "array_length"
_SHOWN_MAX = 200


class ConstraintCheck:
    """CHECK constraints on rows of `schema`. As in Spark, a constraint must be true: null breaks it.

    Raises `Unsupported`, naming a constraint that cannot be checked here.
    """

    def __init__(self, constraints: Mapping[str, str], schema: pa.Schema) -> None:
        self._names = schema.names
        self._rules = [(name, text, _condition(name, text, schema)) for name, text in constraints.items()]

    def __call__(self, rows: pa.Table) -> None:
        """Raise `Invalid`, naming the constraint, for rows of which one breaks it."""
        for name, text, parsed in self._rules:
            for batch in rows.select(self._names).to_batches():
                broken = pc.invert(definite(parsed.mask(batch)))
                if broken.true_count:
                    row = batch.select(list(parsed.columns)).filter(broken).slice(0, 1).to_pylist()[0]
                    count = f"{broken.true_count} of {len(batch)} rows"
                    msg = f"{count} break the CHECK constraint {name} ({text}), such as {row}"
                    raise Invalid(msg[:_SHOWN_MAX])

    def broken(self, rows: pa.Table) -> dict[int, str]:
        """Return why rows may not be written, by their numbers; one that a constraint fails on breaks it, too."""
        reasons: dict[int, str] = {}
        for name, text, parsed in self._rules:
            start = 0
            for batch in rows.select(self._names).to_batches():
                broken = pc.invert(definite(parsed.lenient_mask(batch)))
                bad = batch.select(list(parsed.columns)).filter(broken).to_pylist()
                for at, row in zip(pc.indices_nonzero(broken).to_pylist(), bad, strict=True):
                    reason = f"the row breaks the CHECK constraint {name} ({text}): {row}"
                    reasons.setdefault(start + at, reason[:_SHOWN_MAX])
                start += len(batch)
        return reasons


def columns_of_constraint(name: str, text: str, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that a constraint is about. Raises `Unsupported` for one that cannot be checked here."""
    return _condition(name, text, schema).columns


def _condition(name: str, text: str, schema: pa.Schema) -> Condition:
    translated = _translated(name, text)
    try:
        expression = expression_of(translated, subqueries=True)
        strange = next((node for node in walk(expression) if "class" in node and not _is_known(node)), None)
        if strange is not None:
            what = strange.get("function_name") or strange["type"]
            raise _unsupported(name, text, f"{what} may mean another thing there")
        return condition(translated, schema)
    except QueryTooCostly:
        raise
    except Invalid as error:
        raise _unsupported(name, text, str(error).splitlines()[0]) from error


def _is_known(node: Node) -> bool:
    kind = node["class"]
    if kind == "CAST":
        return is_constant(node["child"]) and node["cast_type"]["id"] in ("BOOLEAN", "DATE")
    if kind == "FUNCTION":
        return fold(node["function_name"]) in _FUNCTIONS
    return kind in _CLASSES and (kind != "OPERATOR" or node["type"] in _OPERATORS)


def _translated(name: str, text: str) -> str:
    """Return Spark's text as DuckDB's: names in backticks get double quotes, and the size of an array DuckDB's name."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        mark = text[at]
        if mark in '"\\':
            raise _unsupported(name, text, f"{mark} is read in another way there")
        if text.startswith(f"{SIZE_FUNCTION}(", at):
            parts.append(_SIZE_IN_DUCKDB)
            at += len(SIZE_FUNCTION)
            continue
        if mark not in "'`":
            parts.append(mark)
            at += 1
            continue
        end = text.find(mark, at + 1)
        inside = text[at + 1 : end]
        if end < 0 or "\\" in inside:
            raise _unsupported(name, text, "a quoted text cannot be read here")
        parts.append(f"'{inside}'" if mark == "'" else quote_name(inside))
        at = end + 1
    return "".join(parts)


def _unsupported(name: str, text: Any, reason: str) -> Unsupported:
    return Unsupported(f"the table has the CHECK constraint {name} ({text}), which cannot be checked here: {reason}")
