"""A condition's text as DuckDB reads and computes it, on a confined database without other data."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.engine.duck.evaluators import current_evaluator
from alluvia.engine.duck.failures import Context, EngineError, translate
from alluvia.engine.duck.literals import free_name
from alluvia.engine.queries.functions import UNNESTING
from alluvia.engine.queries.parse import Analyse, Node, analyse, outside_subqueries, parse, walk, without_locations
from alluvia.engine.queries.references import find_references
from alluvia.errors import Invalid

_WHERE = "SELECT * FROM rows WHERE "
_MASK = "SELECT CAST((\n"
_MASK_END = "\n) AS BOOLEAN) AS mask FROM rows"


class Evaluation:
    """Computes conditions, for which it is always the same time: `now_us`, in µs since the Unix epoch."""

    def __init__(self) -> None:
        self._evaluator = current_evaluator()
        self.now_us = self._evaluator.now_us

    def mask(self, text: str, rows: pa.Table) -> pa.BooleanArray:
        """Return for each row whether a condition holds; null where it is null. Raises `Invalid` where it fails."""
        try:
            mask = self._evaluator.compute(_MASK + text + _MASK_END + known_as(rows.column_names), rows).column(0)
        except EngineError as error:
            raise translate(error.details, Context(text, lambda position: position - len(_MASK))) from None
        if len(mask) != len(rows):
            raise Invalid("where: a condition cannot use aggregates or unnest: use MERGE INTO in lake.sql")
        return mask.combine_chunks().cast(pa.bool_())


def read_expression(text: str, *, subqueries: bool = False, analyse: Analyse = analyse) -> Node:
    """Return a condition's tree; whatever else the text brings along is refused. Raises `Invalid`.

    It may have `subqueries` where a query is to compute it. `analyse` has DuckDB read the text.
    """
    root = parse(_WHERE + text, analyse).root
    mask = parse(_MASK + text + _MASK_END, analyse).root
    expression: Node | None = root.get("where_clause")
    if without_locations({**root, "where_clause": None}) != _rest() or expression is None:
        raise Invalid("where: give one condition, without FROM, ORDER BY or other clauses")
    if without_locations(mask["select_list"][0].get("child")) != without_locations(expression):
        raise Invalid("where: give one condition, without an alias")
    find_references(root)
    if looks_beyond_its_row(expression, subqueries=subqueries):
        raise Invalid(
            "where: a condition cannot use window functions, unnest or *"
            if subqueries
            else "where: a condition cannot use subqueries or window functions: use DELETE or UPDATE in lake.sql"
        )
    return expression


@cache
def _rest() -> Node:
    """Return the tree of a query without its condition, and without positions."""
    rest: Node = without_locations({**parse(_WHERE + "true").root, "where_clause": None})
    return rest


def looks_beyond_its_row(expression: Node, *, subqueries: bool = False) -> bool:
    """Whether an expression needs more than one row, or gives more or less than one value for it.

    What `subqueries` need does not count if they are allowed.
    """
    beyond = ("WINDOW", "STAR") if subqueries else ("SUBQUERY", "WINDOW", "STAR")
    return any(
        node.get("class") in beyond or (node.get("class") == "FUNCTION" and fold(node["function_name"]) in UNNESTING)
        for node in (outside_subqueries(expression) if subqueries else walk(expression))
    )


def known_as(columns: Iterable[str]) -> str:
    """Return what makes the relation `rows` go by a name that no column has, so that `rows.x` means the column's."""
    return f" AS {free_name('rows', columns)}"
