"""A FROM clause of a query, and to which columns of tables the expressions over it are traced. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache

from alluvia.delta.schema.names import fold
from alluvia.engine.duck.database import planner
from alluvia.engine.queries.functions import UNNESTING
from alluvia.engine.queries.parse import Node, walk, without_locations
from alluvia.engine.queries.reproducible import changes
from alluvia.lazy_dataclasses import dataclass

Trace = Mapping[str, Node]
"""By the name of a table, an expression of its columns."""
JoinedTrace = Mapping[int, Trace]
"""By the number of an entry of FROM, the trace of a column in it."""
ONE_SIDED = frozenset({"SEMI", "ANTI"})
_EQUAL = frozenset({"COMPARE_EQUAL", "COMPARE_NOT_DISTINCT_FROM"})
_NOWHERE = -1
_OPAQUE = frozenset({"SUBQUERY", "WINDOW", "STAR", "POSITIONAL_REFERENCE", "LAMBDA_REF", "PARAMETER"})


@dataclass(frozen=True, slots=True)
class FromColumn:
    """A column that a SELECT can name, of the FROM entry `owner`; `shown` by a star."""

    owner: str
    name: str
    trace: JoinedTrace | None
    shown: bool = True


@dataclass(slots=True)
class FromClause:
    """A FROM clause: its columns, and traces that are equal in each row of it.

    `merged` has the columns that USING makes of two. `entries` are the numbers of those that read tables, and `tables`
    are the names of these.
    """

    columns: list[FromColumn] = field(default_factory=list)
    merged: dict[str, JoinedTrace | None] = field(default_factory=dict)
    equal: list[tuple[JoinedTrace, JoinedTrace]] = field(default_factory=list)
    entries: frozenset[int] = frozenset()
    tables: frozenset[str] = frozenset()
    ordered: bool = True

    def find(self, names: Sequence[str]) -> JoinedTrace | None:
        """Return the trace of a column by the parts of its name."""
        parts = [fold(name) for name in names]
        if len(parts) == 1 and parts[0] in self.merged:
            return self.merged[parts[0]]
        found = [each for each in self.columns if [each.owner, each.name][-len(parts) :] == parts]
        return found[0].trace if len(found) == 1 and len(parts) < 3 else None

    def has(self, name: str) -> bool:
        """Whether there is a column of a name."""
        return name in self.merged or any(each.name == name for each in self.columns)

    def extended(self, trace: JoinedTrace) -> JoinedTrace:
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

    def whole(self, trace: JoinedTrace | None) -> Trace | None:
        """Return a trace by tables, if it has all entries and says one thing of each table."""
        if not trace:
            return None
        trace = self.extended(trace)
        if not self.entries or self.entries - trace.keys():
            return None
        return together(trace[entry] for entry in sorted(self.entries))


@dataclass(frozen=True, slots=True)
class TracedExpressions:
    """Traces expressions over a FROM clause; `aliases` are the items of SELECT by name."""

    source: FromClause
    aliases: Mapping[str, Node] = field(default_factory=dict)

    def trace(self, node: Node, within: frozenset[int] = frozenset()) -> JoinedTrace | None:
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

    def _column(self, names: Sequence[str], within: frozenset[int]) -> JoinedTrace | None:
        item = self.aliases.get(fold(names[0])) if len(names) == 1 else None
        if item is not None and id(item) not in within and not self.source.has(fold(names[0])):
            return self.trace(item, within)
        found = self.source.find(names)
        return None if found is None else self.source.extended(found)


def unknown_tables(tables: frozenset[str]) -> FromClause:
    """Return a FROM clause of which only the tables are known. It has an entry that nothing is traced to."""
    return FromClause(entries=frozenset({_NOWHERE} if tables else ()), tables=tables, ordered=False)


def merge_using(both: FromClause, left: FromClause, right: FromClause, name: str, kind: str) -> None:
    """Make one column of two by USING."""
    one, other = left.find([name]), right.find([name])
    if one is None or other is None:
        both.merged[name] = None
    elif kind in ONE_SIDED or kind in ("INNER", "LEFT", "RIGHT"):
        both.equal.append((one, other))
        both.merged[name] = other if kind == "RIGHT" else one
    else:
        both.merged[name] = {**other, **one}


def add_equality(both: FromClause, left: FromClause, right: FromClause, condition: Node) -> None:
    """Note that two expressions are equal in each row, one of `left` and one of `right`."""
    if condition.get("type") not in _EQUAL:
        return
    for one, other in ((condition["left"], condition["right"]), (condition["right"], condition["left"])):
        trace, same = TracedExpressions(left).trace(one), TracedExpressions(right).trace(other)
        if trace is not None and same is not None:
            both.equal.append((trace, same))
            return


def conjuncts(condition: Node | None) -> Iterator[Node]:
    """Yield the conditions that must all hold for a condition to hold."""
    if condition is None:
        return
    if condition.get("type") == "CONJUNCTION_AND":
        for child in condition["children"]:
            yield from conjuncts(child)
    else:
        yield condition


def together(traces: Iterable[Trace]) -> Trace | None:
    """Return several traces as one; None where two say something else of the same table."""
    made: dict[str, Node] = {}
    for trace in traces:
        for table, expression in trace.items():
            if made.setdefault(table, expression) != expression:
                return None
    return made


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


def _substituted(node: Node, by: Mapping[int, Node]) -> Node:
    """Return an expression with others in the place of its columns, without positions and its alias."""

    def made(value: object) -> object:
        if isinstance(value, dict):
            return by[id(value)] if id(value) in by else {key: made(child) for key, child in value.items()}
        return [made(child) for child in value] if isinstance(value, list) else value

    result = without_locations(made({**node, "alias": ""}))
    assert isinstance(result, dict)  # noqa: S101 - a node is a dict
    return result
