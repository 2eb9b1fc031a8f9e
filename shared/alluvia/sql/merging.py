"""MERGE INTO: pairs of a table's rows and a source's, by keys in memory if the source is small, else by a query.

A row of the table that several rows of the source update or delete is refused, as in Delta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from alluvia.engine.conditions.pairs import PairValues, Side
from alluvia.engine.conditions.sql_assignments import VALUE_AT, read_value
from alluvia.engine.conditions.sql_condition import read_expression
from alluvia.engine.duck.literals import free_name, literal, quote_name, quote_table
from alluvia.engine.queries.engine_tree import LOCATION
from alluvia.engine.queries.parse import outside_subqueries, parse, walk
from alluvia.engine.queries.references import find_references
from alluvia.engine.queries.reproducible import expressions
from alluvia.engine.queries.tokens import masked
from alluvia.errors import Invalid
from alluvia.operations.merge_query.folding import check_edit
from alluvia.operations.rows import keyed_merge
from alluvia.operations.rows.edits import RowChanges, merge_metrics
from alluvia.operations.rows.located_merge import VALUES_FROM, LocatedClause, LocatedMerge, LocatedRules
from alluvia.operations.rows.merge import BY_SOURCE, MATCHED, UNMATCHED, MergeClause, MergeRules, keys_of, read_clauses
from alluvia.operations.rows.row_changes import change_rows
from alluvia.operations.rows.source_keys import UnfitKeys
from alluvia.sql.binding import column_of, with_literals
from alluvia.sql.changing import located, places_in
from alluvia.sql.grammar.cursor import Sql, holds_query
from alluvia.sql.grammar.nodes import Assignments, Merge, reads_more
from alluvia.sql.scope import Done, SqlScope

SOURCE_BYTES = 256 << 20
"""A larger source is read by the query that pairs it with the table, not into memory."""
KEYS_MAX = 100
"""About so many distinct values of a key are listed; of more, only the least and the greatest count."""
_COUNT = "approx_count_distinct"
_PAIR, _NUMBER = "alluvia_pair", "clause"


def merge(scope: SqlScope, node: Merge) -> Done:
    """Change a table's rows by those of a source."""
    if holds_query(node.on):
        raise Invalid("ON cannot use subqueries: write them in the source, or after AND in a WHEN clause")
    handle = scope.catalog.handle(node.table)
    schema = handle.newest().schema
    rules = _merge_rules(scope, node, schema.names)
    with scope.query(Sql(f"FROM {node.source.text}", node.source.placeholders)) as result:
        keys = keys_of(rules, schema, result.schema)
        in_memory = keys.columns and not any(map(reads_more, node.clauses))
        source = result.read_within(min(SOURCE_BYTES, scope.memory_bytes or SOURCE_BYTES)) if in_memory else None
    done = None
    if source is not None:
        with suppress(UnfitKeys):  # which is not an error where the table has no row of such a key
            done = keyed_merge.merge(handle, source, rules)
    done = done or _QueriedMerge(scope, node, result.schema, rules, keys.columns).run()
    return {
        "rows_inserted": done.rows_inserted,
        "rows_updated": done.rows_updated,
        "rows_deleted": done.rows_deleted,
        "version": done.version,
    }


def _merge_rules(scope: SqlScope, node: Merge, names: Sequence[str]) -> MergeRules:
    clauses = []
    for clause in node.clauses:
        values = None
        assignments = clause.assignments if clause.values is None else _all_assigned(node, clause.values, names)
        if assignments is not None:
            columns = dict.fromkeys(names)
            values = {column_of(name, columns, node.table): scope.expression(sql) for name, sql in assignments}
            if len(values) < len(assignments):
                raise Invalid(f"WHEN … THEN {clause.action.upper()}: a column is named twice")
        condition = None if clause.condition is None else scope.expression(clause.condition)
        clauses.append(MergeClause(clause.when, clause.action, condition, values))
    return MergeRules(node.alias, node.source_alias, scope.expression(node.on), clauses)


def _all_assigned(node: Merge, values: Sequence[Sql], names: Sequence[str]) -> Assignments:
    """Return the values of INSERT VALUES (…), or of DEFAULT VALUES, with their columns: each column has one."""
    if values and len(values) != len(names):
        shown = f"{len(names)} columns ({', '.join(names)}): name those that get one, as in INSERT ({names[0]}) VALUES"
        raise Invalid(f"MERGE: INSERT has {len(values)} values, but table {node.table} {shown} (…)")
    return tuple(zip(names, values or [Sql("NULL")] * len(names), strict=True))


