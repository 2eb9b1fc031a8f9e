"""Where statements of rows are cut, compared with sqlglot's reading of the same text: see decision 0023."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlglot
from sqlglot import exp

from alluvia.sql.grammar.cursor import Sql
from alluvia.sql.grammar.nodes import Assignments, Delete, Insert, Merge, Update, WhenClause
from alluvia.sql.grammar.statements import parse
from tests.examples import examples
from tests.sql.sequences import Sequence

DIALECT = "duckdb"
BY_HAND = (
    "UPDATE t AS a SET n = (SELECT max(n) FROM o WHERE a.k = o.id), s = 'WHERE; -- SET' WHERE k IN (1, 2)",
    "UPDATE t SET \"n\" = CASE WHEN g = 1 THEN n ELSE k END /* WHERE */ WHERE s LIKE '%,%' OR NOT (k < 3)",
    "DELETE FROM t AS x WHERE EXISTS (SELECT 1 FROM o WHERE o.id = x.k AND o.w <> ')')",
    "DELETE FROM t",
    "INSERT INTO t (k, s) SELECT id, $$a; WHERE$$ FROM o WHERE id > 1 ORDER BY id",
    "INSERT INTO t WITH c AS (SELECT 1 AS k) SELECT k, NULL, NULL, NULL, NULL FROM c",
    """MERGE INTO t AS x USING (SELECT id FROM o WHERE w = 'ON') AS y ON x.k = y.id AND x.s IN ('WHEN', 'THEN')
    WHEN MATCHED AND CASE WHEN x.g = 1 THEN true ELSE false END THEN UPDATE SET n = CASE WHEN x.n > 1 THEN 1 END, g = 2
    WHEN NOT MATCHED AND y.id > 3 THEN INSERT (k, n) VALUES (y.id, (SELECT count(*) FROM o))
    WHEN NOT MATCHED BY SOURCE THEN DELETE""",
)


def _drawn(seed: int) -> Iterator[str]:
    sequence = Sequence(seed)
    kinds = (
        sequence.insert,
        sequence.insert_select,
        sequence.update,
        sequence.update_by_subquery,
        sequence.delete,
        sequence.delete_by_subquery,
        sequence.merge,
        sequence.merge_many,
    )
    for _ in range(examples(20)):
        for kind in kinds:
            sequence.drawn = []
            yield sequence.bound(kind())[0].replace("?::", "? ::")  # sqlglot 30 takes "?::" for one sign


def test_the_slices_of_statements_are_the_nodes_of_another_parser() -> None:
    for text in (*BY_HAND, *_drawn(7)):
        (statement,) = parse(text)
        assert _ours(statement.node) == _theirs(sqlglot.parse_one(text, read=DIALECT)), text


def test_a_slice_that_is_cut_elsewhere_is_noticed() -> None:
    (statement,) = parse("UPDATE t SET n = 1 WHERE k = 2 AND g = 1")
    assert _ours(statement.node) != _theirs(sqlglot.parse_one("UPDATE t SET n = 1 WHERE k = 2", read=DIALECT))


def _read(sql: Sql | None) -> exp.Expr | None:
    """Read a slice by itself: a query, a condition or a value."""
    return None if sql is None else _bare(sqlglot.parse_one(sql.text, read=DIALECT))


def _bare(found: exp.Expr) -> exp.Expr:
    """Return what stands in brackets: whether they belong to a slice is not what is compared."""
    while isinstance(found, exp.Paren | exp.Subquery) and not found.args.get("alias"):
        found = found.this
    return found


def _ours(node: object) -> object:
    match node:
        case Insert():
            return "insert", node.table, node.columns, _read(node.source)
        case Update():
            return "update", node.table, node.alias, _set(node.assignments), _read(node.where)
        case Delete():
            return "delete", node.table, node.alias, _read(node.where)
        case Merge():
            clauses = [_clause(clause) for clause in node.clauses]
            return "merge", node.table, node.alias, _source(node.source), node.source_alias, _read(node.on), clauses
        case _:
            pytest.fail(f"a statement of another kind: {node}")


def _set(assignments: Assignments | None) -> object:
    return None if assignments is None else [(name, _read(value)) for name, value in assignments]


def _source(sql: Sql) -> exp.Expr:
    return _bare(sqlglot.parse_one(f"SELECT * FROM {sql.text}", read=DIALECT).args["from_"].this)


def _clause(clause: WhenClause) -> object:
    return clause.when, _read(clause.condition), clause.action, _set(clause.assignments)


def _theirs(tree: exp.Expr) -> object:
    table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    name, alias, where = table.name, table.alias or table.name, tree.args.get("where")
    condition = None if where is None else _bare(where.this)
    match tree:
        case exp.Insert():
            columns = tuple(each.name for each in tree.this.expressions) if isinstance(tree.this, exp.Schema) else None
            return "insert", name, columns, _bare(tree.expression)
        case exp.Update():
            return "update", name, alias, [_assigned(each) for each in tree.expressions], condition
        case exp.Delete():
            return "delete", name, alias, condition
        case exp.Merge():
            source = tree.args["using"]
            shown, bare = source.alias or source.name, source.copy()
            bare.set("alias", None)
            clauses = [_when(each) for each in tree.args["whens"].expressions]
            return "merge", name, alias, _bare(bare), shown, _bare(tree.args["on"]), clauses
        case _:
            pytest.fail(f"a statement of another kind: {tree!r}")


def _assigned(each: exp.Expr) -> tuple[str, exp.Expr]:
    return each.this.name, _bare(each.expression)


def _when(clause: exp.Expr) -> object:
    matched, by_source = clause.args["matched"], clause.args.get("source")
    when = "matched" if matched else "unmatched by source" if by_source else "unmatched"
    then, condition = clause.args["then"], clause.args.get("condition")
    values: object
    match then:
        case exp.Update():
            action, values = "update", [_assigned(each) for each in then.expressions]
        case exp.Insert():
            names, given = then.this.expressions, then.expression.expressions
            pairs = zip(names, given, strict=True)
            action, values = "insert", [(name.name, _bare(value)) for name, value in pairs]
        case _:
            action, values = then.name.lower().removeprefix("do "), None
    return when, None if condition is None else _bare(condition), action, values
