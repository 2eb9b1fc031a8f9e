"""The names of the columns of a query, or of a FROM entry, and what each one refers to. Pure.

Pruning relies on a name only where its owner is certain. DuckDB renames a column whose name has been given before
(`id`, `id_1`, …), makes up names for expressions without one, and puts columns of subqueries in the place of a star, so
a name is certain if all columns are known, and no other column has it or may have been renamed to it.

A condition on the output of a SELECT may be applied to its input if each output row stems from one input row, and from
nothing else: no grouping, aggregate, window, limit or sample.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.functions import FOLDABLE, UNNESTING
from alluvia.engine.queries.parse import Node, column_ref, walk
from alluvia.engine.queries.references import Reference, References
from alluvia.lazy_dataclasses import dataclass
from alluvia.recent import once_each

_SCALAR_FUNCTIONS = FOLDABLE | {
    "coalesce", "date_part", "json_extract", "json_extract_string", "json_value", "length", "nullif", "regexp_extract",
    "split_part", "struct_extract", "substring", "trim", "year",
}  # fmt: skip
_OPAQUE = frozenset({"SUBQUERY", "WINDOW"})
_ONE_SIDED = frozenset({"SEMI", "ANTI"})
_MADE_UP = ""
"""Stands for the name that DuckDB makes up for an expression: its text, which is a plain word for these literals only.
"""
_PLAIN_LITERALS = frozenset({"null", "true", "false"})
_NUMBERED = re.compile(r"(.+)_\d+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Shown:
    """Columns in order, each with its folded name and, if known, its expression. Names can repeat.

    `in_place` says whether each column is at its own position: not if a star leaves out what USING merges.
    """

    columns: tuple[tuple[str, Node | None], ...]
    in_place: bool = True

    def certain(self) -> dict[str, Node | None]:
        """Return the columns whose names mean them and cannot mean another."""
        counts = Counter(name for name, _ in self.columns)
        repeated = {name for name, count in counts.items() if count > 1}
        made_up = _MADE_UP in counts
        return {
            name: expression
            for name, expression in self.columns
            if name
            and counts[name] == 1
            and not (repeated and _may_be_renamed(name, repeated))
            and not (made_up and (name in _PLAIN_LITERALS or not name.isidentifier()))
        }


def _may_be_renamed(name: str, repeated: set[str]) -> bool:
    """Whether DuckDB may give a name to a column that is called one of `repeated`, in one step or several."""
    while (match := _NUMBERED.fullmatch(name)) is not None:
        name = match[1]
        if name in repeated:
            return True
    return False


def table_names(reference: Reference, schema: pa.Schema) -> Mapping[str, str]:
    """Return a table's columns by the folded names that the query is certain to know them by."""
    aliases = reference.node.get("column_name_alias") or []
    return _certain_names(schema, _renamed(_of_table(schema), aliases)) if aliases else _own_names(schema)


@once_each
def _own_names(schema: pa.Schema) -> Mapping[str, str]:
    return _certain_names(schema, _of_table(schema))


def _certain_names(schema: pa.Schema, shown: Shown | None) -> Mapping[str, str]:
    if shown is None:
        return {}
    columns = {name: column for (name, _), column in zip(shown.columns, schema.names, strict=True)}
    return {name: columns[name] for name in shown.certain()}


def entry_name(node: Node) -> str:
    """Return the name, as it is written, of a FROM entry that is not a table of the lake; empty if it has none."""
    function = node.get("function") or {}
    return str(node["alias"] or node.get("table_name") or function.get("function_name") or "")


def is_row_by_row(query: Node) -> bool:
    """Whether a condition on a query's output can be applied to its input."""
    if query["type"] != "SELECT_NODE":
        return False
    if query["group_expressions"] or query["group_sets"] or query["having"] or query["qualify"] or query["sample"]:
        return False
    if not all(_keeps_rows(modifier) for modifier in query["modifiers"]):
        return False
    return all(_is_scalar(node) for node in walk(query["select_list"]) if "class" in node)


def _keeps_rows(modifier: Node) -> bool:
    if modifier["type"] == "DISTINCT_MODIFIER":
        return not modifier["distinct_on_targets"]
    return bool(modifier["type"] == "ORDER_MODIFIER")


def _is_scalar(node: Node) -> bool:
    if node["class"] == "FUNCTION":
        return node["is_operator"] or fold(node["function_name"]) in _SCALAR_FUNCTIONS
    return node["class"] not in _OPAQUE


