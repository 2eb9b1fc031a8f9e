"""Which columns of a query's result tell apart the rows of its tables that make it. Pure.

A column is *traced* if, for each table of the query, there is an expression of the table's columns such that the rows
of the result with a value of the column depend on nothing but the rows of the tables for which the expressions have
that value. Then the rows of the result for some values can be computed from those rows alone. It holds for several
traced columns together if it holds for each.

Source: the rules are those by which an optimizer moves a filter on the result down to the tables, through GROUP BY,
PARTITION BY, DISTINCT ON, set operations and equal columns of joins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.engine.duck.database import planner
from alluvia.engine.queries.derived import Shown
from alluvia.engine.queries.functions import UNNESTING
from alluvia.engine.queries.parse import Node, integer_literal, walk, without_locations
from alluvia.engine.queries.references import References
from alluvia.engine.queries.reproducible import changes
from alluvia.lazy_dataclasses import dataclass

Trace = Mapping[str, Node]
"""By the name of a table, an expression of its columns."""
_Joined = Mapping[int, Trace]
"""By the number of an entry of FROM, what a column is traced to in it."""
_EQUAL = frozenset({"COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM"})
_ONE_SIDED = frozenset({"SEMI", "ANTI"})
_BY_CONDITION = frozenset({"REGULAR", "CROSS", "ASOF"})
_NOWHERE = -1
_OPAQUE = frozenset({"SUBQUERY", "WINDOW", "STAR", "POSITIONAL_REFERENCE", "LAMBDA_REF", "PARAMETER"})


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


@dataclass(frozen=True, slots=True)
class _Column:
    """A column that a SELECT can name, of the FROM entry `owner`; `shown` by a star."""

    owner: str
    name: str
    trace: _Joined | None
    shown: bool = True


@dataclass(slots=True)
class _From:
    """A FROM clause: its columns, and traces that are equal in each row of it.

    `merged` has the columns that USING makes of two. `entries` are the numbers of those that read tables, and `tables`
    are the names of these.
    """

    columns: list[_Column] = field(default_factory=list)
    merged: dict[str, _Joined | None] = field(default_factory=dict)
    equal: list[tuple[_Joined, _Joined]] = field(default_factory=list)
    entries: frozenset[int] = frozenset()
    tables: frozenset[str] = frozenset()
    ordered: bool = True

    def find(self, names: Sequence[str]) -> _Joined | None:
        """Return the trace of a column by the parts of its name."""
        parts = [fold(name) for name in names]
        if len(parts) == 1 and parts[0] in self.merged:
            return self.merged[parts[0]]
        found = [each for each in self.columns if [each.owner, each.name][-len(parts) :] == parts]
        return found[0].trace if len(found) == 1 and len(parts) < 3 else None

    def has(self, name: str) -> bool:
        """Whether there is a column of a name."""
        return name in self.merged or any(each.name == name for each in self.columns)

    def extended(self, trace: _Joined) -> _Joined:
        """Return a trace with all that equal columns add to it."""
        pending = list(self.equal)
        while pending:
            known = len(pending)
            for pair in list(pending):
                for one, other in (pair, pair[::-1]):
                    if pair in pending and all(trace.get(entry) == one[entry] for entry in one):
                        trace = {**other, **trace}
                        pending.remove(pair)
            if len(pending) == known:
                break
        return trace

    def whole(self, trace: _Joined | None) -> Trace | None:
        """Return a trace by tables, if it has all entries and says one thing of each table."""
        if not trace:
            return None
        trace = self.extended(trace)
        if not self.entries or self.entries - trace.keys():
            return None
        return _together(trace[entry] for entry in sorted(self.entries))


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
        for condition in _conjuncts(node["where_clause"]):
            _add_equality(source, source, source, condition)
        select = _Select(node, source)
        below = self._below({**node, "cte_map": None})
        columns = list(select.outputs())
        ordered = source.ordered or not any(each["class"] == "STAR" for each in node["select_list"])
        if below != source.tables or select.hides:  # a subquery in an expression reads tables, too
            columns = [(name, None) for name, _ in columns]
        return TracedResult(tuple(columns), below, ordered=ordered)

    def _from(self, node: Node) -> _From:
        kind = node["type"]
        if kind == "JOIN":
            return self._join(node)
        aliases = [fold(name) for name in node.get("column_name_alias") or ()]
        if node.get("sample") is not None:
            return _unknown(self._below(node))
        if (reference := self._tables.get(id(node))) is not None:
            table = reference.table or reference.shown
            columns = tuple((fold(name), {table: _column(name)}) for name in self._schemas[table].names)
            return self._entry(fold(reference.alias), TracedResult(columns, frozenset({table})), aliases)
        if (entry := self._ctes.get(id(node))) is not None:
            body = entry["query"]["node"]
            if body["type"] == "RECURSIVE_CTE_NODE":
                return _unknown(self._below(body))
            output = _renamed(self.query(body), [fold(name) for name in entry["aliases"]])
            return self._entry(fold(node["alias"] or node["table_name"]), output, aliases)
        if kind == "SUBQUERY":
            return self._entry(fold(node["alias"]), self.query(node["subquery"]["node"]), aliases)
        return _From() if kind == "EMPTY" else _unknown(self._below(node))

    def _entry(self, alias: str, output: TracedResult, aliases: Sequence[str]) -> _From:
        output = _renamed(output, aliases)
        self._entries += 1
        traced = output.traced
        columns = [
            _Column(alias, name, {self._entries: traced[name]} if name in traced else None)
            for name, _ in output.columns
        ]
        entries = frozenset({self._entries} if output.tables else ())
        return _From(columns, {}, [], entries, output.tables, ordered=output.ordered)

    def _join(self, node: Node) -> _From:
        left, right = self._from(node["left"]), self._from(node["right"])
        kind = node["join_type"]
        both = _From(
            [*left.columns, *right.columns],
            {**right.merged, **left.merged},
            [*left.equal, *right.equal],
            left.entries | right.entries,
            left.tables | right.tables,
            ordered=left.ordered and right.ordered,
        )
        if node["ref_type"] not in _BY_CONDITION or node.get("sample") is not None:
            return _unknown(both.tables)
        for name in map(fold, node["using_columns"]):
            _merge(both, left, right, name, kind)
        for condition in _conjuncts(node["condition"]):
            if kind == "INNER":
                _add_equality(both, both, both, condition)
            elif kind in _ONE_SIDED or kind in ("LEFT", "RIGHT"):
                _add_equality(both, left, right, condition)
        kept = {"INNER": both.columns, "LEFT": left.columns, "RIGHT": right.columns}.get(kind, [])
        kept = left.columns if kind in _ONE_SIDED else kept
        certain = set(map(id, kept))
        # The others may be null where an outer join finds nothing.
        both.columns = [each if id(each) in certain else replace(each, trace=None) for each in both.columns]
        if kind in _ONE_SIDED:
            both.columns = both.columns[: len(left.columns)]
        for name in map(fold, node["using_columns"]):
            hidden = [at for at, each in enumerate(both.columns) if at >= len(left.columns) and each.name == name]
            for at in hidden:
                both.columns[at] = replace(both.columns[at], shown=False)
        return both


@dataclass(frozen=True, slots=True)
class _Expressions:
    """Traces expressions over a FROM clause; `aliases` are the items of SELECT by name."""

    source: _From
    aliases: Mapping[str, Node] = field(default_factory=dict)

    def trace(self, node: Node, within: frozenset[int] = frozenset()) -> _Joined | None:
        """Return the trace of an expression. `within` are the items that it is part of, which it cannot mean."""
        within |= {id(node)}
        if node["class"] == "COLUMN_REF":
            return self._column(node["column_names"], within)
        used = [each for each in walk(node) if each.get("class") == "COLUMN_REF"]
        if not used or any(map(_is_opaque, walk(node))):
            return None
        traces = {id(each): self.trace(each, within) for each in used}
        known = [trace for trace in traces.values() if trace is not None]
        if len(known) < len(traces):
            return None
        entries = frozenset.intersection(*map(frozenset, known))
        made = {
            entry: {
                table: _substituted(node, {each: trace[entry][table] for each, trace in traces.items() if trace})
                for table in known[0][entry]
            }
            for entry in entries
        }
        return made or None

    def whole(self, node: Node) -> Trace | None:
        """Return the trace of an expression by tables; None unless it has all of them."""
        return self.source.whole(self.trace(node))

    def _column(self, names: Sequence[str], within: frozenset[int]) -> _Joined | None:
        item = self.aliases.get(fold(names[0])) if len(names) == 1 else None
        if item is not None and id(item) not in within and not self.source.has(fold(names[0])):
            return self.trace(item, within)
        found = self.source.find(names)
        return None if found is None else self.source.extended(found)


class _Select:
    """The columns of one SELECT. `hides` where its rows depend on more than the traced columns."""

    def __init__(self, node: Node, source: _From) -> None:
        self._node = node
        self._source = source
        aliases = {fold(each["alias"]): each for each in node["select_list"] if each["alias"]}
        self._expressions = _Expressions(source, aliases)
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


def _unknown(tables: frozenset[str]) -> _From:
    """Return a FROM clause of which only the tables are known. It has an entry that nothing is traced to."""
    return _From(entries=frozenset({_NOWHERE} if tables else ()), tables=tables, ordered=False)


def _merge(both: _From, left: _From, right: _From, name: str, kind: str) -> None:
    """Make one column of two by USING."""
    one, other = left.find([name]), right.find([name])
    if one is None or other is None:
        both.merged[name] = None
    elif kind in _ONE_SIDED or kind in ("INNER", "LEFT", "RIGHT"):
        both.equal.append((one, other))
        both.merged[name] = other if kind == "RIGHT" else one
    else:
        both.merged[name] = {**other, **one}


def _add_equality(both: _From, left: _From, right: _From, condition: Node) -> None:
    """Note that two expressions are equal in each row, one of `left` and one of `right`."""
    if condition.get("type") not in _EQUAL:
        return
    for one, other in ((condition["left"], condition["right"]), (condition["right"], condition["left"])):
        trace, same = _Expressions(left).trace(one), _Expressions(right).trace(other)
        if trace is not None and same is not None:
            both.equal.append((trace, same))
            return


def _conjuncts(condition: Node | None) -> Iterator[Node]:
    if condition is None:
        return
    if condition.get("type") == "CONJUNCTION_AND":
        for child in condition["children"]:
            yield from _conjuncts(child)
    else:
        yield condition


def _set_operation(node: Node, left: TracedResult, right: TracedResult) -> TracedResult:
    tables = left.tables | right.tables
    if node["setop_type"] == "UNION_BY_NAME" or not (left.ordered and right.ordered):
        return TracedResult(tuple((name, None) for name, _ in left.columns), tables, ordered=False)
    pairs = zip(left.columns, right.columns, strict=False)
    columns = [
        (name, None if one is None or other is None else _together((one, other))) for (name, one), (_, other) in pairs
    ]
    return TracedResult(tuple(columns), tables)


def _together(traces: Iterable[Trace]) -> Trace | None:
    """Return several traces as one; None where two say something else of the same table."""
    made: dict[str, Node] = {}
    for trace in traces:
        for table, expression in trace.items():
            if made.setdefault(table, expression) != expression:
                return None
    return made


def _renamed(output: TracedResult, names: Sequence[str]) -> TracedResult:
    if not names:
        return output
    if not output.ordered or len(names) > len(output.columns):
        return _untraced(output)
    given = [(name, trace) for name, (_, trace) in zip(names, output.columns, strict=False)]
    return replace(output, columns=(*given, *output.columns[len(names) :]))


def _untraced(output: TracedResult) -> TracedResult:
    return replace(output, columns=tuple((name, None) for name, _ in output.columns))


def _is_opaque(node: Node) -> bool:
    kind = node.get("class")
    if kind in _OPAQUE or changes(node):
        return True
    return kind == "FUNCTION" and fold(node["function_name"]) in (aggregates() | UNNESTING)


@cache
def aggregates() -> frozenset[str]:
    """Return the names of DuckDB's aggregate functions."""
    found = planner().execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'")
    return frozenset(str(row[0]) for row in found.fetchall())


def _column(name: str) -> Node:
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": [name]}


def _substituted(node: Node, by: Mapping[int, Node]) -> Node:
    """Return an expression with others in the place of its columns, without positions and its alias."""

    def made(value: object) -> object:
        if isinstance(value, dict):
            return by[id(value)] if id(value) in by else {key: made(child) for key, child in value.items()}
        return [made(child) for child in value] if isinstance(value, list) else value

    result = without_locations(made({**node, "alias": ""}))
    assert isinstance(result, dict)  # noqa: S101 - a node is a dict
    return result
