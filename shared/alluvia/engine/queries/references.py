"""Where a query names tables, and whether it does only what queries may do. Pure.

Every kind of node that is not known here is refused, so that a construct of a new DuckDB version stays refused until
someone has reviewed it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from alluvia.delta.arguments import offset_ms
from alluvia.delta.schema.names import fold
from alluvia.engine.queries.bytes_as_text import check_casts
from alluvia.engine.queries.engine_faults import check_row_values
from alluvia.engine.queries.engine_tree import LOCATION
from alluvia.engine.queries.functions import (
    INFORMATION_SCHEMA,
    INFORMATION_SCHEMA_VIEWS,
    LAKE_FUNCTIONS,
    TABLE_FUNCTIONS,
    VERSIONED,
    is_refused,
)
from alluvia.engine.queries.json_arrows import check_arrows
from alluvia.engine.queries.parse import Node, integer_literal, text_literal, walk
from alluvia.engine.queries.qualified_columns import KNOWN_AS
from alluvia.engine.queries.time_travel import AGO, ARGUMENTS, COLUMNS
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.table_names import DATABASE, REJECTS, SCHEMA, lake_names

_RAW = "raw"
"""The column of rejects that has events as they were sent."""
_QUERY_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_PLAIN_TABLE_NODES = frozenset({"EMPTY", "EXPRESSION_LIST", "JOIN", "SUBQUERY", "PIVOT"})
_ORDERS = frozenset({"ORDER_DEFAULT", "ASCENDING", "DESCENDING"})
_EXPRESSIONS = frozenset(
    {
        "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION",
        "LAMBDA", "LAMBDA_REF", "OPERATOR", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "WINDOW",
    }
)  # fmt: skip
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_PARTS = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")
# DuckDB's own views, which a common table expression of the same name would hide in one place and not in another.
_SYSTEM_PREFIXES = ("duckdb_", "pg_", "pragma_", "sqlite_")


@dataclass(frozen=True, slots=True)
class At:
    """The version that a query asks for: by number, an expression for a moment, how many ms ago that was, or a tag."""

    version: int | None = None
    moment: Node | None = None
    ago_ms: int | None = None
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A call about the lake: a function of `LAKE_FUNCTIONS`, or `information_schema.<view>`.

    `arguments` are by name, without the table and its version, which the reference has.
    """

    function: str
    arguments: Mapping[str, Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """One place where a query names a table of the lake, or has a `call` about one, or about the lake.

    `table` is the lake's name of it (`events`, `events/_rejects`, `bronze.events`; `fix:events` on a branch), or None
    if it cannot be one; if there is no such table, the name may mean one of `otherwise`, in this order. `shown` is what
    the user wrote; `alias` is the name that the rest of the query knows it by.
    """

    node: Node
    table: str | None
    shown: str
    alias: str
    at: At
    is_function: bool
    call: Call | None = None
    otherwise: tuple[str, ...] = ()

    @property
    def may_be_function(self) -> bool:
        """Whether the user may have meant a function: only tables have versions with a name."""
        return self.is_function and self.at.version is None and self.at.ago_ms is None and self.at.tag is None


@dataclass(frozen=True, slots=True)
class References:
    """All tables that a query names, in order, all its SELECT nodes, and where it names common table expressions.

    `ctes` has, by `id` of the node that names one, the entry of the WITH clause that it means.
    """

    tables: list[Reference] = field(default_factory=list)
    selects: list[Node] = field(default_factory=list)
    ctes: dict[int, Node] = field(default_factory=dict)


def find_references(root: Node, *, parameters: bool = False) -> References:
    """Return the tables that a query names. With `parameters`, it may have some outside of versions.

    Raises `Invalid`, naming it, for a function, a parameter or a construct that a query may not use.
    """
    visitor = _Visitor(References(), parameters=parameters)
    try:
        visitor.query(root, {})
    except RecursionError as error:
        raise Invalid("the query is nested too deeply: split it into common table expressions") from error
    check_row_values(root)
    check_arrows(root)
    if any((one.table or "").endswith(f"/{REJECTS}") for one in visitor.found.tables):
        check_casts(root, (_RAW,))
    visitor.found.tables.sort(key=lambda one: int(one.node[LOCATION]))
    return visitor.found


def shows_tables(root: Node) -> bool:
    """Whether the query is SHOW TABLES."""
    source = root.get("from_table") or {}
    return (source.get("type"), source.get("query"), source.get("table_name")) == ("SHOW_REF", None, '"tables"')


_Ctes = Mapping[str, Node]


class _Visitor:
    def __init__(self, references: References, *, parameters: bool) -> None:
        self.found = references
        self._parameters = parameters

    def query(self, node: Node, ctes: _Ctes) -> None:
        if node["type"] == "SELECT_NODE":
            self.found.selects.append(node)
        for entry in node.get("cte_map", {}).get("map", ()):
            name = fold(entry["key"])
            if name.startswith(_SYSTEM_PREFIXES):
                raise Invalid(f"a common table expression cannot be called {entry['key']!r}: give it another name")
            body = entry["value"]
            recursive = body["query"]["node"]["type"] == "RECURSIVE_CTE_NODE"
            self.visit(body, {**ctes, name: body} if recursive else ctes)
            ctes = {**ctes, name: body}
        for key, value in node.items():
            if key != "cte_map":
                self.visit(value, ctes)

    def visit(self, value: Any, ctes: _Ctes) -> None:
        if isinstance(value, list):
            for child in value:
                self.visit(child, ctes)
        elif isinstance(value, dict):
            self._node(value, ctes)

    def _node(self, node: Node, ctes: _Ctes) -> None:
        kind = node.get("type")
        if not isinstance(kind, str):
            self._children(node, ctes)
        elif "class" in node:
            if _check_expression(node, parameters=self._parameters):
                self._children(node, ctes)
        elif kind in _QUERY_NODES:
            self.query(node, ctes)
        elif kind == "BASE_TABLE":
            self._base_table(node, ctes)
        elif kind == "TABLE_FUNCTION":
            self._table_function(node, ctes)
        elif kind == "SHOW_REF" and node["query"] is None:
            raise Invalid(
                "only SHOW TABLES, SHOW VIEWS, SHOW STREAMS, SHOW CREATE TABLE t, DESCRIBE and SUMMARIZE of a table or "
                "query, DESCRIBE DETAIL t and DESCRIBE HISTORY t are supported, and FROM tags() and FROM branches()"
            )
        elif _is_transparent(kind):
            self._children(node, ctes)
        else:
            raise Invalid(f"the query uses {kind}, which is not supported")

    def _children(self, node: Node, ctes: _Ctes) -> None:
        for child in node.values():
            self.visit(child, ctes)

    def _base_table(self, node: Node, ctes: _Ctes) -> None:
        catalog, schema, name = node["catalog_name"], node["schema_name"], node["table_name"]
        if not catalog and not schema and not node["at_clause"] and fold(name) in ctes:
            self.found.ctes[id(node)] = ctes[fold(name)]
            return
        at = At() if node["at_clause"] is None else _at_clause(node["at_clause"])
        view = fold(name)
        if fold(schema) == INFORMATION_SCHEMA and view in INFORMATION_SCHEMA_VIEWS and fold(catalog) in ("", DATABASE):
            if node["at_clause"] is not None:
                raise Invalid(f"{INFORMATION_SCHEMA}.{view} has no versions: leave AT (…) out")
            self._add(node, (catalog, schema, name), at, Call(f"{INFORMATION_SCHEMA}.{view}"), is_function=False)
            return
        self._add(node, (catalog, schema, name), at, is_function=False)

    def _table_function(self, node: Node, ctes: _Ctes) -> None:
        function = node["function"]
        name, schema = function["function_name"], function["schema"]
        name = "columns" if name == COLUMNS else name
        if fold(name) in TABLE_FUNCTIONS and schema in ("", SCHEMA):
            self._children(function, ctes)
            return
        if schema in ("", SCHEMA) and not function["catalog"] and _is_call(fold(name), function["children"]):
            self._call(node, fold(name), function["children"])
            return
        at = _arguments(name, function["children"])
        self._add(node, (function["catalog"], schema, name), at, is_function=True)

    def _call(self, node: Node, name: str, children: list[Node]) -> None:
        """Add a call of a function about the lake. Raises `Invalid`, naming an argument that is wrong."""
        given = dict(_named_arguments(name, children))
        for argument, value in given.items():
            if any(each.get("class") == "PARAMETER" for each in walk(value)):
                raise Invalid(f"the argument {argument} of {name}() cannot be a parameter: write it into the query")
        at = _version_argument(given)
        table = _parts(text_literal(given.pop("table", None)) or "")
        self._add(node, table, at, Call(name, given), is_function=True)

    def _add(self, node: Node, name: Sequence[str], at: At, call: Call | None = None, *, is_function: bool) -> None:
        name = name if call is not None and is_function else [part for part in name if part]  # a text has all its parts
        shown = ".".join(name)
        if at.moment is not None and any(each.get("class") == "PARAMETER" for each in walk(at.moment)):
            raise Invalid(f"the version of {shown} cannot be a parameter: write it into the query")
        known_as = call.function.rpartition(".")[2] if call is not None else node.get(KNOWN_AS) or name[-1]
        is_view = call is not None and not is_function
        table, *otherwise = (() if is_view else _lake_names(name, dotted=call is not None)) or (None,)
        alias = node["alias"] or known_as
        self.found.tables.append(Reference(node, table, shown, alias, at, is_function, call, tuple(otherwise)))


def _is_transparent(kind: str) -> bool:
    """Whether a node without a class only holds other nodes: clauses, modifiers, types."""
    return kind in _PLAIN_TABLE_NODES or kind in _ORDERS or kind == "SHOW_REF" or kind.endswith(("_MODIFIER", "_INFO"))


def _check_expression(node: Node, *, parameters: bool) -> bool:
    """Raise `Invalid` for an expression that is not allowed; return whether there is more to see below it."""
    kind = node["class"]
    if kind == "PARAMETER":
        if parameters:
            return False
        raise Invalid("the query contains a parameter (? or $name) that has no value: pass it in parameters")
    if kind not in _EXPRESSIONS:
        raise Invalid(f"the query uses a {kind.lower()} expression, which is not supported")
    if kind in ("FUNCTION", "WINDOW") and is_refused(node["function_name"]):
        raise Invalid(f"the function {node['function_name']}() is not allowed here")
    return bool(kind != "CONSTANT")


def _lake_names(parts: Sequence[str], *, dotted: bool = False) -> tuple[str, ...]:
    return lake_names([fold(part) for part in parts], dotted=dotted)


def _at_clause(clause: Node) -> At:
    if fold(clause["unit"]) == "version":
        return At(version=_version(clause["expr"]))
    return At(moment=clause["expr"])


def _arguments(name: str, children: list[Node]) -> At:
    """Return the version that `t('<timestamp>')`, `t(version => n)`, `t(offset => …)` or `t(tag => …)` means."""
    if not children:
        return At()
    argument = children[0]
    label = fold(argument["alias"])
    if len(children) == 1 and label == "version":
        return At(version=_version(argument))
    if len(children) == 1 and label == "tag":
        return At(tag=_tag(argument))
    if len(children) == 1 and label == AGO:
        return At(ago_ms=_ago(argument))
    if len(children) == 1 and label in ("", "timestamp") and integer_literal(argument) is None:
        return At(moment=argument)
    if fold(name) in LAKE_FUNCTIONS:
        raise Invalid(f"{name}() needs the name of a table as text first, as in {name}('events')")
    raise Invalid(
        f"the function {name}() is not allowed here; if it is a table, "
        f"name its version as {name}('<timestamp>'), {name}(version => <number>), {name}(tag => '<tag>') or "
        f"{name}(offset => '1 hour ago')"
    )


def _tag(node: Node) -> str:
    text = text_literal(node)
    if text is None:
        raise Invalid("the tag of a version must be text, as in t(tag => 'release')")
    return text


def _ago(node: Node) -> int:
    seconds = integer_literal(node)
    text = text_literal(node)
    if seconds is None and text is None:
        raise Invalid("OFFSET: write how long ago as text, as in '1 hour ago', or as seconds, as in -3600")
    return offset_ms(text or "" if seconds is None else seconds)


def _is_call(name: str, children: list[Node]) -> bool:
    """Whether a table function is about the lake; a time instead of a table means an old version of a table `name`."""
    if name not in LAKE_FUNCTIONS:
        return False
    if not LAKE_FUNCTIONS[name]:
        return not children
    table = text_literal(children[0]) if children and fold(children[0]["alias"]) in ("", "table") else None
    return table is not None and bool(_lake_names(_parts(table), dotted=True))


def _parts(text: str) -> list[str]:
    """Return the parts of a name that stands in a text, as in `history('main."t"')`."""
    if '"' not in text:
        return text.split(".")
    parts = [plain or quoted.replace('""', '"') for quoted, plain in _PART.findall(text)]
    return parts if _PARTS.fullmatch(text) else [text]


def _named_arguments(name: str, children: list[Node]) -> Iterator[tuple[str, Node]]:
    order = LAKE_FUNCTIONS[name]
    known = (*order, *(("version", "timestamp", AGO, "tag") if name in VERSIONED else ()))
    seen: set[str] = set()
    for at, child in enumerate(children):
        label = fold(child["alias"])
        label = ARGUMENTS.get(label, label) or (order[at] if at < len(order) else "")
        if label not in known or label in seen:
            shown = ", ".join("offset" if each == AGO else each for each in known)
            raise Invalid(f"{name}() takes these arguments, each once: {shown}")
        seen.add(label)
        yield label, child


def _version_argument(given: dict[str, Node]) -> At:
    """Take the version of the table out of a call's arguments; changes are those up to one."""
    asked = [name for name in ("version", "to", "timestamp", AGO, "tag") if name in given]
    if len(asked) > 1:
        raise Invalid(f"{', '.join('offset' if name == AGO else name for name in asked)}: give one of them")
    if not asked:
        return At()
    node = given.pop(asked[0])
    if asked[0] == "timestamp":
        return At(moment=node)
    if asked[0] == "tag":
        return At(tag=_tag(node))
    return At(ago_ms=_ago(node)) if asked[0] == AGO else At(version=_version(node))


def _version(node: Node) -> int:
    number = integer_literal(node)
    if number is None or number < 0:
        raise Invalid("the version of a table must be a whole number, 0 or more, as in t(version => 3)")
    return number


def names_in_use(root: Mapping[str, Any]) -> frozenset[str]:
    """Return every alias that a query gives, folded."""
    names: set[str] = set()
    for node in walk(root):
        for key in ("alias", "aliases", "column_name_alias", "expected_names"):
            if value := node.get(key):
                names.update(map(fold, [value] if isinstance(value, str) else value))
    return frozenset(names)
