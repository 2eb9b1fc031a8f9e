"""What in a query keeps the same rows of one table from giving the same result, or one row for each group. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.functions import UNNESTING, VARYING_FUNCTIONS, VARYING_NAMES
from alluvia.engine.queries.parse import Node, parse, walk, without_locations
from alluvia.errors import Invalid


def varies(root: Node) -> bool:
    """Whether the answer may depend on the time, on chance, or on who asks: where in doubt, it does."""
    return any(_varies(node) for node in walk(root))


def condition_varies(text: str) -> bool:
    """Whether a condition does, given as text."""
    return query_varies(f"SELECT (\n{text}\n)")


@lru_cache(maxsize=256)
def query_varies(text: str) -> bool:
    """Whether a query does, given as text; one that cannot be read does."""
    try:
        return varies(parse(text).root)
    except Invalid:
        return True


def _varies(node: Node) -> bool:
    return node.get("sample") is not None or changes(node)


def changes(node: Node) -> bool:
    """Whether an expression is a call, or a name, of something that changes by itself."""
    kind = node.get("class")
    if kind in ("FUNCTION", "WINDOW"):
        name = fold(node["function_name"])
        return name in VARYING_FUNCTIONS or (name == "age" and len(node["children"]) == 1)
    names: list[str] = node["column_names"] if kind == "COLUMN_REF" else []
    return len(names) == 1 and fold(names[0]) in VARYING_NAMES


_IN_ORDER = frozenset({"any_value", "arbitrary", "first", "first_value", "last", "last_value", "nth_value"})
"""Aggregates whose value depends on the order in which rows come, unless they say it."""
PICKING = frozenset(
    {"arg_max", "arg_max_null", "arg_max_nulls_last", "arg_min", "arg_min_null", "arg_min_nulls_last"}
    | {"argmax", "argmin", "max_by", "min_by"}
)
"""Aggregates that give their first argument where another is highest or lowest: rows that tie decide it."""
_COLLECTING = frozenset(
    {"approx_quantile", "approx_top_k", "array_agg", "group_concat", "json_group_array", "json_group_object"}
    | {"json_group_structure", "list", "listagg", "mode", "string_agg"}
)
"""Other aggregates whose value depends on the order of rows: they keep it, or settle ties or estimates by it."""
_SORTING = frozenset({"array_reverse_sort", "array_sort", "list_reverse_sort", "list_sort"})
"""Functions that sort a list. DuckDB's parser makes `list_sort(list(x))` of `list(x ORDER BY x)`."""


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
    yield from (what for is_there, what in present if is_there)


def expressions(root: Node) -> Iterator[tuple[str, str]]:
    """Yield the expressions of a query that may give another value for the same rows, or more than one row.

    With each comes why: `subquery`, `window`, `star`, `changes`, `rows`; `order` for an aggregate that needs an order
    and has none, and `ties` for one whose order leaves open which of several rows comes first.
    """
    sorted_later: set[int] = set()
    for node in walk(root):
        kind = node.get("class")
        if kind in ("SUBQUERY", "WINDOW", "STAR"):
            yield {"SUBQUERY": "a subquery", "WINDOW": "a window function", "STAR": "*"}[kind], str(kind).lower()
        elif kind == "FUNCTION":
            if fold(node["function_name"]) in _SORTING:
                sorted_later.update(map(id, node["children"][:1]))
            if id(node) not in sorted_later:
                yield from _function(node)
        elif kind == "COLUMN_REF" and changes(node):
            yield node["column_names"][0], "changes"


def _function(node: Node) -> Iterator[tuple[str, str]]:
    name = fold(node["function_name"])
    if changes(node):
        yield f"{name}()", "changes"
    elif name in _IN_ORDER and not node["order_bys"]["orders"]:
        yield f"{name}()", "order"
    elif name in UNNESTING:
        yield f"{name}()", "rows"
    elif name in _IN_ORDER | PICKING | _COLLECTING and not _is_settled(node, picks=name in PICKING):
        yield f"{name}()", "ties"


def _is_settled(node: Node, *, picks: bool) -> bool:
    """Whether rows that an aggregate's order does not tell apart give it the same values."""
    orders, taken = [each["expression"] for each in node["order_bys"]["orders"]], node["children"]
    if picks:
        by = taken[1:2]  # one value, or several in a row: arg_max(x, (ts, x))
        orders, taken = [*orders, *(by[0]["children"] if by and by[0].get("function_name") == "row" else by)], taken[:1]
    known = list(map(_plain, orders))
    return all(
        _plain(value) in known
        or all(_plain(each) in known for each in walk(value) if each.get("class") == "COLUMN_REF")
        for value in taken
    )


def _plain(node: Node) -> Node:
    plain: Node = without_locations({**node, "alias": ""})
    return plain
