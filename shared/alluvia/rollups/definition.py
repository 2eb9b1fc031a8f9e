"""The definition of a rollup: the property that holds it, and its query, which must be one that can be kept. Pure.

A query can be kept if the rows of one group of its source decide the row of that group alone, and always in the same
way: then a change of the source changes the groups of the rows that it inserts and deletes, and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache

import orjson
import pyarrow as pa

from alluvia.delta.properties import ROLLUP
from alluvia.delta.schema.names import fold
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.queries.expression_text import expression_text
from alluvia.engine.queries.parse import (
    Node,
    Statement,
    column_ref,
    integer_literal,
    parse_stored,
    walk,
    without_locations,
)
from alluvia.engine.queries.references import At, Reference, find_references
from alluvia.engine.queries.reproducible import PICKING, clauses, expressions
from alluvia.engine.queries.rewrite import rewrite
from alluvia.engine.queries.shown_names import VIEW_SCHEMA
from alluvia.errors import Corrupt, Invalid
from alluvia.lazy_dataclasses import dataclass

EXAMPLE = "SELECT day, count(*) AS hits FROM events GROUP BY day"
_INSTEAD = {
    "UNION, INTERSECT and EXCEPT": "create one rollup for each SELECT",
    "WITH": "write one SELECT over one table",
    "a join": "keep a rollup of one table, and join when you query it",
    "a subquery": "write one SELECT over one table",
    "a SELECT without FROM": "name the source in FROM",
    "other names for the table's columns": "name results with AS",
    "a sample": "leave it out",
    "DISTINCT": "use GROUP BY instead",
    "ORDER BY": "order when you query the rollup",
    "LIMIT": "limit when you query the rollup",
    "HAVING": "filter with WHERE when you query the rollup",
    "QUALIFY": "filter when you query the rollup",
    "GROUPING SETS, ROLLUP and CUBE": "create one rollup for each set of columns",
    "GROUP BY ALL": "name the columns, as in GROUP BY 1, 2",
}
_WHY = {
    "subquery": "write one SELECT over one table",
    "window": "use it when you query the rollup",
    "star": "name the columns",
    "changes": "its value changes; filter by time when you query the rollup",
    "rows": "a group must give one row",
}
_REFUSED = {
    "COLLATE": ("COLLATE", "which of several texts that it takes for equal is shown would change; use lower(x)"),
    "POSITIONAL_REFERENCE": ("a column by its position in the table", "name the column"),
}
_SUMS = frozenset({"count", "count_if", "count_star", "countif"})
_FOLDS = {"min": "least({old}, {new})", "max": "greatest({old}, {new})"}
_EITHER = "CASE WHEN {{old}} IS NULL THEN {{new}} WHEN {{new}} IS NULL THEN {{old}} ELSE {{old}} {0} {{new}} END"
_ADD, _AND, _OR = (_EITHER.format(sign) for sign in ("+", "AND", "OR"))


@dataclass(frozen=True, slots=True)
class Definition:
    """The table that a rollup is computed from, the query, and the columns that tell its groups apart.

    `columns` are those of the source that the query names. It sees no others, so that a name in it never comes to mean
    a column that the source gains.
    """

    source: str
    query: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]

    def columns_of(self, source: Snapshot) -> tuple[str, ...]:
        """Return `columns`. Raises `Invalid`, naming it, for one that a version of the source lacks."""
        known = {*source.schema.names}
        for name in self.columns:
            if name not in known:
                raise Invalid(f"{source.name} has no column {name} any more: drop the rollup, and create another")
        return self.columns

    def to_text(self) -> str:
        """Return it as the property's value."""
        return orjson.dumps(asdict(self)).decode()


def definition_of(snapshot: Snapshot) -> Definition:
    """Return a rollup's definition. Raises `Invalid` for a table that is none, and `Corrupt`."""
    text = snapshot.properties.get(ROLLUP)
    if text is None:
        raise Invalid(f"table {snapshot.name} is not a rollup: create one with create_rollup(name, query)")
    try:
        recorded = orjson.loads(text)
        keys, columns = (tuple(map(str, recorded[name])) for name in ("keys", "columns"))
        return Definition(str(recorded["source"]), str(recorded["query"]), keys, columns)
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"property {ROLLUP} of {snapshot.name} cannot be read: only create_rollup may set it") from error


