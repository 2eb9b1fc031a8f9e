"""MERGE INTO with any condition and a source of any size: one query pairs the rows, within the limits of queries.

A row of the table that several rows of the source update or delete is refused, as in Delta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from alluvia.engine.conditions.columnar import masked
from alluvia.engine.conditions.pairs import Side
from alluvia.engine.conditions.sql_assignments import VALUE_AT, read_value
from alluvia.engine.conditions.sql_condition import read_expression
from alluvia.engine.duck.literals import free_name, quote_name
from alluvia.engine.queries.parse import LOCATION, outside_subqueries
from alluvia.operations.merge_query.folding import check_edit
from alluvia.operations.rows.edits import RowChanges, merge_metrics
from alluvia.operations.rows.located_edit import FoundClause, FoundEdit, FoundRules
from alluvia.operations.rows.merge import (
    BY_SOURCE,
    MATCHED,
    UNMATCHED,
    MergeClause,
    MergeRules,
    ReadClause,
    read_clauses,
)
from alluvia.operations.rows.row_changes import change_rows
from alluvia.sql.binding import with_literals
from alluvia.sql.fitting import fit_rows
from alluvia.sql.grammar.nodes import Merge
from alluvia.sql.grammar.tokens import Sql, holds_query
from alluvia.sql.locate_rows import VALUES_FROM, found_rows, places_in, quote_table
from alluvia.sql.scope import SqlScope
from alluvia.sql.source_keys import key_conditions

_CLAUSE = "alluvia_clause"


def merge(scope: SqlScope, node: Merge, source: pa.Schema, rules: MergeRules, keys: Mapping[str, str]) -> RowChanges:
    """Change a table's rows by those of a source, of which the columns are given, and the `keys` that ON equates."""
    handle = scope.catalog.handle(node.table)
    snapshot = handle.newest()
    check_edit(snapshot, "MERGE", None)
    target, given = Side(rules.alias, snapshot.schema), Side(rules.source_alias, source)
    plain = replace(rules, clauses=list(map(_without_queries, rules.clauses)))
    read_clauses(plain, snapshot.schema, source)  # what is wrong is said of what the user wrote
    rules = replace(rules, clauses=[_qualified(each, target, given) for each in rules.clauses])
    clauses = read_clauses(replace(rules, clauses=list(map(_without_queries, rules.clauses))), snapshot.schema, source)
    places = places_in(snapshot)
    there = free_name("alluvia_there", source.names)
    table = f"{quote_table(node.table)} AS {quote_name(rules.alias)}"
    mine = f"{quote_name(rules.alias)}.{places.file} IS NOT NULL"
    theirs = f"{quote_name(rules.source_alias)}.{there}"
    kind = _join({each.when for each in clauses})
    source_text = with_literals(node.source, scope.values)
    rows = f"(SELECT *, true AS {there} FROM {source_text}\n) AS {quote_name(rules.source_alias)}"  # noqa: S608
    for each in rules.clauses:
        _check_queries(scope, each, {MATCHED: [table, rows], UNMATCHED: [rows], BY_SOURCE: [table]}[each.when])
    values, found = _values(rules.clauses, clauses)
    clause = f"{_clause(rules.clauses, mine, theirs)} AS {_CLAUSE}"
    chosen = ""
    if any(each.condition is not None and _holds_query(each.condition) for each in rules.clauses):
        clause, chosen = _CLAUSE, f" CROSS JOIN LATERAL (SELECT {clause}) AS {_CLAUSE}s"  # DuckDB copies no subquery
    matched = [each for each in rules.clauses if each.when == MATCHED and each.action != "nothing"]
    deletes = [each.action for each in matched] == ["delete"] and matched[0].condition is None
    edits = FoundRules(
        "MERGE",
        found,
        {"on": masked(rules.on)},
        partial(merge_metrics, None),
        fit_rows,
        ""
        if deletes
        else f"MERGE: several rows of {rules.source_alias} would change one row of {node.table}: ask for more in ON or "
        "WHEN MATCHED AND, or group the rows of the source first",
    )
    reached = ""
    if kind in ("INNER", "RIGHT"):  # the others keep rows of the table that have no row of the source
        reached = key_conditions(scope, node, keys, snapshot.schema, source)
    joined = f" {kind} JOIN {rows} ON (\n{rules.on}\n){reached}{chosen}"
    condition = f"{_CLAUSE} IS NOT NULL"
    with found_rows(scope, node.table, rules.alias, places, [clause, *values], condition, joined) as pairs:
        return change_rows(handle, "MERGE", lambda now: FoundEdit(now, pairs, edits))