class _QueriedMerge:
    """A merge of a source of which the columns are known, and the `keys` that ON equates, by a query within its limits.

    Raises `Invalid` for expressions that do not fit.
    """

    def __init__(
        self, scope: SqlScope, node: Merge, source: pa.Schema, rules: MergeRules, keys: Mapping[str, str]
    ) -> None:
        self._scope, self._node, self._source, self._keys = scope, node, source, keys
        self._handle = scope.catalog.handle(node.table)
        snapshot = self._handle.newest()
        check_edit(snapshot, "MERGE", None)
        self._schema = snapshot.schema
        self._places = places_in(snapshot)
        table, given = rules.sides(snapshot.schema, source)
        plain = replace(rules, clauses=list(map(_without_queries, rules.clauses)))
        read_clauses(plain, snapshot.schema, source)  # errors are about the text that the user wrote
        self._rules = replace(rules, clauses=[_qualified(each, table, given) for each in rules.clauses])
        self._clauses, self._values = _clauses(self._rules, snapshot.schema, source)

    def run(self) -> RowChanges:
        """Locate the pairs, and change their rows."""
        alias, table = self._rules.source_alias, self._node.table
        matched = [each for each in self._rules.clauses if each.when == MATCHED and each.action != "nothing"]
        deletes = [each.action for each in matched] == ["delete"] and matched[0].condition is None
        twice = (
            f"MERGE: several rows of {alias} would change one row of {table}: ask for more in ON or WHEN MATCHED AND, "
            "or group the rows of the source first"
        )
        text, source_rows = self._query()
        parameters, metrics = {"on": masked(self._rules.on)}, partial(merge_metrics, source_rows)
        edits = LocatedRules("MERGE", self._clauses, parameters, metrics, "" if deletes else twice)
        with located(self._scope, text, self._places) as pairs:
            return change_rows(self._handle, "MERGE", lambda now: LocatedMerge(now, pairs, edits))

    def _query(self) -> tuple[str, int | None]:
        """Return the query for the pairs to which a clause applies, each with its place, the clause and its values.

        Return the number of the source's rows, too, where it is known.
        """
        rules, places = self._rules, self._places
        there = free_name("alluvia_there", self._source.names)
        alias, source_alias = quote_name(rules.alias), quote_name(rules.source_alias)
        table = f"{quote_table(self._node.table)} AS {alias}"
        given = with_literals(self._node.source, self._scope.values)
        rows = f"(SELECT *, true AS {there} FROM {given}\n) AS {source_alias}"  # noqa: S608
        for each in rules.clauses:
            _check_queries(
                self._scope, each, {MATCHED: [table, rows], UNMATCHED: [rows], BY_SOURCE: [table]}[each.when]
            )
        reached, source_rows = "", None
        kind = _join({each.when for each in rules.clauses})
        if kind in ("INNER", "RIGHT"):  # the others keep rows of the table that have no row of the source
            reached, source_rows = _key_conditions(self._scope, self._node, self._keys, self._schema, self._source)
        pair = _pair(rules.clauses, self._values, f"{alias}.{places.file} IS NOT NULL", f"{source_alias}.{there}")
        parts = [_NUMBER, *map(_value_name, range(sum(map(len, self._values))))]
        shown = ", ".join(f"struct_extract({_PAIR}, '{name}')" for name in parts)
        text = (
            f"FROM (FROM {table} {kind} JOIN {rows} ON (\n{rules.on}\n){reached} "
            f"SELECT {alias}.{places.file}, {alias}.{places.position}, {pair} AS {_PAIR}) "
            f"SELECT {places.file}, {places.position}, {shown} WHERE {_PAIR} IS NOT NULL ORDER BY 1, 2"
        )
        return text, source_rows


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


def _clauses(rules: MergeRules, schema: pa.Schema, source: pa.Schema) -> tuple[list[LocatedClause], list[list[str]]]:
    """Return the clauses, and what computes the values of each. Raises `Invalid` where they do not fit the columns."""
    clauses: list[LocatedClause] = []
    values: list[list[str]] = []
    plain = read_clauses(replace(rules, clauses=list(map(_without_queries, rules.clauses))), schema, source)
    for clause, read in zip(rules.clauses, plain, strict=True):
        if read.test is not None:
            read.test.check()
        texts = {name: text for name, text in (clause.values or {}).items() if _holds_query(text)}
        if isinstance(read.values, PairValues):
            texts |= {name: read.values.typed(name) for name in read.values.names}
        clauses.append(LocatedClause(clause.action, list(texts), VALUES_FROM + sum(map(len, values))))
        values.append(list(texts.values()))
    return clauses, values


