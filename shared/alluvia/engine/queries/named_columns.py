"""The columns that a query can mean, by the names in its text. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa

from alluvia.delta.schema.names import fold, places_by_name
from alluvia.engine.queries.functions import VARYING_NAMES
from alluvia.engine.queries.parse import Node, walk
from alluvia.engine.queries.references import Reference

_BY_POSITION = frozenset({"STAR", "POSITIONAL_REFERENCE"})
_OF_ALL_COLUMNS = ("PIVOT", "SHOW_REF")
_QUERIES = ("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE")


def named_columns(root: Node, schemas: Mapping[Reference, pa.Schema]) -> frozenset[str] | None:
    """Return the folded names of all columns that a query can mean; None if it can mean any column.

    `schemas` has the schema of each table in the query. With an unknown name, the query can mean any column, because
    DuckDB's error lists the columns of the tables.
    """
    tables: dict[str, list[Collection[str]]] = defaultdict(list)
    for reference, schema in schemas.items():
        if reference.node["column_name_alias"]:
            return None
        tables[fold(reference.alias)].append(places_by_name(schema))
    meant: list[list[str]] = []
    given: set[str] = {*VARYING_NAMES}
    for node in walk(root):
        if _takes_all(node):
            return None
        if node.get("class") == "COLUMN_REF":
            meant.append([fold(part) for part in node["column_names"]])
        meant += [[fold(name)] for name in node.get("using_columns", ())]
        given.update(map(fold, _names_given(node)))
    if not all(_is_known(parts, tables, given) for parts in meant):
        return None
    return frozenset(part for parts in meant for part in parts)


def result_columns(root: Node) -> tuple[str, ...] | None:
    """Return the folded names that only the results of a query are made of, and no condition, join or order, in order.

    None where a query has more than one SELECT, whose conditions may be about another's results, and where it orders by
    position.
    """
    orders = [each["expression"] for node in root.get("modifiers") or () for each in node.get("orders") or ()]
    is_one = root.get("type") == "SELECT_NODE" and sum(node.get("type") in _QUERIES for node in walk(root)) == 1
    if not is_one or any(each.get("class") == "CONSTANT" for each in orders):
        return None
    made = [*root["select_list"], *(root.get("group_expressions") or ())]
    others = {key: value for key, value in root.items() if key not in ("select_list", "group_expressions")}
    limiting = set(_names(others))
    limiting.update(*(_names(each) for each in made if fold(each.get("alias") or "") in limiting))
    return tuple(name for name in dict.fromkeys(_names(made)) if name not in limiting)


def _names(part: object) -> list[str]:
    """Return the folded names of columns in a part of a query."""
    nodes = list(walk(part))
    return [fold(name) for node in nodes for name in (*node.get("column_names", ()), *node.get("using_columns", ()))]


def _takes_all(node: Node) -> bool:
    """Whether a node can mean any column of a table: by position, or all columns at once."""
    kind = node.get("type")
    return (
        node.get("class") in _BY_POSITION
        or kind in _OF_ALL_COLUMNS
        or (kind == "JOIN" and node["ref_type"] == "NATURAL")
        or (kind == "BASE_TABLE" and bool(node["column_name_alias"]))
    )


def _names_given(node: Node) -> Iterator[str]:
    """Yield the names that a node gives to columns, values or tables."""
    for key in ("alias", "function_name", "table_name", "key"):
        if isinstance(value := node.get(key), str):
            yield value
    for names in (node.get("column_name_alias"), node.get("aliases")):
        if isinstance(names, list):
            yield from names
    if node.get("class") == "LAMBDA":
        for each in walk(node["lhs"]):
            yield from each.get("column_names", ())


def _is_known(parts: Sequence[str], tables: Mapping[str, Sequence[Collection[str]]], given: set[str]) -> bool:
    """Whether a name means a column or something that the query names, not a whole row or a missing name."""
    at = next((at for at, part in enumerate(parts) if part in tables), None)
    if at is None:
        return parts[0] in given or any(parts[0] in names for table in tables.values() for names in table)
    return parts[-1] not in tables and any(parts[at + 1] in names for names in tables[parts[at]])
