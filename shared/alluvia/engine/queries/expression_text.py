"""SQL text of simple expressions: columns, literals, casts and calls. Pure.

The text is parsed again and must give the expression's own tree, so that an expression that is not understood here has
no text instead of another meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from alluvia.engine.duck.literals import quote_name, quote_text
from alluvia.engine.queries.parse import Node, parse, same
from alluvia.errors import Invalid


def expression_text(node: Node) -> str | None:
    """Return SQL that means an expression; None for one that is not simple."""
    text = _text(node)
    if text is None:
        return None
    try:
        again = parse(f"SELECT {text}").root["select_list"][0]
    except Invalid:
        return None
    return text if same(again, {**node, "alias": ""}, {}) else None


def _text(node: Node) -> str | None:
    write = _WRITERS.get(str(node.get("class")))
    return None if write is None else write(node)


def _column(node: Node) -> str:
    return ".".join(map(quote_name, node["column_names"]))


def _constant(node: Node) -> str | None:
    value = node["value"]
    if value["is_null"]:
        return "NULL"
    kind, held = value["type"]["id"], value["value"]
    if kind == "VARCHAR" and isinstance(held, str):
        return quote_text(held)
    return str(held) if kind in ("INTEGER", "BIGINT") and isinstance(held, int) else None


def _cast(node: Node) -> str | None:
    child, kind = _text(node["child"]), node["cast_type"]
    if child is None or kind.get("type_info") is not None:
        return None
    return f"{'TRY_CAST' if node['try_cast'] else 'CAST'}({child} AS {kind['id']})"


def _function(node: Node) -> str | None:
    plain = not (node["distinct"] or node["filter"] or node["order_bys"]["orders"] or node["catalog"])
    texts = _texts(node["children"])
    if not plain or texts is None:
        return None
    name = node["function_name"]
    if node["is_operator"]:
        return f"({texts[0]} {name} {texts[1]})" if len(texts) == 2 else f"({name} {texts[0]})"
    if any(child["class"] == "LAMBDA" for child in node["children"]):
        return None  # a function that takes one: its left side names a parameter
    schema = f"{node['schema']}." if node["schema"] else ""
    return f"{schema}{quote_name(name)}({', '.join(texts)})"


def _arrow(node: Node) -> str | None:
    """Return SQL for a field of JSON, `properties -> 'user'`, which DuckDB's parser takes for a lambda function."""
    texts = _texts([node["lhs"], node["expr"]])
    return None if texts is None else f"({texts[0]} -> {texts[1]})"


def _operator(node: Node) -> str | None:
    texts = _texts(node["children"]) if node["type"] == "OPERATOR_COALESCE" else None
    return None if texts is None else f"coalesce({', '.join(texts)})"


def _texts(nodes: Sequence[Node]) -> list[str] | None:
    texts = [text for text in map(_text, nodes) if text is not None]
    return texts if len(texts) == len(nodes) else None


_WRITERS: Mapping[str, Callable[[Any], str | None]] = {
    "COLUMN_REF": _column,
    "CONSTANT": _constant,
    "CAST": _cast,
    "FUNCTION": _function,
    "LAMBDA": _arrow,
    "OPERATOR": _operator,
}
