"""How a table of a pipeline follows its sources: its kind, and by which columns a change is narrowed down. Pure.

* `append`: one row of the source makes rows of its own, so only rows that are appended to the source are read.
* `keyed` and `aggregate`: rows are computed again by *units*, values of some columns of the result that tell, in each
  source, which rows they are made of (`lineage.py`).
* `full`: all is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.expression_text import expression_text
from alluvia.engine.queries.parse import Node, walk
from alluvia.engine.queries.reproducible import clauses, expressions
from alluvia.lazy_dataclasses import dataclass
from alluvia.pipelines.declarations.declaration import AGGREGATE, APPEND, FULL, KEYED, Declaration
from alluvia.pipelines.queries.from_clauses import aggregates
from alluvia.pipelines.queries.lineage import trace_columns
from alluvia.pipelines.queries.query import PipelineQuery

_ROW_WISE = frozenset({"star", "rows"})
"""Expressions that a row-wise query may have besides: they give several columns, or several rows."""
_VARIES = frozenset({"changes", "order", "ties"})
_ORDERED = {
    "order": ": give it an ORDER BY that ends with its argument",
    "ties": ": end its ORDER BY with its argument, so that no ties are left",
}


@dataclass(frozen=True, slots=True)
class UnitColumn:
    """A column of the result by which it is computed again in parts: its name, and its expression in each source."""

    column: str
    expressions: Mapping[str, Node]
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableKind:
    """The kind of a table, why it has that one, and the columns of its units: none for `append` and `full`.

    `parts` are the columns by which all rows can be computed in parts: those of the units, or of a table of the kind
    `full`. `row_wise` is whether each row of the one source makes rows of its own.
    """

    name: str
    why: str
    unit: tuple[UnitColumn, ...] = ()
    parts: tuple[UnitColumn, ...] = ()
    row_wise: bool = False

    @property
    def shared_out(self) -> str:
        """Return how the work on all rows is shared out among tasks."""
        if self.row_wise:
            return "each file of the source by itself"
        by = ", ".join(each.column for each in self.parts)
        return f"by {by}" if by else "in one process"

    def restricted(self, parts: Sequence[UnitColumn]) -> TableKind:
        """Return the kind if only some of its columns can be compared with the sources."""
        if self.unit and not parts:
            names = ", ".join(each.column for each in self.unit)
            return TableKind(
                FULL, f"the sources have {names} in different types: CAST it to one type where they are joined"
            )
        return replace(self, unit=tuple(parts) if self.unit else (), parts=tuple(parts))


def derive_kind(declaration: Declaration, query: PipelineQuery, schemas: Mapping[str, pa.Schema]) -> TableKind:
    """Return the kind of a declared table. `schemas` are those of the query's tables, by name.

    Raises `Invalid` for a kind that is declared and that the query cannot have, with the reason.
    """
    kind = _derived(declaration, query, schemas)
    wanted = declaration.kind
    if wanted == FULL:
        return replace(kind, name=FULL, why="it is declared so", unit=())
    if wanted is not None and wanted != kind.name:
        reason = kind.why if kind.name == FULL or wanted != APPEND else not_row_wise(query) or kind.why
        raise declaration.wrong(f"the query cannot be of the kind {wanted}, but is {kind.name}: {reason}")
    return kind


def _derived(declaration: Declaration, query: PipelineQuery, schemas: Mapping[str, pa.Schema]) -> TableKind:
    varying = next(((what, why) for what, why in expressions(query.root) if why in _VARIES), None)
    if varying is not None:
        what, why = varying
        return TableKind(FULL, f"{what} may give another value for the same rows{_ORDERED.get(why, '')}")
    reason = not_row_wise(query)
    if not declaration.key and reason is None:
        why = f"each row of {query.sources[0].replace('/', '.')} makes rows of its own"
        return TableKind(APPEND, why, row_wise=True)
    unit = unit_columns(query, schemas)
    if not declaration.key and not _groups(query.root):
        instead = "declare KEY (…) with the columns that tell the rows of the result apart"
        return TableKind(FULL, f"the query has {reason}: to compute changed rows alone, {instead}", parts=unit)
    if declaration.key:
        names = {fold(name) for name in declaration.key}
        keyed = tuple(each for each in unit if fold(each.column) in names)
        if keyed:
            shown = ", ".join(each.column for each in keyed)
            return TableKind(KEYED, f"rows are computed again for each {shown} that changed", keyed, keyed)
        return TableKind(FULL, _no_unit(declaration.key, unit))
    if unit:
        shown = ", ".join(each.column for each in unit)
        return TableKind(AGGREGATE, f"groups are computed again for each {shown} that changed", unit, unit)
    return TableKind(FULL, "no column of the result tells which rows of the sources make its rows")


def _no_unit(key: Sequence[str], unit: Sequence[UnitColumn]) -> str:
    shown = f"no column of KEY ({', '.join(key)}) tells which rows of the sources make a row"
    if unit:
        return f"{shown}; {', '.join(each.column for each in unit)} does: add it to KEY"
    return f"{shown}: have every GROUP BY, PARTITION BY and join compare one of them, as a column of each source"


def unit_columns(query: PipelineQuery, schemas: Mapping[str, pa.Schema]) -> tuple[UnitColumn, ...]:
    """Return the columns of the result by which it can be computed again in parts."""
    output = trace_columns(query.root, query.references, schemas)
    found: list[UnitColumn] = []
    for name, trace in output.traced.items():
        texts = {table: expression_text(node) for table, node in trace.items()}
        known = {table: text for table, text in texts.items() if text is not None}
        if len(known) == len(texts) and set(known) == set(query.sources):
            found.append(UnitColumn(name, trace, known))
    return tuple(found)


def not_row_wise(query: PipelineQuery) -> str | None:
    """Return what keeps a query from making rows of each row of one table alone; None where nothing does."""
    root = query.root
    clause = next(clauses(root), None)
    if clause is not None:
        return clause
    if _groups(root):
        return "GROUP BY or an aggregate"
    return next((what for what, why in expressions(root) if why not in _ROW_WISE), None)


def _groups(root: Node) -> bool:
    """Whether the rows of a query are groups."""
    if root["type"] != "SELECT_NODE":
        return False
    if root["group_expressions"] or root["group_sets"] or root["aggregate_handling"] != "STANDARD_HANDLING":
        return True
    parts = [root["select_list"], root["having"]]
    return any(each.get("class") == "FUNCTION" and fold(each["function_name"]) in aggregates() for each in walk(parts))
