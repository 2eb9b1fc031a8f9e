"""A second check of the text that is about to run: every table in it is one of our views or a common table expression.

`references` decides what each name means, and `rewrite` replaces tables by views. This module trusts neither and checks
the result: a name that DuckDB would look up elsewhere, for example as a file, is refused. Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.functions import TABLE_FUNCTIONS
from alluvia.engine.queries.tree import Node
from alluvia.errors import Invalid


def check_tables(root: Node, schema: str, views: Collection[str]) -> None:
    """Raise `Invalid`, naming it, for a table of a tree that is none of these views and no common table expression."""
    _check(root, schema, frozenset(views), frozenset())


def _check(value: Any, schema: str, views: frozenset[str], ctes: frozenset[str]) -> None:
    if isinstance(value, list):
        for child in value:
            _check(child, schema, views, ctes)
    if not isinstance(value, dict):
        return
    for entry in (value.get("cte_map") or {}).get("map", ()):
        own = frozenset({fold(entry["key"])})
        recursive = entry["value"]["query"]["node"]["type"] == "RECURSIVE_CTE_NODE"
        _check(entry["value"], schema, views, ctes | own if recursive else ctes)
        ctes |= own
    if "class" not in value and not _is_known(value, schema, views, ctes):
        shown = value.get("table_name") or (value.get("function") or {}).get("function_name")
        raise Invalid(f"{shown!r} is neither a table of the lake nor a common table expression in scope")
    for key, child in value.items():
        if key != "cte_map":
            _check(child, schema, views, ctes)


def _is_known(node: Node, schema: str, views: frozenset[str], ctes: frozenset[str]) -> bool:
    kind = node.get("type")
    if kind == "BASE_TABLE":
        if node["catalog_name"] or node["at_clause"] is not None:
            return False
        if node["schema_name"]:
            return node["schema_name"] == schema and node["table_name"] in views
        return fold(node["table_name"]) in ctes
    if kind == "TABLE_FUNCTION":
        return fold(node["function"]["function_name"]) in TABLE_FUNCTIONS
    return kind != "SHOW_REF" or node["query"] is not None
