"""DuckDB's syntax tree, as `json_serialize_sql` gives it: nested dicts and lists. Pure.

An expression has a `class` and a `type`; a query node, a table reference and a modifier have a `type` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Node = dict[str, Any]

LOCATION = "query_location"


def walk(value: Any) -> Iterator[Node]:
    """Every dict at or below a value, parents first, however deep."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            pending.extend(reversed(value))


def outside_subqueries(expression: Node, *, lambdas: bool = True) -> Iterator[Node]:
    """Every dict at or below an expression, those of SELECTs in it left out: of a subquery, only its own node.

    Without `lambdas`, those of its lambda functions are left out as well.
    """
    pending: list[Any] = [expression]
    while pending:
        value = pending.pop()
        if isinstance(value, dict) and (lambdas or value.get("class") != "LAMBDA"):
            yield value
            inner = value.get("subquery") if value.get("class") == "SUBQUERY" else None
            pending.extend(child for child in value.values() if child is not inner)
        elif isinstance(value, list):
            pending.extend(value)


def without_locations(value: Any) -> Any:
    """Copy a tree without positions in the text."""
    if isinstance(value, dict):
        return {key: without_locations(child) for key, child in value.items() if key != LOCATION}
    if isinstance(value, list):
        return [without_locations(child) for child in value]
    return value


def same(one: Any, other: Any, replacements: Mapping[int, Node]) -> bool:
    """Whether two trees are equal but for positions, with other nodes in place of some of `other`, given by `id`."""
    pending = [(one, other)]
    while pending:
        one, other = pending.pop()
        other = replacements.get(id(other), other)
        if isinstance(one, dict) and isinstance(other, dict):
            if one.keys() - {LOCATION} != other.keys() - {LOCATION}:
                return False
            pending.extend((one[key], other[key]) for key in one if key != LOCATION)
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pending.extend(zip(one, other, strict=True))
        elif one != other or type(one) is not type(other):
            return False
    return True


def is_constant(node: Node) -> bool:
    """Whether an expression is one literal."""
    return node.get("class") == "CONSTANT"


def text_literal(node: Node | None) -> str | None:
    """Return the text of a text literal; None for anything else."""
    if node is None or not is_constant(node):
        return None
    value = node["value"]
    if value["is_null"] or value["type"]["id"] != "VARCHAR" or not isinstance(value["value"], str):
        return None
    return value["value"]


def integer_literal(node: Node) -> int | None:
    """Return the number of an integer literal; None for anything else."""
    if not is_constant(node) or node["value"]["is_null"] or node["value"]["type"]["id"] not in ("INTEGER", "BIGINT"):
        return None
    return int(node["value"]["value"])
