"""Texts to statements: where one ends, which write, and what hostile texts get."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from alluvia.errors import Invalid
from alluvia.sql.grammar.statements import parse


def kinds(text: str) -> list[tuple[str, bool]]:
    return [(statement.kind, statement.writes) for statement in parse(text)]


def test_one_select_is_left_as_it_is() -> None:
    text = "  -- first\n /* then */ SELECT ';' AS a, 'it''s' ;\n"
    [statement] = parse(text)
    assert (statement.kind, statement.writes, statement.text) == ("select", False, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1; SELECT 2;", [("select", False), ("select", False)]),
        ("INSERT INTO t VALUES (';'); SELECT 1", [("insert", True), ("select", False)]),
        ("BEGIN; DELETE FROM t; COMMIT", [("begin", False), ("delete", True), ("commit", False)]),
        ("CREATE TABLE t (a INT); -- ; none here\nDROP TABLE t", [("create table", True), ("drop table", True)]),
        ("INSERT INTO t SELECT $$a;b$$ /* ; /* ; */ ; */; TRUNCATE t", [("insert", True), ("truncate", True)]),
        ('UPDATE t SET "a;b" = E\'\\\';\' WHERE true', [("update", True)]),
        ("describe history t; describe history; show tables; show create table t",
         [("describe history", False), ("describe", False), ("show", False), ("show create", False)]),
        ("explain select 1; from t; values (1); with x as (select 1) from x",
         [("explain", False), ("from", False), ("values", False), ("with", False)]),
        ("VACUUM t RETAIN 24 HOURS DRY RUN", [("vacuum", True)]),
        (";;", [("select", False)]),
    ],
)  # fmt: skip
def test_statements_of_a_text(text: str, expected: list[tuple[str, bool]]) -> None:
    assert kinds(text) == expected


def test_pieces_of_a_text_are_cut_out_as_they_stand() -> None:
    [statement] = parse("UPDATE t SET a = CASE WHEN b THEN 1 ELSE 2 END, c = f(a, [1, 2]) /* x */ WHERE d = 'where' ;")
    node = statement.node
    assert [(name, value.text) for name, value in node.assignments] == [  # type: ignore[union-attr]
        ("a", "CASE WHEN b THEN 1 ELSE 2 END"),
        ("c", "f(a, [1, 2])"),
    ]
    assert node.where.text == "d = 'where'"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT INTO t VALUES ('a", "line 1, column 23: a quote that is opened here is never closed"),
        ("INSERT INTO t\nVALUES (1]", "line 2, column 10: ']' closes nothing that is open"),
        ("INSERT INTO t VALUES (1", "line 1, column 24: the SQL ends where ')' is missing"),
        ("DELETE FROM t /* x", "line 1, column 15: a comment that is opened here is never closed"),
        ("DELETE FROM t\u00a0WHERE true", "line 1, column 14: the query contains a U+00A0 outside quotes"),
        ("DELETE FROM t WHERE '\0' = ? AND \0", "the query contains a NUL character"),
        ("DELETE t", "line 1, column 1: expected DELETE FROM, got DELETE"),
        ("UPDATE t SET a 1", "line 1, column 16: expected =, got 1"),
        ("UPDATE t SET a =", "line 1, column 17: expected a value, but the statement ends"),
        ("DROP TABLE", "expected the name of a table, but the statement ends"),
        ("DROP TABLE a b", "line 1, column 14: expected the end of the statement, got b"),
        ("INSERT INTO fix.main.t VALUES (1)", "fix.main.t: only queries name tables of a branch"),
        ("CREATE TABLE t (a int) foo", "expected PARTITION BY, SORT BY, CLUSTER BY, COMMENT, TBLPROPERTIES or AS"),
        ("DELETE FROM t WHERE a = ? AND b = $b", "has both ? and named parameters"),
        ("MERGE INTO t USING (SELECT 1) ON true WHEN MATCHED THEN DELETE", "a name for the source"),
        ("MERGE INTO t USING s ON true", "expected WHEN MATCHED or WHEN NOT MATCHED"),
        ("UPDATE t SET a = 1 " + "+" * 15_000 + " 1", "line 1, column 20: an operator has more than 64 signs"),
        ("DELETE FROM t " + "/*" * 101 + "*/" * 101, "comments are nested more than 100 levels deep"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_where(text: str, message: str) -> None:
    with pytest.raises(Invalid) as raised:
        parse(text)
    assert message in str(raised.value)


HOSTILE = [
    "INSERT INTO t VALUES " + "(" * 250_000,
    "INSERT INTO t VALUES (" + "1," * 130_000 + "1)",
    "DELETE FROM t WHERE " + "NOT " * 60_000 + "a",
    "UPDATE t SET a = '" + "''" * 130_000,
    "DELETE FROM t /*" + "/*" * 130_000,
    "DELETE FROM t WHERE a = " + "$" * 250_000,
    "DELETE FROM t WHERE a = $" + "a" * 250_000,
    "DELETE FROM t WHERE a = " + "E'\\" * 87_000,
    "INSERT INTO t SELECT " + "CASE WHEN " * 25_000,
    "CREATE TABLE t (a " + "STRUCT(a " * 28_000,
    "CREATE TABLE t (a int" + "[]" * 130_000 + ")",
    ";" * 262_000,
    "DELETE FROM t;" * 18_000,
    "ALTER TABLE t SET TBLPROPERTIES (" + "a." * 130_000,
    'DELETE FROM t WHERE "' + '""' * 130_000,
    "-" * 262_000,
    "MERGE INTO t USING s ON a " + "WHEN MATCHED THEN DELETE " * 10_000,
    "DROP TABLE t" + " " * 262_144,
]


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:24] for text in HOSTILE])
def test_a_hostile_text_is_read_or_refused_quickly(text: str) -> None:
    began = time.process_time()
    with suppress(Invalid):
        parse(text)
    assert time.process_time() - began < 2
