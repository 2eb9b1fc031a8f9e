"""Conditions of declarations on one row: those of expectations, and DELETE WHEN. Pure."""

from __future__ import annotations

from alluvia.delta.schema.names import fold
from alluvia.engine.conditions.sql_condition import read_expression
from alluvia.engine.queries.parse import Node, walk
from alluvia.engine.queries.reproducible import changes
from alluvia.errors import Invalid
from alluvia.pipelines.declarations.declaration import Declaration
from alluvia.pipelines.queries.from_clauses import aggregates


def check_conditions(declaration: Declaration) -> None:
    """Raise `Invalid`, naming it, unless each is a condition on one row that means the same each time."""
    for each in declaration.expectations:
        _check(declaration, f"expectation {each.name}", each.condition)
    if declaration.sequencing is not None and declaration.sequencing.delete_when is not None:
        _check(declaration, "DELETE WHEN", declaration.sequencing.delete_when)


def _check(declaration: Declaration, what: str, text: str) -> None:
    try:
        node = read_expression(text)
    except Invalid as error:
        reason = str(error).removeprefix("where: ").partition(": use DELETE")[0]
        raise declaration.wrong(f"{what}: {reason}") from error
    for each in walk(node):
        if changes(each):
            raise declaration.wrong(f"{what}: its value changes by itself, so that a row would pass at times")
        if _is_aggregate(each):
            raise declaration.wrong(f"{what}: {each['function_name']}() is about several rows: give a condition on one")


def _is_aggregate(node: Node) -> bool:
    return node.get("class") == "FUNCTION" and fold(node["function_name"]) in aggregates()