def _join(whens: set[str]) -> str:
    if whens >= {UNMATCHED, BY_SOURCE}:
        return "FULL"
    return "RIGHT" if UNMATCHED in whens else "LEFT" if BY_SOURCE in whens else "INNER"


def _qualified(clause: MergeClause, target: Side, given: Side) -> MergeClause:
    """Return a clause about rows of one side with the side's name before its columns, which the other may have too."""
    if clause.when == MATCHED:
        return clause
    side, other = (given, target) if clause.when == UNMATCHED else (target, given)
    condition = None if clause.condition is None else _with_side(clause.condition, side, other)
    if clause.values is None:
        return replace(clause, condition=condition)
    values = {name: _with_side(text, side, other) for name, text in clause.values.items()}
    return replace(clause, condition=condition, values=values)


def _without_queries(clause: MergeClause) -> MergeClause:
    """Return a clause without the parts that have subqueries, which only a query can check and compute."""
    condition = None if clause.condition is None or _holds_query(clause.condition) else clause.condition
    if clause.values is None:
        return replace(clause, condition=condition)
    values = {name: text for name, text in clause.values.items() if not _holds_query(text)}
    return replace(clause, condition=condition, values=values)


def _holds_query(text: str) -> bool:
    return holds_query(Sql(text))


def _check_queries(scope: SqlScope, clause: MergeClause, relations: Sequence[str]) -> None:
    """Have parts of a clause that have subqueries planned over the rows that it is about: they can name no others."""
    texts = {name: text for name, text in (clause.values or {}).items() if _holds_query(text)}
    for name, text in texts.items():
        read_value(name, text, subqueries=True)
    parts = list(texts.values())
    if clause.condition is not None and _holds_query(clause.condition):
        read_expression(clause.condition, subqueries=True)
        parts.append(clause.condition)
    if parts:
        shown = ", ".join(f"(\n{text}\n)" for text in parts)
        with scope.query(Sql(f"SELECT {shown} FROM {', '.join(relations)} WHERE false")):  # noqa: S608
            pass


def _with_side(text: str, side: Side, other: Side) -> str:
    data = text.encode()
    nodes = outside_subqueries(read_value("values", text, subqueries=True), lambdas=False)
    for node in sorted(nodes, key=lambda each: -int(each.get(LOCATION) or 0)):
        names = node.get("column_names")
        if names and len(names) == 1 and side.column(names[0]) and other.column(names[0]):
            at = node[LOCATION] - VALUE_AT
            data = data[:at] + f"{quote_name(side.alias)}.".encode() + data[at:]
    return data.decode()


def _clause(clauses: Sequence[MergeClause], mine: str, theirs: str) -> str:
    """Return the number of the clause that says what becomes of a pair; NULL where it stays as it is."""
    cases = []
    for when, pairs in ((MATCHED, f"{mine} AND {theirs}"), (BY_SOURCE, mine), (UNMATCHED, theirs)):
        numbered = [(number, each) for number, each in enumerate(clauses) if each.when == when]
        chosen = " ".join(
            f"WHEN (\n{each.condition or 'true'}\n) THEN {'NULL' if each.action == 'nothing' else number}"
            for number, each in numbered
        )
        cases.append(f"WHEN {pairs} THEN {f'CASE {chosen} END' if chosen else 'NULL'}")
    return f"CASE {' '.join(cases)} END::INTEGER"


def _values(clauses: Sequence[MergeClause], read: Sequence[ReadClause]) -> tuple[list[str], list[FoundClause]]:
    """Return what computes the values of all clauses, each where its clause applies, and where each finds its own."""
    values: list[str] = []
    found = []
    for number, (clause, plain) in enumerate(zip(clauses, read, strict=True)):
        plain.check()
        texts = {name: text for name, text in (clause.values or {}).items() if _holds_query(text)}
        texts |= {} if plain.values is None else {name: plain.values.typed(name) for name in plain.values.names}
        found.append(FoundClause(clause.action, list(texts), VALUES_FROM + len(values)))
        values += [f"CASE WHEN {_CLAUSE} = {number} THEN (\n{text}\n) END" for text in texts.values()]
    return values, found
