"""Subqueries and common table expressions through which a condition can be seen. Pure.

A condition on the output of a SELECT may be applied to its input if each output row stems from one input row, and from
nothing else: no grouping, aggregate, window, limit or sample. What the output's columns are is read off its list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alluvia.sql.functions import FOLDABLE
from alluvia.sql.tree import Node, walk

_SCALAR_FUNCTIONS = FOLDABLE | {
    "coalesce", "date_part", "json_extract", "json_extract_string", "json_value", "length", "nullif", "regexp_extract",
    "split_part", "struct_extract", "substring", "trim", "year",
}  # fmt: skip
_OPAQUE = frozenset({"SUBQUERY", "WINDOW"})


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a SELECT gives: expressions by name, and the tables (by alias; empty: all) whose columns `*` stands for."""

    named: tuple[tuple[str, Node], ...]
    stars: tuple[str, ...]


def outputs_of(query: Node, names: Sequence[str]) -> Outputs | None:
    """Return the columns of a query, renamed by `names`; None if a condition on them says nothing of single rows."""
    if query["type"] != "SELECT_NODE" or not _is_row_by_row(query):
        return None
    named: list[tuple[str, Node]] = []
    stars: list[str] = []
    for number, expression in enumerate(query["select_list"]):
        if expression["class"] == "STAR":
            if names or not _is_plain_star(expression):
                return None
            stars.append(expression["relation_name"].lower())
        else:
            name = names[number] if number < len(names) else _name(expression)
            named.append((name.lower(), expression))
    return Outputs(tuple(named), tuple(stars))


def _is_row_by_row(select: Node) -> bool:
    if select["group_expressions"] or select["group_sets"] or select["having"] or select["qualify"] or select["sample"]:
        return False
    if not all(_keeps_rows(modifier) for modifier in select["modifiers"]):
        return False
    return all(_is_scalar(node) for node in walk(select["select_list"]) if "class" in node)


def _keeps_rows(modifier: Node) -> bool:
    if modifier["type"] == "DISTINCT_MODIFIER":
        return not modifier["distinct_on_targets"]
    return bool(modifier["type"] == "ORDER_MODIFIER")


def _is_scalar(node: Node) -> bool:
    if node["class"] == "FUNCTION":
        return node["is_operator"] or node["function_name"].lower() in _SCALAR_FUNCTIONS
    return node["class"] not in _OPAQUE


def _is_plain_star(star: Node) -> bool:
    changes = ("exclude_list", "replace_list", "qualified_exclude_list", "rename_list", "columns", "expr")
    return not any(star[key] for key in changes)


def _name(expression: Node) -> str:
    if expression["alias"]:
        return str(expression["alias"])
    return str(expression["column_names"][-1]) if expression["class"] == "COLUMN_REF" else ""
