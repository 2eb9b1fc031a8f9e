"""The syntax trees of DuckDB 1.5 and 2.0 in one form; no other module knows how they differ. Pure.

The form is that of DuckDB 1.5, whose trees are used as they are. 2.0 has other names for some parts, keeps literals and
types as they were written, and gives the length of each node. Unknown parts stay in the tree, so that the checks of
queries see them and refuse them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from alluvia.errors import Invalid

_Node = dict[str, Any]
LOCATION = "query_location"
_LENGTH = "query_location_length"
_OF_2 = b'"query_location_length":'
"""A key of each expression and each table in 2.0. Within a string of JSON, its quotes would be escaped."""
_NOWHERE = (1 << 64) - 1
_BEFORE_TABLES = re.compile(rb"(?:describe|desc|summarize|show|table)(?![\w$\x80-\xff])", re.IGNORECASE)
_PART = rb'(?:"(?:[^"]|"")*"|[\w$\x80-\xff]+)'
_NAMED = re.compile(rb"(?:" + _PART + rb"\s*\.\s*)*(" + _PART + rb")")
_NAME_PARTS_MAX = 3
_WHOLE = (("INTEGER", 31), ("BIGINT", 63), ("HUGEINT", 127))
_UNSIGNED_MAX = 1 << 128
_DECIMAL_WIDTH_MAX = 38
_DECIMAL_DEFAULT = (18, 3)
_NARROWED = frozenset({"FLOAT", "VARCHAR"})
"""Types whose length or precision changes nothing."""
_TYPES = {
    alias: name
    for name, aliases in {
        "BIGINT": "bigint int64 int8 long oid",
        "BIGNUM": "bignum varint",
        "BIT": "bit bitstring",
        "BLOB": "binary blob bytea varbinary",
        "BOOLEAN": "bool boolean logical",
        "DATE": "date",
        "DECIMAL": "dec decimal numeric",
        "DOUBLE": "double float8",
        "FLOAT": "float float4 real",
        "HUGEINT": "hugeint int128",
        "INTEGER": "int int32 int4 integer integral signed",
        "INTERVAL": "interval",
        "SMALLINT": "int16 int2 short smallint",
        "TIME": "time",
        "TIMESTAMP": "datetime timestamp timestamp_us",
        "TIMESTAMP_MS": "timestamp_ms",
        "TIMESTAMP_NS": "timestamp_ns",
        "TIMESTAMP_S": "timestamp_s",
        "TIME_NS": "time_ns",
        "TINYINT": "int1 tinyint",
        "UBIGINT": "ubigint uint64",
        "UHUGEINT": "uhugeint uint128",
        "UINTEGER": "uint32 uinteger",
        "USMALLINT": "uint16 usmallint",
        "UTINYINT": "uint8 utinyint",
        "UUID": "guid uuid",
        "VARCHAR": "bpchar char nvarchar string text varchar",
    }.items()
    for alias in aliases.split()
} | {
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "timestamp with time zone": "TIMESTAMP WITH TIME ZONE",
    "timetz": "TIME WITH TIME ZONE",
    "time with time zone": "TIME WITH TIME ZONE",
}
"""Names of types that have no parameters, and of DECIMAL, from `duckdb_types()`."""


_OPPOSITES = (
    ("COMPARE_EQUAL", "COMPARE_NOTEQUAL"),
    ("COMPARE_LESSTHAN", "COMPARE_GREATERTHANOREQUALTO"),
    ("COMPARE_GREATERTHAN", "COMPARE_LESSTHANOREQUALTO"),
    ("COMPARE_IN", "COMPARE_NOT_IN"),
)
_NEGATED = {one: other for pair in _OPPOSITES for one, other in (pair, pair[::-1])}


def our_tree(serialized: bytes, text: bytes, starts: Sequence[int]) -> Any:
    """Return the answer of `json_serialize_sql` about `text`, with the trees in our form.

    `starts` are the offsets of the text's tokens. Raises `RecursionError` for a tree that is nested too deeply, and
    `Invalid` for a name of too many parts.
    """
    if _OF_2 not in serialized:
        return _placed(json.loads(serialized), text)
    unplaced: list[_Node] = []

    def ours(node: _Node) -> _Node:
        """Return a node of 2.0 in our form. The nodes below it are in our form already."""
        node.pop(_LENGTH, None)
        kind = node.get("class") or node.get("type")
        change = _CHANGES.get(kind) if isinstance(kind, str) else None
        if change is not None:
            node = change(node)
        elif "query_node" in node:  # of a common table expression
            node["query"] = {"node": node.pop("query_node"), "named_param_map": []}
            _without(node, payload_aggregates=[])
        if kind == "BASE_TABLE" and node[LOCATION] == _NOWHERE:
            unplaced.append(node)
        return node

    answer = json.loads(serialized, object_hook=ours)
    if unplaced:
        _place(unplaced, text, starts)
    return answer


def _placed(answer: _Node, text: bytes) -> _Node:
    """Return an answer with the position of an error in bytes; 1.5 counts characters."""
    if str(answer.get("position", "")).isdigit() and "location" not in answer:
        answer["position"] = str(len(text.decode()[: int(answer["position"])].encode()))
    return answer


def _place(tables: Iterable[_Node], text: bytes, starts: Sequence[int]) -> None:
    """Set the positions of tables right after DESCRIBE and similar words, which 2.0 leaves out.

    A wrong position does no harm: a replacement there would not give the expected tree, and is refused.
    """
    places = [
        (starts[at + 1], _NAMED.match(text, starts[at + 1]))
        for at in range(len(starts) - 1)
        if _BEFORE_TABLES.match(text, starts[at])
    ]
    for table in tables:
        for place in places:
            if (name := place[1]) is not None and _unquoted(name[1]) == table["table_name"]:
                table[LOCATION] = place[0]
                places.remove(place)
                break


def _unquoted(name: bytes) -> str:
    text = name.decode()
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def whole_number(value: int | Mapping[str, int]) -> int:
    """Return the number in a literal. 1.5 gives numbers beyond 64 bits in two halves."""
    return value if isinstance(value, int) else (value["upper"] << 64) + value["lower"]


def _without(node: _Node, **defaults: Any) -> _Node:
    """Remove keys that are new in 2.0 if they have their default values."""
    for key, value in defaults.items():
        if node.get(key) == value:
            del node[key]
    return node


def _constant(node: _Node) -> _Node:
    literal = node.pop("literal", None)
    if literal is None:
        return node
    kind, text = literal["kind"], literal["text"]
    if kind == "BOOLEAN":
        child = {**node, "alias": "", "value": _value("VARCHAR", text[:1])}
        cast_type = {"id": kind, "type_info": None}
        return {
            **node,
            "class": "CAST",
            "type": "OPERATOR_CAST",
            "child": child,
            "cast_type": cast_type,
            "try_cast": False,
        }
    node["value"] = _LITERALS[kind](text) if kind in _LITERALS else literal
    return node


def _value(kind: str, value: Any, info: _Node | None = None) -> _Node:
    return {"type": {"id": kind, "type_info": info}, "is_null": False, "value": value}


def _whole(text: str) -> _Node:
    number = int(text)
    for kind, bits in _WHOLE:
        if abs(number) < 1 << bits:
            return _value(kind, number)
    return _value("UHUGEINT", number) if 0 <= number < _UNSIGNED_MAX else _value("DOUBLE", float(number))


def _numeric(text: str) -> _Node:
    digits = text.replace("_", "").lower()
    before, point, after = digits.lstrip("-").partition(".")
    width, scale = len(before) + len(after), len(after)
    if "e" in digits or not point or width > _DECIMAL_WIDTH_MAX:
        return _value("DOUBLE", float(digits))
    return _value("DECIMAL", int(digits.replace(".", "")), _decimal(width, scale))


def _decimal(width: int, scale: int) -> _Node:
    return {"type": "DECIMAL_TYPE_INFO", "alias": "", "extension_info": None, "width": width, "scale": scale}


_LITERALS: dict[str, Callable[[str], _Node]] = {
    "INTEGER": _whole,
    "NUMERIC": _numeric,
    "STRING": lambda text: _value("VARCHAR", text),
    "HEX": lambda text: _value("BLOB", text),
    "BIT": lambda text: _value("BIT", text),
    "NULL_LITERAL": lambda _: {"type": {"id": "NULL", "type_info": None}, "is_null": True},
}


def _function(node: _Node) -> _Node:
    """Return a function with its arguments as children. The name of an argument is the alias of its child."""
    if "arguments" in node:
        node["children"] = [each["expression"] for each in node.pop("arguments")]
    return _without(_named(node), is_legacy_function_call=False, has_ignore_nulls=False)


def _named(node: _Node) -> _Node:
    """Check that a name has at most three parts, which have keys of their own, and remove the list of parts."""
    path = node.pop("qualified_name", {"path": []})["path"]
    if len(path) > _NAME_PARTS_MAX:
        raise Invalid(f"{'.'.join(path)!r:.200} is a name of {len(path)} parts: tables and functions have at most 3")
    return node


def _cast(node: _Node) -> _Node:
    if "type_expr" in node:
        node["cast_type"] = node.pop("type_expr")
    return node


def _type(node: _Node) -> _Node:
    """Return a type with its parts and sizes in `type_info`."""
    parts = node["children"]
    sizes = [part["value"]["value"] for part in parts if part.get("class") == "CONSTANT"]
    kind = "UNBOUND" if node["schema"] else _TYPES.get(node["type_name"].lower(), "UNBOUND")
    info: _Node | None = None
    if kind == "DECIMAL" and len(sizes) == len(parts):
        info = _decimal(*((*sizes, 0)[:2] if sizes else _DECIMAL_DEFAULT))
    elif kind == "UNBOUND" or (parts and kind not in _NARROWED):
        info = {**{key: node[key] for key in ("catalog", "schema", "type_name", "children")}, "type": "TYPE_INFO"}
    return {"id": kind, "type_info": info, **({"alias": node["alias"]} if node["alias"] else {})}


def _operator(node: _Node) -> _Node:
    if node["type"] != "OPERATOR_NOT" or node["children"][0].get("type") not in _NEGATED:
        return node
    return {**negated(node["children"][0]), "alias": node["alias"]}


def negated(node: _Node) -> _Node:
    """Return the negation of a condition. For a comparison, it is the opposite comparison."""
    opposite = _NEGATED.get(node["type"])
    if opposite is not None:
        return {**node, "type": opposite}
    return {"class": "OPERATOR", "type": "OPERATOR_NOT", "alias": "", "children": [node]}


def _set_operation(node: _Node) -> _Node:
    """Split an operation of 2.0 on many queries into operations on two. Halves keep the tree shallow."""
    if queries := node.pop("children", None):
        node["left"], node["right"] = (_joined(node, half) for half in _halves(queries))
    return node


def _halves(queries: list[_Node]) -> tuple[list[_Node], list[_Node]]:
    middle = (len(queries) + 1) // 2
    return queries[:middle], queries[middle:]


def _joined(node: _Node, queries: list[_Node]) -> _Node:
    if len(queries) == 1:
        return queries[0]
    left, right = (_joined(node, half) for half in _halves(queries))
    return {**node, "modifiers": [], "cte_map": {"map": []}, "left": left, "right": right}


def _refuse(node: _Node) -> _Node:
    raise Invalid(f"WITH needs a SELECT in its parentheses, not {node['type'].partition('_')[0]}")


def _limit(node: _Node) -> _Node:
    if node.pop("limit_type", None) == "PERCENTAGE":
        node["type"] = "LIMIT_PERCENT_MODIFIER"
    return node


_CHANGES: dict[str, Callable[[_Node], _Node]] = {
    "BASE_TABLE": _named,
    "CAST": _cast,
    "CONSTANT": _constant,
    "DELETE_QUERY_NODE": _refuse,
    "FUNCTION": _function,
    "INSERT_QUERY_NODE": _refuse,
    "JOIN": lambda node: _without(
        node,
        is_implicit=node.get("is_implicit"),
        ranking_expression=None,
        nearest_count=1,
        nearest_order_type="ASCENDING",
        nearest_approx=False,
    ),
    "LAMBDA": lambda node: _without(node, syntax_type=node.get("syntax_type")),
    "LIMIT_MODIFIER": _limit,
    "OPERATOR": _operator,
    "SET_OPERATION_NODE": _set_operation,
    "SHOW_REF": _named,
    "TYPE": _type,
    "UPDATE_QUERY_NODE": _refuse,
    "WINDOW": _function,
}