def _pair(clauses: Sequence[MergeClause], values: Sequence[Sequence[str]], mine: str, theirs: str) -> str:
    """Return the clause that applies to a pair, and its values, as one struct, so that each part is computed once.

    It is NULL where the pair stays as it is.
    """
    cases = []
    names = [_value_name(at) for at in range(sum(map(len, values)))]
    for when, pairs in ((MATCHED, f"{mine} AND {theirs}"), (BY_SOURCE, mine), (UNMATCHED, theirs)):
        chosen = []
        first = 0
        for number, (clause, texts) in enumerate(zip(clauses, values, strict=True)):
            shown = dict(zip(names[first:], texts, strict=False))
            first += len(texts)
            if clause.when == when:
                fields = [f"'{_NUMBER}': {number}::INTEGER"]
                fields += [f"'{name}': (\n{shown[name]}\n)" if name in shown else f"'{name}': NULL" for name in names]
                outcome = "NULL" if clause.action == "nothing" else f"{{{', '.join(fields)}}}"
                chosen.append(f"WHEN (\n{clause.condition or 'true'}\n) THEN {outcome}")
        applying = f"CASE {' '.join(chosen)} END" if chosen else "NULL"
        cases.append(f"WHEN {pairs} THEN {applying}")
    return f"CASE {' '.join(cases)} END"


def _value_name(number: int) -> str:
    return f"value{number}"


def _key_conditions(
    scope: SqlScope, node: Merge, keys: Mapping[str, str], target: pa.Schema, source: pa.Schema
) -> tuple[str, int | None]:
    """Return conditions on the table that hold for each row with a key of the source, to be added to ON.

    `keys` are columns of the table with those of the source that they equal. Reads the source, once or twice, and
    counts its rows. There are no conditions, and no count, where the source may give other rows when it is read again,
    or where the types have no common order.
    """
    names = {
        mine: quote_name(theirs)
        for mine, theirs in keys.items()
        if _ordered(target.field(mine).type, source.field(theirs).type)
    }
    if not names or not _is_same_again(scope, node):
        return "", None
    try:
        asked = [f"{what}({name})" for name in names.values() for what in ("min", "max", _COUNT)]
        count, *bounds = _row(scope, node, ["count(*)", *asked])
        few = [mine for at, mine in enumerate(names) if 0 < bounds[3 * at + 2] <= KEYS_MAX]
        values = dict(zip(few, _row(scope, node, [f"list(DISTINCT {names[mine]})" for mine in few]), strict=True))
    except (ValueError, OverflowError):  # a time that Python cannot represent
        return "", None
    conditions = []
    for at, mine in enumerate(names):
        column, (least, greatest) = f"{quote_name(node.alias)}.{quote_name(mine)}", bounds[3 * at : 3 * at + 2]
        if least is None:
            return " AND false", count
        if mine in values:
            conditions.append(f"{column} IN ({', '.join(literal(each) for each in values[mine] if each is not None)})")
        conditions.append(f"{column} BETWEEN {literal(least)} AND {literal(greatest)}")
    return "".join(f" AND {each}" for each in conditions), count


def _row(scope: SqlScope, node: Merge, shown: list[str]) -> list[Any]:
    if not shown:
        return []
    columns = ", ".join(f"{each} AS c{at}" for at, each in enumerate(shown))
    text = f"SELECT {columns} FROM {node.source.text}"  # noqa: S608
    with scope.query(Sql(text, node.source.placeholders)) as result:
        return list(result.read_all().to_pylist()[0].values())


def _ordered(mine: pa.DataType, theirs: pa.DataType) -> bool:
    """Whether both have the same order, in statistics too."""
    if pa.types.is_integer(mine) and pa.types.is_integer(theirs):
        return True
    return mine == theirs and (pa.types.is_string(mine) or pa.types.is_date(mine) or pa.types.is_timestamp(mine))


def _is_same_again(scope: SqlScope, node: Merge) -> bool:
    """Whether the source is certain to have the same rows whenever it is read in this transaction."""
    try:
        root = parse(f"FROM {node.source.text}").root
        references = find_references(root, parameters=True)
    except Invalid:
        return False
    limited = any("LIMIT" in str(each.get("type")) or each.get("sample") for each in walk(root))
    return (
        not limited
        and all(why in ("star", "subquery") for _, why in expressions(root))
        and all(each.table is not None and not each.is_function and scope.has(each.table) for each in references.tables)
    )