@dataclass(frozen=True, slots=True)
class RollupQuery:
    """A rollup's query, parsed: one SELECT, whose columns are expressions, over one table."""

    statement: Statement
    table: Reference

    @property
    def root(self) -> Node:
        """Return the SELECT."""
        return self.statement.root

    @property
    def source(self) -> str:
        """Return the table's name in the lake."""
        assert self.table.table is not None  # noqa: S101 - `read_query` has looked
        return self.table.table

    def texts_of(self, names: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
        """Return SQL over the source's columns for those of the result's `columns` named that have simple SQL."""
        items = {name: _plain(self.root["select_list"][columns.index(name)], self.table) for name in names}
        texts = {name: expression_text(item) for name, item in items.items()}
        return {name: text for name, text in texts.items() if text is not None}

    def over(self, view: str) -> str:
        """Return the query's text with a view in the place of its table."""
        return rewrite(self.statement, {self.table: view}).text

    def columns_used(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the source's columns that the query names, or may; the first one if it names none.

        Raises `Invalid` where it names the table in the place of a column: then a value would be of all its columns.
        """
        names = [list(map(fold, node.get("column_names") or ())) for node in walk(self.root)]
        columns, alias = set(map(fold, schema.names)), fold(self.table.alias)
        if [alias] in names and alias not in columns:
            raise _refused(f"the table {self.table.alias} as a value", f"name its columns, as in {self.table.alias}.x")
        named = {part for parts in names for part in parts}
        return tuple(name for name in schema.names if fold(name) in named) or tuple(schema.names[:1])

    def fold_of(self, at: int, kind: pa.DataType) -> str | None:
        """Return SQL that makes a column's value of `{old}` rows and of `{new}` rows that of both; None if none can."""
        node = self.root["select_list"][at]
        if node["class"] != "FUNCTION" or node["is_operator"] or node["order_bys"]["orders"] or node["catalog"]:
            return None
        name, exact = fold(node["function_name"]), pa.types.is_int64(kind) or pa.types.is_decimal(kind)
        if name in _FOLDS and len(node["children"]) == 1 and not pa.types.is_nested(kind):
            return _FOLDS[name]
        if node["distinct"]:
            return None
        if name in _SUMS or (name == "sum" and exact):
            return _ADD
        return {"bool_and": _AND, "bool_or": _OR}.get(name)


@lru_cache(maxsize=64)
def read_query(text: str) -> RollupQuery:
    """Parse a rollup's query. Raises `Invalid`, with the reason, for one that cannot be kept."""
    statement = parse_stored(text, EXAMPLE)
    tables = find_references(statement.root).tables
    _check_shape(statement.root)
    _check_expressions(statement.root)
    source = tables[0] if len(tables) == 1 and tables[0].node is statement.root["from_table"] else None  # not a PIVOT's
    if source is None or source.table is None or source.at != At() or source.is_function:
        raise Invalid("a rollup's query must name one table of the lake in its FROM clause, without a version")
    return RollupQuery(statement, source)


def keys_of(query: RollupQuery, schema: pa.Schema, names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns, of `names`, that tell the groups apart. `schema` is the source's.

    Raises `Invalid` for a GROUP BY expression that is not selected: two groups could then have the same row.
    """
    root = query.root
    plain = [_plain(node, query.table) for node in root["select_list"]]
    aliases = {fold(node["alias"]): at for at, node in enumerate(root["select_list"]) if node["alias"]}
    columns = {fold(name) for name in schema.names}
    keys: list[str] = []
    for node in root["group_expressions"]:
        number = integer_literal(node)
        name = fold(node["column_names"][0]) if node["class"] == "COLUMN_REF" else None
        wanted = _plain(node, query.table)
        if number is not None:
            at = number - 1 if 0 < number <= len(plain) else None
        elif name is not None and name not in columns and name in aliases and len(node["column_names"]) == 1:
            at = aliases[name]
        else:
            at = next((at for at, one in enumerate(plain) if one == wanted), None)
        if at is None:
            shown = ".".join(node["column_names"]) if name is not None else f"number {len(keys) + 1}"
            raise Invalid(
                f"a rollup's query must select what it groups by: add the GROUP BY expression {shown} to the SELECT"
            )
        if names[at] not in keys:
            keys.append(names[at])
    return tuple(keys)


def named(view: str) -> str:
    """Return how SQL names a view or an input of a relation."""
    return f"{VIEW_SCHEMA}.{view}"


def _plain(node: Node, table: Reference) -> Node:
    """Return an expression without its alias, positions, and the table's name before a column."""

    def simplified(value: object) -> object:
        if isinstance(value, dict):
            names = value.get("column_names")
            if isinstance(names, list):
                short = names[1:] if len(names) > 1 and fold(names[0]) == fold(table.alias) else names
                return column_ref(*map(fold, short))
            return {key: simplified(child) for key, child in value.items()}
        return [simplified(child) for child in value] if isinstance(value, list) else value

    plain = simplified({**without_locations(node), "alias": ""})
    assert isinstance(plain, dict)  # noqa: S101 - a node is a dict
    return plain


def _check_shape(root: Node) -> None:
    """Raise `Invalid` for a clause that makes a row depend on more than its group's rows."""
    for what in clauses(root):
        raise _refused(what, _INSTEAD[what])


def _check_expressions(root: Node) -> None:
    """Raise `Invalid` for an expression that may give another value for the same rows, or more than one row."""
    for node in walk(root):
        if (kind := node.get("class")) in _REFUSED:
            raise _refused(*_REFUSED[kind])
    for what, why in expressions(root):
        if why in ("order", "ties"):
            raise _refused(f"{what} without an order that settles ties", _ordered(what.removesuffix("()")))
        if why == "changes" and what.endswith("()"):
            raise _refused(what, "its value changes from one refresh to the next; leave it out")
        raise _refused(what, _WHY[why])


def _ordered(name: str) -> str:
    """Say how to write an aggregate whose value the order of rows must not change."""
    if name.startswith("json_group"):
        return "write a list with an order instead, as in list(x ORDER BY x)::JSON"
    arguments = "x, ts ORDER BY x" if name in PICKING else "x ORDER BY ts, x"
    return f"name in ORDER BY what it takes, as in {name}({arguments})"


def _refused(what: str, instead: str) -> Invalid:
    return Invalid(f"a rollup's query cannot use {what}: {instead}")
