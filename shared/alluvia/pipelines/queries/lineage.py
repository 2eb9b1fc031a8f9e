"""Which columns of a query's result tell apart the rows of its tables that make it. Pure.

A column is *traced* if, for each table of the query, there is an expression of the table's columns such that the rows
of the result with a value of the column depend on nothing but the rows of the tables for which the expressions have
that value. Then the rows of the result for some values can be computed from those rows alone. It holds for several
traced columns together if it holds for each.

Source: the rules are those by which an optimizer moves a filter on the result down to the tables, through GROUP BY,
PARTITION BY, DISTINCT ON, set operations and equal columns of joins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.derived import Shown
from alluvia.engine.queries.parse import Node, column_ref, integer_literal, walk
from alluvia.engine.queries.references import References
from alluvia.lazy_dataclasses import dataclass
from alluvia.pipelines.queries.from_clauses import (
    ONE_SIDED,
    FromClause,
    FromColumn,
    Trace,
    TracedExpressions,
    add_equality,
    conjuncts,
    merge_using,
    together,
    unknown_tables,
)

_BY_CONDITION = frozenset({"REGULAR", "CROSS", "ASOF"})


@dataclass(frozen=True, slots=True)
class TracedResult:
    """The columns of a query by folded name in order, each with its trace; None for one that has none.

    `tables` are those that the query reads. `ordered` is false where the positions of the columns are not known.
    """

    columns: tuple[tuple[str, Trace | None], ...]
    tables: frozenset[str]
    ordered: bool = True

    @property
    def traced(self) -> dict[str, Trace]:
        """Return the traced columns whose names mean them, and cannot mean another."""
        certain = Shown(tuple((name, None) for name, _ in self.columns)).certain()
        return {name: trace for name, trace in self.columns if trace and name in certain}


def trace_columns(root: Node, references: References, schemas: Mapping[str, pa.Schema]) -> TracedResult:
    """Return the columns of a query with their traces. `schemas` are those of its tables, by name."""
    return _Tracer(references, schemas).query(root)


class _Tracer:
    """Goes through the parts of one query."""

    def __init__(self, references: References, schemas: Mapping[str, pa.Schema]) -> None:
        self._tables = {id(one.node): one for one in references.tables}
        self._ctes = references.ctes
        self._schemas = schemas
        self._entries = 0
        self._outputs: dict[int, TracedResult] = {}

    def query(self, node: Node) -> TracedResult:
        if id(node) not in self._outputs:
            self._outputs[id(node)] = self._query(node)
        return self._outputs[id(node)]

    def _query(self, node: Node) -> TracedResult:
        if node["type"] == "SELECT_NODE":
            output = self._select(node)
        elif node["type"] == "SET_OPERATION_NODE":
            output = _set_operation(node, self.query(node["left"]), self.query(node["right"]))
        else:
            output = TracedResult((), self._below(node), ordered=False)
        limited = any(each["type"].startswith("LIMIT") for each in node.get("modifiers") or ())
        return _untraced(output) if limited else output

    def _below(self, node: Node) -> frozenset[str]:
        """Return the tables that are named in a part of a query, however deep."""
        found: set[str] = set()
        seen: set[int] = set()
        pending = [node]
        while pending:
            for each in walk(pending.pop()):
                if (reference := self._tables.get(id(each))) is not None:
                    found.add(reference.table or reference.shown)
                elif (entry := self._ctes.get(id(each))) is not None and id(entry) not in seen:
                    seen.add(id(entry))
                    pending.append(entry)
        return frozenset(found)

    def _select(self, node: Node) -> TracedResult:
        source = self._from(node["from_table"])
        for condition in conjuncts(node["where_clause"]):
            add_equality(source, source, source, condition)
        select = _Select(node, source)
        below = self._below({**node, "cte_map": None})
        columns = list(select.outputs())
        ordered = source.ordered or not any(each["class"] == "STAR" for each in node["select_list"])
        if below != source.tables or select.hides:  # a subquery in an expression reads tables, too
            columns = [(name, None) for name, _ in columns]
        return TracedResult(tuple(columns), below, ordered=ordered)

    def _from(self, node: Node) -> FromClause:
        kind = node["type"]
        if kind == "JOIN":
            return self._join(node)
        aliases = [fold(name) for name in node.get("column_name_alias") or ()]
        if node.get("sample") is not None:
            return unknown_tables(self._below(node))
        if (reference := self._tables.get(id(node))) is not None:
            table = reference.table or reference.shown
            columns = tuple((fold(name), {table: column_ref(name)}) for name in self._schemas[table].names)
            return self._entry(fold(reference.alias), TracedResult(columns, frozenset({table})), aliases)
        if (entry := self._ctes.get(id(node))) is not None:
            body = entry["query"]["node"]
            if body["type"] == "RECURSIVE_CTE_NODE":
                return unknown_tables(self._below(body))
            output = _renamed(self.query(body), [fold(name) for name in entry["aliases"]])
            return self._entry(fold(node["alias"] or node["table_name"]), output, aliases)
        if kind == "SUBQUERY":
            return self._entry(fold(node["alias"]), self.query(node["subquery"]["node"]), aliases)
        return FromClause() if kind == "EMPTY" else unknown_tables(self._below(node))

    def _entry(self, alias: str, output: TracedResult, aliases: Sequence[str]) -> FromClause:
        output = _renamed(output, aliases)
        self._entries += 1
        traced = output.traced
        columns = [
            FromColumn(alias, name, {self._entries: traced[name]} if name in traced else None)
            for name, _ in output.columns
        ]
        entries = frozenset({self._entries} if output.tables else ())
        return FromClause(columns, {}, [], entries, output.tables, ordered=output.ordered)

    def _join(self, node: Node) -> FromClause:
        left, right = self._from(node["left"]), self._from(node["right"])
        kind = node["join_type"]
        both = FromClause(
            [*left.columns, *right.columns],
            {**right.merged, **left.merged},
            [*left.equal, *right.equal],
            left.entries | right.entries,
            left.tables | right.tables,
            ordered=left.ordered and right.ordered,
        )
        if node["ref_type"] not in _BY_CONDITION or node.get("sample") is not None:
            return unknown_tables(both.tables)
        for name in map(fold, node["using_columns"]):
            merge_using(both, left, right, name, kind)
        for condition in conjuncts(node["condition"]):
            if kind == "INNER":
                add_equality(both, both, both, condition)
            elif kind in ONE_SIDED or kind in ("LEFT", "RIGHT"):
                add_equality(both, left, right, condition)
        kept = {"INNER": both.columns, "LEFT": left.columns, "RIGHT": right.columns}.get(kind, [])
        kept = left.columns if kind in ONE_SIDED else kept
        certain = set(map(id, kept))
        # The others may be null where an outer join finds nothing.
        both.columns = [each if id(each) in certain else replace(each, trace=None) for each in both.columns]
        if kind in ONE_SIDED:
            both.columns = both.columns[: len(left.columns)]
        for name in map(fold, node["using_columns"]):
            hidden = [at for at, each in enumerate(both.columns) if at >= len(left.columns) and each.name == name]
            for at in hidden:
                both.columns[at] = replace(both.columns[at], shown=False)
        return both


class _Select:
    """The columns of one SELECT. `hides` where its rows depend on more than the traced columns."""

    def __init__(self, node: Node, source: FromClause) -> None:
        self._node = node
        self._source = source
        aliases = {fold(each["alias"]): each for each in node["select_list"] if each["alias"]}
        self._expressions = TracedExpressions(source, aliases)
        several = len(node["group_sets"]) > 1 or node["sample"] is not None
        self.hides = several or any(each.get("class") == "SUBQUERY" for each in self._nodes())
        self._partitions = list(self._parts())

    def outputs(self) -> Iterator[tuple[str, Trace | None]]:
        """Yield the name and the trace of each column."""
        for item in self._node["select_list"]:
            if item["class"] == "STAR":
                yield from self._star(item)
                continue
            name = fold(item["alias"] or (item["column_names"][-1] if item["class"] == "COLUMN_REF" else ""))
            yield name, self._kept(self._expressions.whole(item))

    def _star(self, star: Node) -> Iterator[tuple[str, Trace | None]]:
        relation, source = fold(star["relation_name"]), self._source
        left_out = {fold(name) for name in star["exclude_list"]}
        changed = any(star[key] for key in ("replace_list", "qualified_exclude_list", "rename_list", "columns", "expr"))
        for column in source.columns:
            if relation not in ("", column.owner) or not (column.shown or relation) or column.name in left_out:
                continue
            trace = column.trace if relation else source.merged.get(column.name, column.trace)
            yield column.name, None if changed else self._kept(source.whole(trace))

    def _kept(self, trace: Trace | None) -> Trace | None:
        """Return a trace if each window and DISTINCT ON divides the rows by it."""
        return trace if trace is not None and all(trace in parts for parts in self._partitions) else None

    def _parts(self) -> Iterator[list[Trace | None]]:
        """Yield for each window, and for DISTINCT ON, the traces of the expressions that divide the rows."""
        for node in self._nodes():
            if node.get("class") == "WINDOW":
                yield [self._expressions.whole(each) for each in node["partitions"]]
        for modifier in self._node["modifiers"]:
            if modifier["type"] == "DISTINCT_MODIFIER" and modifier["distinct_on_targets"]:
                yield [self._expressions.whole(self._target(each)) for each in modifier["distinct_on_targets"]]

    def _target(self, node: Node) -> Node:
        number = integer_literal(node)
        items: list[Node] = self._node["select_list"]
        return items[number - 1] if number is not None and 0 < number <= len(items) else node

    def _nodes(self) -> Iterator[Node]:
        """Yield every node of the SELECT's own expressions."""
        node = self._node
        return walk(
            [node["select_list"], node["where_clause"], node["having"], node["qualify"], node["group_expressions"]]
        )


def _set_operation(node: Node, left: TracedResult, right: TracedResult) -> TracedResult:
    tables = left.tables | right.tables
    if node["setop_type"] == "UNION_BY_NAME" or not (left.ordered and right.ordered):
        return TracedResult(tuple((name, None) for name, _ in left.columns), tables, ordered=False)
    pairs = zip(left.columns, right.columns, strict=False)
    columns = [
        (name, None if one is None or other is None else together((one, other))) for (name, one), (_, other) in pairs
    ]
    return TracedResult(tuple(columns), tables)


def _renamed(output: TracedResult, names: Sequence[str]) -> TracedResult:
    if not names:
        return output
    if not output.ordered or len(names) > len(output.columns):
        return _untraced(output)
    given = [(name, trace) for name, (_, trace) in zip(names, output.columns, strict=False)]
    return replace(output, columns=(*given, *output.columns[len(names) :]))


def _untraced(output: TracedResult) -> TracedResult:
    return replace(output, columns=tuple((name, None) for name, _ in output.columns))
