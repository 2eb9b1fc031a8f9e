"""Declarations in SQL and in Python, and the order in which their tables are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from alluvia.errors import Invalid
from alluvia.pipelines.declarations.declaration import Declaration, Expectation, Sequencing, declaration_of
from alluvia.pipelines.declarations.grammar import read_declaration
from alluvia.pipelines.graph import in_order, selected
from alluvia.pipelines.project import read_project


def test_every_clause_is_read() -> None:
    text = """CREATE OR REFRESH TABLE users (
      CONSTRAINT has_id EXPECT (id IS NOT NULL AND f(a, b)) ON VIOLATION QUARANTINE,
      CONSTRAINT old EXPECT (age > 0) ON VIOLATION DROP ROW,
      CONSTRAINT told EXPECT (true),
      CONSTRAINT never EXPECT (id <> '') ON VIOLATION FAIL UPDATE)
    KEY (id) SEQUENCE BY at DELETE WHEN op = 'd' SCD TYPE 2 PARTITIONED BY (day(at)) SORT BY (id)
    SCHEDULE EVERY 2 HOURS TBLPROPERTIES ('owner' = 'me') AS SELECT id, at, op FROM events"""
    expectations = (
        Expectation("has_id", "id IS NOT NULL AND f(a, b)", "quarantine"),
        Expectation("old", "age > 0", "drop"),
        Expectation("told", "true", "warn"),
        Expectation("never", "id <> ''", "fail"),
    )
    assert read_declaration(text) == Declaration(
        "users",
        "SELECT id, at, op FROM events",
        ("id",),
        Sequencing("at", "op = 'd'", 2),
        partition_by=("day(at)",),
        sort_by=("id",),
        properties={"owner": "me"},
        expectations=expectations,
        every_seconds=7200,
    )


@pytest.mark.parametrize(
    "head",
    [
        "CREATE OR REFRESH LIVE TABLE t",
        "CREATE OR REFRESH MATERIALIZED VIEW t",
        "CREATE MATERIALIZED VIEW t",
        "CREATE TABLE IF NOT EXISTS t",
        "create or replace table T",
    ],
)
def test_words_of_other_products_mean_the_same(head: str) -> None:
    assert read_declaration(f"{head} AS SELECT * FROM e") == Declaration("t", "SELECT * FROM e")


def test_databricks_words_for_changes_are_read() -> None:
    declared = read_declaration("CREATE OR REFRESH STREAMING TABLE t AS SELECT * FROM e")
    assert declared.kind == "append"
    options = "KEYS (id) APPLY AS DELETE WHEN op = 'd' SEQUENCE BY at STORED AS SCD TYPE 1"
    assert read_declaration(f"CREATE TABLE t {options} AS FROM e").sequencing == Sequencing("at", "op = 'd'", 1)


REFUSED = [
    ("SELECT 1", "expected CREATE OR REFRESH TABLE, got SELECT"),
    ("CREATE VIEW v AS SELECT * FROM e", "CREATE VIEW is not a declaration of a pipeline: a view has no rows"),
    ("CREATE OR REPLACE DYNAMIC TABLE t TARGET_LAG = '1 hour' AS SELECT * FROM e", "SCHEDULE EVERY 1 HOUR"),
    ("CREATE TABLE t (a BIGINT) AS SELECT * FROM e", "the columns of a pipeline's table are those of its SELECT"),
    ("CREATE TABLE t (CONSTRAINT c CHECK (a > 0)) AS SELECT * FROM e", "write EXPECT .* ON VIOLATION FAIL"),
    ("CREATE TABLE t (CONSTRAINT c EXPECT (a > 0) ON VIOLATION IGNORE) AS SELECT * FROM e", "QUARANTINE, DROP ROW"),
    ("CREATE TABLE t SEQUENCE BY at AS SELECT * FROM e", "SEQUENCE BY needs KEY"),
    ("CREATE TABLE t KEY (id) DELETE WHEN x AS SELECT * FROM e", "DELETE WHEN needs SEQUENCE BY"),
    ("CREATE TABLE t KEY (id) SCD TYPE 2 AS SELECT * FROM e", "SCD TYPE needs SEQUENCE BY"),
    ("CREATE TABLE t KEY (id) SEQUENCE BY at SCD TYPE 3 AS SELECT * FROM e", "SCD TYPE must be 1 or 2, not 3"),
    ("CREATE TABLE t KEY (id) KIND APPEND AS SELECT * FROM e", "KIND APPEND contradicts"),
    ("CREATE TABLE t SCHEDULE CRON '0 0 * * *' AS SELECT * FROM e", "SCHEDULE EVERY 1 HOUR"),
    ("CREATE TABLE t SCHEDULE EVERY 3 FORTNIGHTS AS SELECT * FROM e", "seconds, minutes, hours, days or weeks"),
    ("CREATE TABLE t COMMENT 'x' AS SELECT * FROM e", "COMMENT is not an option of a pipeline's table"),
    ("CREATE TABLE t AS SELECT * FROM e WHERE a = $a", "cannot have the parameter"),
    ("CREATE TABLE t", "expected SELECT"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_what_is_wrong_is_said_with_what_to_write(text: str, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        read_declaration(text)


def test_a_table_keeps_its_declaration_as_it_was() -> None:
    declared = Declaration(
        "t", "SELECT 1", ("a",), Sequencing("b", "c", 2), "keyed", ("d",), ("e",), (), {"f": "g"},
        (Expectation("h", "i", "drop"),), 60, on_change=True,
    )  # fmt: skip
    assert declaration_of(declared.to_json()) == declared


def declared(target: str, *sources: str) -> Declaration:
    return Declaration(target, f"SELECT * FROM {', '.join(sources)}", place=f"a.sql:{target}")


def test_tables_come_after_those_that_they_read() -> None:
    ordered = in_order([declared("gold", "silver"), declared("silver", "bronze", "e"), declared("bronze", "e")])
    assert [each.target for each in ordered] == ["bronze", "silver", "gold"]


def test_a_cycle_is_refused_and_named() -> None:
    with pytest.raises(Invalid, match=r"table a: tables cannot be made of each other: a reads c reads b reads a"):
        in_order([declared("a", "c"), declared("b", "a"), declared("c", "b")])
    with pytest.raises(Invalid, match="a reads a"):
        in_order([declared("a", "a")])


def test_a_long_chain_is_put_in_order() -> None:
    chain = in_order([declared(f"t{number}", f"t{number - 1}") for number in range(1100, 0, -1)])
    assert [each.target for each in chain] == [f"t{number}" for number in range(1, 1101)]


def test_a_cycle_below_other_tables_is_named_alone() -> None:
    with pytest.raises(Invalid, match=r"table b: tables cannot be made of each other: b reads c reads b$"):
        in_order([declared("a", "b"), declared("b", "c"), declared("c", "b", "e")])


def test_two_declarations_of_a_table_are_refused() -> None:
    with pytest.raises(Invalid, match=r"a.sql:t: table t: another declaration makes t, in a.sql:t"):
        in_order([declared("t", "e"), declared("t", "f")])
    quarantining = Declaration("t", "SELECT * FROM e", expectations=(Expectation("x", "true", "quarantine"),))
    with pytest.raises(Invalid, match="another declaration makes t_quarantine"):
        in_order([quarantining, declared("t_quarantine", "e")])


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [([], "abcd"), (["b"], "b"), (["b+"], "bc"), (["+b"], "ab"), (["+b+"], "abc"), (["d", "a+"], "abcd")],
)
def test_tables_are_selected_with_those_below_and_above(wanted: list[str], chosen: str) -> None:
    tables = [declared("a", "e"), declared("b", "a"), declared("c", "b"), declared("d", "a")]
    assert "".join(each.target for each in selected(tables, wanted)) == chosen


def test_an_unknown_selection_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(Invalid, match=r"no table 'dayly'.*daily"):
        selected([declared("daily", "e")], ["dayly"])


def test_a_folder_has_declarations_in_sql_and_python(tmp_path: Path) -> None:
    (tmp_path / "b.sql").write_text("-- the first\nCREATE TABLE last AS SELECT * FROM view_events;\n")
    (tmp_path / "a.py").write_text(
        "from alluvia.pipelines import expect, table\n"
        "for kind in ('view', 'click'):\n"
        "    table(f'{kind}_events', f\"SELECT * FROM events WHERE event = '{kind}'\")\n"
        "@table(key=['id'], expectations=[expect('ok', 'id > 0', 'drop')])\n"
        "def users():\n"
        "    return 'SELECT id FROM events'\n"
    )
    (tmp_path / "notes.txt").write_text("not a declaration")
    found = read_project(tmp_path)
    assert [each.target for each in found] == ["view_events", "click_events", "users", "last"]
    assert found[2].expectations == (Expectation("ok", "id > 0", "drop"),)
    assert [each.place.rpartition("/")[2] for each in found] == ["a.py:3", "a.py:3", "a.py:4", "b.sql:2"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.sql", "CREATE TABLE t AS SELECT * FROM e;\nCREATE TABLE\n u SELECT", r"a\.sql:2: "),
        ("a.sql", "CREATE TABLE t (CONSTRAINT c EXPECT (count(*) > 1)) AS SELECT * FROM e", "is about several rows"),
        ("a.sql", "CREATE TABLE t (CONSTRAINT c EXPECT (a > now())) AS SELECT * FROM e", "changes by itself"),
        ("a.sql", "CREATE TABLE t (CONSTRAINT c EXPECT (a), CONSTRAINT c EXPECT (b)) AS SELECT * FROM e",
         "two expectations are called c"),
        ("a.sql", "CREATE TABLE t (CONSTRAINT c EXPECT (a IN (SELECT 1))) AS SELECT * FROM e", "cannot use subqueries"),
        ("a.sql", "", "declares no table"),
        ("a.py", "1 / 0", r"a\.py: ZeroDivisionError"),
        ("a.py", "from alluvia.pipelines import table\ntable('t')(lambda: 'SELECT')", "table t: "),
    ],
)  # fmt: skip
def test_errors_name_the_file_and_the_fix(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Invalid, match=says):
        read_project(tmp_path)


def test_a_missing_folder_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="pipeline init"):
        read_project(tmp_path / "pipelines")
