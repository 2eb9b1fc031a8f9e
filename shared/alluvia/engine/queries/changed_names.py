"""Names in a query that come to mean something else where a table gains or loses columns. Pure.

DuckDB takes a name for a column of FROM before it takes it for an alias of the SELECT, except in ORDER BY and HAVING.
So a column that is added takes the place of an alias of its name in WHERE, GROUP BY and other expressions, and an alias
takes the place of a column that is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.parse import Node, walk
from alluvia.engine.queries.references import Reference, References

Schemas = Mapping[Reference, pa.Schema]


def changed_names(root: Node, references: References, before: Schemas, after: Schemas) -> set[str]:
    """Return the folded names that a query uses and that mean something else with other columns of its tables.

    References without a schema have no columns that change. A name may be among them that means the same after all.
    """
    changed = {
        name
        for reference in before.keys() & after.keys()
        for name in {fold(each) for each in before[reference].names} ^ {fold(each) for each in after[reference].names}
    }
    return {name for name in changed if _is_changed(name, root, references, before, after)}


def _is_changed(name: str, root: Node, references: References, before: Schemas, after: Schemas) -> bool:
    was, now = _Counts(name, references, before), _Counts(name, references, after)
    if was.of_query(root) not in (0, now.of_query(root)) and _names_itself(root, name):
        return True
    return any(
        was.of_entry(select["from_table"]) != now.of_entry(select["from_table"]) and _uses(select, name, was, now)
        for select in references.selects
    )


class _Counts:
    """Tells how many columns of a folded name the parts of a query have."""

    def __init__(self, name: str, references: References, schemas: Schemas) -> None:
        self._name = name
        self._tables = {id(one.node): one for one in references.tables}
        self._ctes = references.ctes
        self._schemas = schemas
        self._found: dict[int, int] = {}

    def of_query(self, node: Node) -> int:
        """Return the number for a query's result."""
        if id(node) not in self._found:
            self._found[id(node)] = 0  # which a recursive query sees of itself
            self._found[id(node)] = self._query(node)
        return self._found[id(node)]

    def _query(self, node: Node) -> int:
        if node["type"] != "SELECT_NODE":
            inner = node.get("left") or node.get("child")
            return 0 if inner is None else self.of_query(inner)
        return sum(self._item(item, node["from_table"]) for item in node["select_list"])

    def _item(self, item: Node, source: Node) -> int:
        if item["class"] != "STAR":
            return int(_output_name(item) == self._name)
        if any(self._name in str(each).lower() for each in (item["exclude_list"], item["qualified_exclude_list"])):
            return 0
        return self.of_entry(source, fold(item["relation_name"]))

    def of_entry(self, node: Node, alias: str = "") -> int:
        """Return the number for an entry of FROM, or those that an alias names in it."""
        if node["type"] == "JOIN":
            return self.of_entry(node["left"], alias) + self.of_entry(node["right"], alias)
        reference = self._tables.get(id(node))
        if alias and alias != fold(node["alias"] if reference is None else reference.alias):
            return 0 if node["alias"] or fold(node.get("table_name") or "") != alias else self.of_entry(node)
        if reference is not None:
            schema = self._schemas.get(reference)
            return 0 if schema is None else [fold(each) for each in schema.names].count(self._name)
        if (entry := self._ctes.get(id(node))) is not None:
            return self.of_query(entry["query"]["node"])
        if node["type"] == "SUBQUERY":
            return self.of_query(node["subquery"]["node"])
        return self.of_entry(node["source"]) if node["type"] == "PIVOT" else 0


def _output_name(item: Node) -> str:
    return fold(item["alias"] or (item["column_names"][-1] if item["class"] == "COLUMN_REF" else ""))


def _names_itself(root: Node, name: str) -> bool:
    """Whether a query gives a name to one of its own columns."""
    return any(item["class"] != "STAR" and _output_name(item) == name for item in root.get("select_list") or ())


def _uses(select: Node, name: str, was: _Counts, now: _Counts) -> bool:
    """Whether a SELECT, whose FROM has other columns of a name, uses the name for more than an alias in ORDER BY."""
    source = select["from_table"]
    if _is_natural(source) and max(was.of_entry(source), now.of_entry(source)) > 1:
        return True
    return any(
        _is_bare(node, name)
        or any(was.of_entry(source, one) != now.of_entry(source, one) for one in _owners(node, name))
        for node in _expressions(select, name, was, now)
    )


def _expressions(select: Node, name: str, was: _Counts, now: _Counts) -> Iterator[Node]:
    """Yield the expressions whose names are looked for in the FROM of a SELECT."""
    has_alias = _names_itself(select, name)
    for key, value in select.items():
        if key == "from_table":
            yield from _below(list(_conditions(value)), name, was, now)
        elif key == "modifiers":
            for modifier in value:
                orders = modifier.get("orders") or ()
                kept = [one for one in orders if not (has_alias and _is_bare(one["expression"], name))]
                yield from _below({**modifier, "orders": kept}, name, was, now)
        elif key == "having" and has_alias:  # where a name is the alias, except in a call
            calls = [each for each in walk(value) if each.get("class") == "FUNCTION" and not each["is_operator"]]
            yield from _below(calls, name, was, now)
        elif key != "cte_map":
            yield from _below(value, name, was, now)


def _below(value: Any, name: str, was: _Counts, now: _Counts) -> Iterator[Node]:
    if isinstance(value, list):
        for child in value:
            yield from _below(child, name, was, now)
    elif isinstance(value, dict):
        if value.get("type") == "SELECT_NODE":
            source = value["from_table"]
            if was.of_entry(source) or now.of_entry(source) or _names_itself(value, name):
                return  # its names are found there
        if "class" in value:
            yield value
        for child in value.values():
            yield from _below(child, name, was, now)


def _conditions(node: Node) -> Iterator[Any]:
    """Yield what the joins of a FROM clause, and calls of functions in it, compute."""
    if node["type"] == "JOIN":
        yield node["condition"]
        yield from _conditions(node["left"])
        yield from _conditions(node["right"])
    elif node["type"] == "TABLE_FUNCTION":
        yield node["function"]


def _is_natural(node: Node) -> bool:
    return any(each.get("ref_type") == "NATURAL" for each in walk(node) if each.get("type") == "JOIN")


def _is_bare(node: Node, name: str) -> bool:
    return node["class"] == "COLUMN_REF" and [fold(each) for each in node["column_names"]] == [name]


def _owners(node: Node, name: str) -> list[str]:
    """Return the entry of FROM, folded, whose column of a name a node means: one at most."""
    parts = [fold(each) for each in node["column_names"]] if node["class"] == "COLUMN_REF" else []
    return parts[-2:-1] if parts[-1:] == [name] else []