class Columns:
    """Tells what the columns of a query's parts are. None: they are not all known."""

    def __init__(self, references: References, schemas: Mapping[Reference, pa.Schema]) -> None:
        self._tables = {id(one.node): one for one in references.tables}
        self._ctes = references.ctes
        self._schemas = schemas
        self._found: dict[int, Shown | None] = {}

    def of_entry(self, node: Node) -> Shown | None:
        """Return the columns of an entry of FROM, or of a join."""
        if id(node) not in self._found:
            self._found[id(node)] = self._entry(node)
        return self._found[id(node)]

    def of_query(self, node: Node) -> Shown | None:
        """Return the columns of a query."""
        if id(node) not in self._found:
            self._found[id(node)] = self._query(node)
        return self._found[id(node)]

    def _entry(self, node: Node) -> Shown | None:
        aliases = node.get("column_name_alias") or []
        if (reference := self._tables.get(id(node))) is not None:
            return _renamed(_of_table(self._schemas[reference]), aliases)
        if (entry := self._ctes.get(id(node))) is not None:
            return _renamed(_renamed(self.of_query(entry["query"]["node"]), entry["aliases"]), aliases)
        kind = node["type"]
        if kind == "JOIN":
            return self._join(node)
        if kind == "SUBQUERY":
            return _renamed(self.of_query(node["subquery"]["node"]), aliases)
        if kind == "EXPRESSION_LIST":
            names = [f"col{number}" for number in range(len(node["values"][0]))]
            return Shown(tuple((name, None) for name in names)) if not node["expected_names"] else None
        return Shown(()) if kind == "EMPTY" else None

    def _join(self, node: Node) -> Shown | None:
        left = self.of_entry(node["left"])
        if node["join_type"] in _ONE_SIDED:
            return left
        right = self.of_entry(node["right"])
        if left is None or right is None or node["ref_type"] == "NATURAL":
            return None
        # A column that USING merges is counted on both sides, so that its name is not taken to be certain.
        in_place = left.in_place and right.in_place and not node["using_columns"]
        return Shown(left.columns + right.columns, in_place)

    def _query(self, node: Node) -> Shown | None:
        if node["type"] == "SET_OPERATION_NODE" and node["setop_type"] != "UNION_BY_NAME":
            left = self.of_query(node["left"])
            return left and replace(left, columns=tuple((name, None) for name, _ in left.columns))
        if node["type"] != "SELECT_NODE":
            return None
        columns: list[tuple[str, Node | None]] = []
        in_place = True
        for expression in node["select_list"]:
            named = self._star(expression, node) if expression["class"] == "STAR" else _named(expression)
            if named is None:
                return None
            columns += named.columns
            in_place = in_place and named.in_place
        return Shown(tuple(columns), in_place)

    def _star(self, star: Node, select: Node) -> Shown | None:
        if not _is_plain_star(star):
            return None
        relation, source = star["relation_name"], select["from_table"]
        if relation:
            entries = [node for node in _entries(source) if fold(self._name(node)) == fold(relation)]
            source = entries[0] if len(entries) == 1 else None
        shown = None if source is None else self.of_entry(source)
        if shown is None:
            return None
        return replace(
            shown, columns=tuple((name, column_ref(*filter(None, (relation, name)))) for name, _ in shown.columns)
        )

    def _name(self, node: Node) -> str:
        reference = self._tables.get(id(node))
        return entry_name(node) if reference is None else reference.alias


@once_each
def _of_table(schema: pa.Schema) -> Shown:
    return Shown(tuple((fold(name), None) for name in schema.names))


def _renamed(shown: Shown | None, names: Sequence[str]) -> Shown | None:
    if shown is None or not names:
        return shown
    if not shown.in_place or len(names) > len(shown.columns):
        return None
    given = tuple((fold(name), expression) for name, (_, expression) in zip(names, shown.columns, strict=False))
    return Shown(given + shown.columns[len(names) :])


def _entries(node: Node) -> Iterator[Node]:
    if node["type"] == "JOIN":
        yield from _entries(node["left"])
        yield from _entries(node["right"])
    else:
        yield node


def _is_plain_star(star: Node) -> bool:
    changes = ("exclude_list", "replace_list", "qualified_exclude_list", "rename_list", "columns", "expr")
    return not any(star[key] for key in changes)


def _named(expression: Node) -> Shown | None:
    """Return an expression as the one column that it gives; None if it can give several, or none."""
    if any(_gives_several(node) for node in walk(expression)):
        return None
    if expression["alias"]:
        return Shown(((fold(expression["alias"]), expression),))
    name = expression["column_names"][-1] if expression["class"] == "COLUMN_REF" else _MADE_UP
    return Shown(((fold(name), expression),))


def _gives_several(node: Node) -> bool:
    if node.get("class") == "FUNCTION":
        return fold(node["function_name"]) in UNNESTING
    return node.get("class") in ("STAR", "POSITIONAL_REFERENCE") or node.get("type") == "OPERATOR_UNPACK"
