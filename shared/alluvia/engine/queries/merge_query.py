"""A table's merge query: SQL that folds rows of `source`, the table itself, into fewer rows of the same columns. Pure.

Whether it may be run over its own output is checked where it is declared
(`operations/merge_query/merge_query_checks.py`); this module refuses the shapes in which no query could, and says which
columns tell the rows apart that are folded together.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa

from alluvia.delta.properties import MERGE_QUERY
from alluvia.delta.schema.names import fold
from alluvia.engine.duck.literals import quote_name
from alluvia.engine.duck.relation import duckdb_type
from alluvia.engine.queries.parse import Node, Statement, integer_literal, parse_stored
from alluvia.engine.queries.references import At, Reference, find_references
from alluvia.engine.queries.reproducible import clauses, expressions
from alluvia.engine.queries.rewrite import rewrite
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass

SOURCE = "source"
EXAMPLE = "SELECT user, sum(hits) AS hits FROM source GROUP BY user"
_INSTEAD = {
    "UNION, INTERSECT and EXCEPT": "write one SELECT over source",
    "WITH": "write one SELECT over source",
    "a join": "join when you query the table",
    "a subquery": "write one SELECT over source",
    "a SELECT without FROM": "read FROM source",
    "other names for the table's columns": "name results with AS",
    "a sample": "leave it out",
    "ORDER BY": "only DISTINCT ON needs it; alluvia.sort_by sorts the table's files",
    "LIMIT": "which rows it keeps would depend on those that are merged together; limit when you query the table",
    "HAVING": "a group could pass once it is complete; filter when you query the table",
    "QUALIFY": "use DISTINCT ON (…) … ORDER BY …",
    "GROUPING SETS, ROLLUP and CUBE": "group by one set of columns",
    "GROUP BY ALL": "name the columns, as in GROUP BY 1, 2",
}
_WHY = {
    "subquery": "write one SELECT over source",
    "window": "use DISTINCT ON (…) … ORDER BY …",
    "changes": "its value changes from one merge to the next; leave it out",
    "order": "say the order, as in first(x ORDER BY ts, x)",
    "rows": "a group must give one row",
}


@dataclass(frozen=True, slots=True)
class MergeQuery:
    """A merge query, parsed: one SELECT with GROUP BY or DISTINCT over `source`."""

    statement: Statement
    table: Reference

    @property
    def root(self) -> Node:
        """Return the SELECT."""
        return self.statement.root

    @property
    def distinct_on(self) -> list[Node] | None:
        """Return the expressions of DISTINCT ON, none for DISTINCT alone; None for a query without DISTINCT."""
        modifiers = [each for each in self.root["modifiers"] if each["type"] == "DISTINCT_MODIFIER"]
        return None if not modifiers else list(modifiers[0]["distinct_on_targets"])

    @property
    def picks_rows(self) -> bool:
        """Whether every row that it gives is one of those that it reads, as with DISTINCT ON (…) *."""
        return self.distinct_on is not None and all(node["class"] == "STAR" for node in self.root["select_list"])

    def over(self, view: str) -> str:
        """Return the query's text with a view of `VIEW_SCHEMA` in the place of `source`."""
        return rewrite(self.statement, {self.table: view}).text

    def folded(self, view: str, schema: pa.Schema) -> str:
        """Return a SELECT of a view's folded rows, with the columns of the table's schema, in its types."""
        names = [quote_name(field.name) for field in schema]
        kinds = [duckdb_type(field.type) for field in schema]
        columns = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in zip(names, kinds, strict=True))
        return f"SELECT {columns} FROM ({self.over(view)}\n)"  # noqa: S608

    def keys(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that rows must share to be folded together, and that the folded row has unchanged.

        So a condition on them alone holds for a folded row if and only if it holds for the rows that it was made of.
        """
        kept: set[str] = set()
        for node in self.root["select_list"]:
            name = self._column(node, schema)
            if node["class"] == "STAR":
                kept.update(schema.names)
            elif name is not None and fold(node["alias"] or name) == fold(name):
                kept.add(name)
        grouped = set(schema.names) if self.distinct_on == [] else set(self._grouped(schema))
        return tuple(name for name in schema.names if name in kept and name in grouped)

    def _grouped(self, schema: pa.Schema) -> Iterator[str]:
        selected = self.root["select_list"]
        for node in self.distinct_on or self.root["group_expressions"]:
            number = integer_literal(node)
            chosen = selected[number - 1] if number is not None and 0 < number <= len(selected) else node
            if (name := self._column(chosen, schema)) is not None:
                yield name

    def _column(self, node: Node, schema: pa.Schema) -> str | None:
        """Return the column that an expression is; None for any other."""
        if node["class"] != "COLUMN_REF":
            return None
        names = {fold(name): name for name in schema.names}
        parts = list(map(fold, node["column_names"]))
        if len(parts) == 2 and parts[0] == fold(self.table.alias) and parts[0] not in names:
            del parts[0]
        return names.get(parts[0]) if len(parts) == 1 else None


@lru_cache(maxsize=64)
def read_merge_query(text: str) -> MergeQuery:
    """Parse a merge query. Raises `Invalid`, with the reason, for one that cannot be run over its own output."""
    try:
        statement = parse_stored(text, EXAMPLE)
        references = find_references(statement.root)
    except Invalid as error:
        raise _invalid(str(error)) from error
    root = statement.root
    used = list(clauses(root))
    distinct = "DISTINCT" in used
    for what in used:
        if what != "DISTINCT" and not (what == "ORDER BY" and distinct):
            raise _invalid(f"it cannot use {what}: {_INSTEAD[what]}")
    _check_expressions(root)
    tables = references.tables
    if len(tables) != 1 or tables[0].table != SOURCE or tables[0].at != At() or tables[0].is_function:
        raise _invalid(f"it must read {SOURCE}, which stands for the table, and nothing else, as in {EXAMPLE}")
    if distinct == bool(root["group_expressions"]):
        raise _invalid(f"it must have either GROUP BY or DISTINCT, as in {EXAMPLE}")
    return MergeQuery(statement, tables[0])


def _check_expressions(root: Node) -> None:
    for what, why in expressions(root):
        if why not in ("star", "ties"):  # what ties do to the rows is tried on samples
            raise _invalid(f"it cannot use {what}: {_WHY[why]}")
    for node in root["select_list"]:
        changed = ("exclude_list", "replace_list", "qualified_exclude_list", "rename_list", "expr", "columns")
        if node["class"] == "STAR" and any(node[name] for name in changed):
            raise _invalid("it can use * only alone: name the columns")


def _invalid(reason: str) -> Invalid:
    return Invalid(f"property {MERGE_QUERY}: {reason}")
