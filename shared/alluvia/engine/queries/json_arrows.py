"""Fields of JSON for which DuckDB takes more of an expression than its author means: they are refused. Pure.

In DuckDB, AND, NOT, comparisons and arithmetic before `->>` or `->` are applied before it, and so are casts and
arithmetic behind it: `a = 'x' AND f->>'k' = 'y'` is `((a = 'x' AND f)->>'k') = 'y'`, which fails on the first row, or
is null for all of them. PostgreSQL applies the arrow first.
"""

from __future__ import annotations

from typing import Any

from alluvia.engine.queries.parse import Node, text_literal, walk
from alluvia.errors import Invalid

_TEXT, _JSON = "->>", "->"
"""DuckDB parses the second as a lambda function wherever it stands."""
_ARITHMETIC = frozenset("+-*/%") | {"//", "**", "^"}
_CONCATENATION = "||"
_OF_JSON = ("{", "[", '"')
"""First characters of texts of JSON values, which a query may join from parts."""
_WORDS = {
    "CONJUNCTION_AND": "AND", "CONJUNCTION_OR": "OR", "OPERATOR_NOT": "NOT", "COMPARE_IN": "IN",
    "COMPARE_NOT_IN": "NOT IN", "COMPARE_BETWEEN": "BETWEEN", "COMPARE_EQUAL": "=", "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<", "COMPARE_GREATERTHAN": ">", "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=", "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM",
    "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
}  # fmt: skip


def check_arrows(root: Node) -> None:
    """Raise `Invalid`, with the parentheses to write, for a `->>` or `->` that takes a neighbour for its operand.

    No expression that is refused has a value other than null: its field is one of a condition or of a number, or its
    name is a text that is computed with.
    """
    arguments = {id(child) for node in walk(root) if _is_call(node) for child in node["children"]}
    for node in walk(root):
        kind = node.get("class")
        if kind == "FUNCTION" and node["function_name"] == _TEXT:
            _check(_TEXT, *node["children"])
        elif kind == "LAMBDA" and id(node) not in arguments:
            _check(_JSON, node["lhs"], node["expr"])


def _is_call(node: Node) -> bool:
    return node.get("class") == "FUNCTION" and not node.get("is_operator")


def _check(arrow: str, left: Node, right: Node) -> None:
    taken = _taken_left(left) or _taken_right(right)
    if taken is not None:
        written = f"({_shown(_last(left))}{arrow}{_shown(_first(right))})"
        raise Invalid(f"{arrow} needs parentheses here: write {written}, because {taken} is applied before it")


def _taken_left(node: Node) -> str | None:
    """Return the operator that DuckDB applies first, on the left; None where the left side may be meant."""
    kind = node.get("class")
    if kind in ("CONJUNCTION", "COMPARISON", "BETWEEN", "OPERATOR"):
        return _WORDS.get(node["type"])
    operator = _operator(node)
    begin = text_literal(_first(node)) if operator == _CONCATENATION else None
    if operator in _ARITHMETIC or (begin is not None and not begin.lstrip().startswith(_OF_JSON)):
        return operator
    return None


def _taken_right(node: Node) -> str | None:
    if text_literal(_first(node)) is None:
        return None
    if node.get("class") == "CAST" and node["cast_type"].get("id") != "VARCHAR":
        return "the cast"
    if node.get("class") == "COMPARISON":
        return _WORDS.get(node["type"])
    operator = _operator(node)
    return operator if operator in _ARITHMETIC else None


def _operator(node: Node) -> str | None:
    """Return the sign of an operator that is a function of two values."""
    is_operator = node.get("class") == "FUNCTION" and node.get("is_operator") and len(node["children"]) > 1
    return node["function_name"] if is_operator else None


def _operands(node: Node) -> list[Any]:
    kind = node.get("class")
    if kind == "COMPARISON":
        return [node["left"], node["right"]]
    if kind == "BETWEEN":
        return [node["input"], node["lower"], node["upper"]]
    if kind == "CAST":
        return [node["child"]]
    if kind in ("CONJUNCTION", "OPERATOR") or _operator(node) is not None:
        return list(node["children"])
    return []


def _first(node: Node) -> Node:
    while operands := _operands(node):
        node = operands[0]
    return node


def _last(node: Node) -> Node:
    while operands := _operands(node):
        node = operands[-1]
    return node


def _shown(node: Node) -> str:
    if node.get("class") == "COLUMN_REF":
        return ".".join(node["column_names"])
    text = text_literal(node)
    return "…" if text is None else "'" + text.replace("'", "''") + "'"
