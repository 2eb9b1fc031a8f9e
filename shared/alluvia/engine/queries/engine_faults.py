"""Queries for which DuckDB 1.5 returns wrong rows: they are refused, or run without the faulty optimizer rule. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from alluvia.engine.queries.parse import Node, walk
from alluvia.errors import Invalid

TOP_N = "top_n"
"""DuckDB's rule that stops early to read rows for ORDER BY with LIMIT.

It keeps the rows that it has so far as a condition on the column below a cast. Where the cast is to a smaller kind of
whole numbers, that condition is wrong, and it leaves out rows that belong to the answer.
"""
_WHOLE = frozenset(f"{sign}{name}" for sign in ("", "U") for name in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"))
_CONDITIONS = ("where_clause", "having", "qualify", "condition", "when_expr", "filter")


def rules_left_out(root: Node, *, of_views: bool) -> tuple[str, ...]:
    """Return the rules of DuckDB's optimizer that give wrong rows for a query.

    `of_views` says that it reads relations made of other queries, whose casts are not in it.
    """
    kinds = {modifier["type"] for node in walk(root) for modifier in node.get("modifiers") or ()}
    sorts = "ORDER_MODIFIER" in kinds and any(kind.startswith("LIMIT") for kind in kinds)
    casts = of_views or any(node.get("class") == "CAST" and node["cast_type"]["id"] in _WHOLE for node in walk(root))
    return (TOP_N,) if sorts and casts else ()


def check_row_values(root: Node) -> None:
    """Raise `Invalid` for a row of values that is looked for among a subquery's where a null in one may decide.

    DuckDB takes a null in any value of a row for one in all of them, also where another value tells the rows apart.
    A condition that must be true for rows is safe: in it, unknown and false are alike.
    """
    safe = {id(node) for condition in _conditions(root) for node in _parts(condition)}
    for node in walk(root):
        rows = node.get("class") == "SUBQUERY" and node.get("subquery_type") == "ANY" and _is_row(node.get("child"))
        if rows and (id(node) not in safe or node.get("comparison_type") != "COMPARE_EQUAL"):
            raise Invalid(
                "(a, b) NOT IN (SELECT …), and other comparisons of a row of values with those of a subquery, give "
                "wrong answers where one of the values is null: write NOT EXISTS (SELECT 1 FROM … WHERE x = a AND "
                "y = b); (a, b) IN (SELECT …) is possible as a condition that is neither negated nor part of a value"
            )


def _conditions(root: Node) -> Iterator[Node]:
    for node in walk(root):
        for name in _CONDITIONS:
            if isinstance(condition := node.get(name), dict):
                yield condition


def _parts(condition: Node) -> Iterator[Node]:
    """Yield a condition, and those that AND and OR make it of."""
    pending = [condition]
    while pending:
        node = pending.pop()
        yield node
        if node.get("class") == "CONJUNCTION":
            pending.extend(node["children"])


def _is_row(node: object) -> bool:
    return isinstance(node, dict) and node.get("class") == "FUNCTION" and node.get("function_name") == "row"
