"""Which conditions of a query restrict which of its tables. Pure.

A condition is handed to a table only if rows of that table which fail it cannot change the query's answer:

* WHERE reaches every table of its FROM clause. Where an outer join can put nulls in the place of a table's rows, a row
  left out comes back as nulls; so there only conditions that nulls fail may be used (`null_rejecting`).
* ON reaches both sides of an inner or semi join, and the side of an outer or anti join whose rows it does not keep.
* A condition passes into a subquery, or a common table expression that is named once, if it gives row for row.
* Nothing reaches a side of an ASOF join that is searched, of a positional join, below a sample, or in a PIVOT.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.derived import Columns, entry_name, is_row_by_row, table_names
from alluvia.engine.queries.parse import Node
from alluvia.engine.queries.references import Reference, References
from alluvia.lazy_dataclasses import dataclass

_OUTER = frozenset({"OUTER", "FULL"})
_SEARCHED_ROW_BY_ROW = frozenset({"REGULAR", "NATURAL", "CROSS", "DEPENDENT"})


@dataclass(frozen=True, slots=True)
class Derived:
    """A subquery that gives row for row: what stands behind each column, to be read in its scope."""

    select: Node
    columns: Mapping[str, Node]
    scope: Scope


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a FROM clause: its folded name, and the lake's table or the subquery behind it, if known.

    `names` are the names of a table's columns by those, folded, that the query is certain to know them by.
    """

    alias: str
    reference: Reference | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    derived: Derived | None = None

    def has(self, name: str) -> bool:
        """Whether it is certain to have a column of a folded name."""
        return name in self.names or (self.derived is not None and name in self.derived.columns)


@dataclass(frozen=True, slots=True)
class Scope:
    """A FROM clause: its entries, and the columns that USING merges (None: NATURAL, so any of them)."""

    items: tuple[Item, ...]
    merged: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition that restricts a table, to be read in a scope."""

    condition: Node
    scope: Scope
    null_rejecting: bool = False


Filters = Sequence[Filter]


def filters_by_table(references: References, schemas: Mapping[Reference, pa.Schema]) -> dict[Reference, list[Filter]]:
    """Return the conditions that restrict each table that a query names; `schemas` are those of all of them."""
    return _Pushdown(references, schemas).run()


def table_item(reference: Reference, schema: pa.Schema) -> Item:
    """Return a table as an entry of a FROM clause."""
    return Item(fold(reference.alias), reference, table_names(reference, schema))


class _Pushdown:
    """Carries conditions down from each SELECT to the tables below it."""

    def __init__(self, references: References, schemas: Mapping[Reference, pa.Schema]) -> None:
        self._columns = Columns(references, schemas)
        self._schemas = schemas
        self._selects = references.selects
        self._tables = {id(one.node): one for one in references.tables}
        self._ctes = references.ctes
        self._uses = Counter(id(entry) for entry in references.ctes.values())
        self._derived: dict[int, Derived] = {}
        self._found: dict[Reference, list[Filter]] = {}

    def run(self) -> dict[Reference, list[Filter]]:
        scopes = [self._scope(select) for select in self._selects]
        below = {id(derived.select) for derived in self._derived.values()}
        for select, scope in zip(self._selects, scopes, strict=True):
            if id(select) not in below:
                self._select(select, scope, ())
        return self._found

    def _select(self, select: Node, scope: Scope, filters: Filters) -> None:
        # USING SAMPLE draws before WHERE looks, so another set of files would be another sample.
        if select["sample"] is not None:
            filters = ()
        elif select["where_clause"] is not None:
            filters = [*filters, Filter(select["where_clause"], scope)]
        self._source(select["from_table"], scope, filters)

    def _source(self, node: Node, scope: Scope, filters: Filters) -> None:
        if node["sample"] is not None:
            filters = ()
        if (reference := self._tables.get(id(node))) is not None:
            self._found.setdefault(reference, []).extend(filters)
        elif (derived := self._derived.get(id(node))) is not None:
            self._select(derived.select, derived.scope, filters)
        elif node["type"] == "JOIN":
            left, right = _sides(node, filters, scope)
            sampled = node["sample"] is not None
            self._source(node["left"], scope, () if sampled else left)
            self._source(node["right"], scope, () if sampled else right)

    def _scope(self, select: Node) -> Scope:
        source = select["from_table"]
        return Scope(tuple(self._items(source)), _merged(source))

    def _items(self, node: Node) -> Iterator[Item]:
        if (reference := self._tables.get(id(node))) is not None:
            yield table_item(reference, self._schemas[reference])
        elif node["type"] == "JOIN":
            yield from self._items(node["left"])
            yield from self._items(node["right"])
        elif node["type"] != "EMPTY":
            yield Item(fold(entry_name(node)), derived=self._derive(node))

    def _derive(self, node: Node) -> Derived | None:
        if id(node) in self._derived:
            return self._derived[id(node)]
        if node["type"] == "SUBQUERY":
            query = node["subquery"]["node"]
        elif (entry := self._ctes.get(id(node))) is not None and self._uses[id(entry)] == 1:
            query = entry["query"]["node"]
        else:
            return None
        shown = self._columns.of_entry(node)
        if not is_row_by_row(query):
            return None
        certain = {} if shown is None else shown.certain()
        columns = {name: expression for name, expression in certain.items() if expression is not None}
        self._derived[id(node)] = Derived(query, columns, self._scope(query))
        return self._derived[id(node)]


def _sides(join: Node, filters: Filters, scope: Scope) -> tuple[Filters, Filters]:
    """Return what may restrict the left and the right side of a join, given what restricts its result."""
    kind, form = join["join_type"], join["ref_type"]
    condition = [] if join["condition"] is None else [Filter(join["condition"], scope)]
    through, weak = list(filters), [replace(one, null_rejecting=True) for one in filters]
    if form == "ASOF":
        return (through if kind in ("INNER", "LEFT") else ()), ()
    if form not in _SEARCHED_ROW_BY_ROW:
        return (), ()
    sides: dict[str, tuple[Filters, Filters]] = {
        "INNER": (through + condition, through + condition),
        "LEFT": (through, weak + condition),
        "RIGHT": (weak + condition, through),
        "SEMI": (through + condition, condition),
        "ANTI": (through, condition),
    }
    if kind in _OUTER:
        return weak, weak
    return sides.get(kind, ((), ()))


def _merged(node: Node) -> frozenset[str] | None:
    if node["type"] != "JOIN":
        return frozenset()
    if node["ref_type"] == "NATURAL":
        return None
    left, right = _merged(node["left"]), _merged(node["right"])
    if left is None or right is None:
        return None
    return left | right | {fold(name) for name in node["using_columns"]}
