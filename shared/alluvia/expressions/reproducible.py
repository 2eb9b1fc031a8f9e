"""What in a query keeps the same rows of one table from giving the same result, or one row for each group. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from alluvia.duck.connection import planner
from alluvia.expressions.functions import NOW_FUNCTIONS, TODAY_FUNCTIONS, UNNESTING
from alluvia.expressions.tree import Node, walk
from alluvia.table.schema.names import fold

_IN_ORDER = frozenset({"any_value", "arbitrary", "first", "first_value", "last", "last_value", "nth_value"})
"""Aggregates whose value depends on the order in which rows come, unless they say it."""
_MOVING = NOW_FUNCTIONS | TODAY_FUNCTIONS | {"ago", "current_time", "localtime", "localtimestamp", "reservoir_quantile"}


def clauses(root: Node) -> Iterator[str]:
    """Yield the clauses of a query by which a row may depend on more than the rows of its group in one table."""
    if root["type"] != "SELECT_NODE":
        yield "UNION, INTERSECT and EXCEPT"
        return
    source = root["from_table"]
    modifiers = {modifier["type"] for modifier in root["modifiers"]}
    present: list[tuple[object, str]] = [
        (root["cte_map"]["map"], "WITH"),
        (source["type"] == "JOIN", "a join"),
        (source["type"] == "SUBQUERY", "a subquery"),
        (source["type"] == "EMPTY", "a SELECT without FROM"),
        (source.get("column_name_alias"), "other names for the table's columns"),
        (source.get("sample") or root["sample"], "a sample"),
        ("DISTINCT_MODIFIER" in modifiers, "DISTINCT"),
        ("ORDER_MODIFIER" in modifiers, "ORDER BY"),
        (modifiers & {"LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER"}, "LIMIT"),
        (root["having"], "HAVING"),
        (root["qualify"], "QUALIFY"),
        (len(root["group_sets"]) > 1, "GROUPING SETS, ROLLUP and CUBE"),
        (root["aggregate_handling"] != "STANDARD_HANDLING", "GROUP BY ALL"),
    ]
    yield from (what for found, what in present if found)


def expressions(root: Node) -> Iterator[tuple[str, str]]:
    """Yield the expressions of a query that may give another value for the same rows, or more than one row.

    With each comes why: `subquery`, `window`, `star`, `changes`, `order` or `rows`.
    """
    for node in walk(root):
        kind = node.get("class")
        if kind in ("SUBQUERY", "WINDOW", "STAR"):
            yield {"SUBQUERY": "a subquery", "WINDOW": "a window function", "STAR": "*"}[kind], str(kind).lower()
        elif kind == "FUNCTION":
            yield from _function(node)
        elif kind == "COLUMN_REF" and len(node["column_names"]) == 1 and fold(node["column_names"][0]) in _MOVING:
            yield node["column_names"][0], "changes"


def _function(node: Node) -> Iterator[tuple[str, str]]:
    name = fold(node["function_name"])
    if name in _changing() or (name == "age" and len(node["children"]) == 1):
        yield f"{name}()", "changes"
    elif name in _IN_ORDER and not node["order_bys"]["orders"]:
        yield f"{name}()", "order"
    elif name in UNNESTING:
        yield f"{name}()", "rows"


@cache
def _changing() -> frozenset[str]:
    """Return the functions that DuckDB says do not always give the same value for the same arguments."""
    rows = planner().execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT'")
    return _MOVING | {fold(name) for (name,) in rows.fetchall()}
