"""What query and changes print: every column of every row, with all its digits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import alluvia
from alluvia.cli.command_line import cli
from functions.query.handler import handler


def run(lake: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, [words[0], "--lake", str(lake), *words[1:]])


def lines(lake: Path, *words: str) -> list[str]:
    result = run(lake, *words)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_columns_of_one_name_keep_their_values(tmp_path: Path) -> None:
    sql = "SELECT 1 AS a, 2 AS a, 3 AS a_1"
    assert lines(tmp_path, "query", sql) == ["a  a  a_1", "─  ─  ───", "1  2    3"]
    assert lines(tmp_path, "query", sql, "--json") == ['{"a":1,"a_2":2,"a_1":3}']
    assert lines(tmp_path, "query", "SELECT 1 AS a, 2 AS a", "--json") == ['{"a":1,"a_1":2}']


def test_a_dry_run_prints_what_would_be_read(tmp_path: Path) -> None:
    alluvia.connect(tmp_path).create_table("t", {"n": "long"}).append([{"n": 1}])
    shown = [
        json.loads(line) for line in lines(tmp_path, "sql", "FROM t WHERE n = $n", "-p", "n=1", "--dry-run", "--json")
    ]
    assert [(row["table"], row["files_read"], row["requests"]) for row in shown] == [("t", 1, 1), (None, 1, 1)]
    refused = run(tmp_path, "sql", "DELETE FROM t", "--dry-run")
    assert (refused.exit_code, "only a SELECT" in refused.output) == (1, True)


def test_a_query_that_would_read_more_bytes_is_refused(tmp_path: Path) -> None:
    alluvia.connect(tmp_path).create_table("t", {"n": "long"}).append([{"n": 1}])
    assert json.loads(*lines(tmp_path, "sql", "FROM t", "--max-bytes", "100000", "--json")) == {"n": 1}
    refused = run(tmp_path, "sql", "FROM t", "--max-bytes", "1")
    assert (refused.exit_code, "more than the 1 bytes allowed by max_bytes" in refused.output) == (1, True)
    assert run(tmp_path, "sql", "FROM t; FROM t", "--max-bytes", "100000").exit_code == 2


def test_the_name_of_a_file_is_the_sql_in_it(tmp_path: Path) -> None:
    script = tmp_path / "one.sql"
    script.write_text("SELECT $n::INT + 1 AS n", "utf-8-sig")
    assert lines(tmp_path, "query", str(script), "-p", "n=1", "--json") == ['{"n":2}']
    missing = run(tmp_path, "query", "missing.sql")
    assert (missing.exit_code, "there is no file 'missing.sql'" in missing.stderr) == (2, True)


@pytest.mark.parametrize(
    ("sql", "excerpt"),
    [
        ("SELECT n, nope FROM t", "LINE 1: SELECT n, nope FROM t\n                  ^"),
        ("SELECT n,\n\tnope\nFROM t", "LINE 2:  nope\n         ^"),
        ("SELECT '日本', nope FROM t", "LINE 1: SELECT '日本', nope FROM t\n                       ^"),
        ("SELECT 'e\u0301', nope FROM t", "LINE 1: SELECT 'e\u0301', nope FROM t\n                    ^"),
        ("SELECT '\x1b', nope FROM t", "LINE 1: SELECT '\\x1b', nope FROM t\n                       ^"),
    ],
)
@pytest.mark.parametrize("command", ["query", "sql"])
def test_an_error_marks_its_place_in_the_query(tmp_path: Path, command: str, sql: str, excerpt: str) -> None:
    alluvia.connect(tmp_path).create_table("t", {"n": "long"})
    told = run(tmp_path, command, sql).stderr
    said = 'alluvia: Binder Error: Referenced column "nope" not found in FROM clause! Candidate bindings: "n"'
    assert told == f"{said}\n{excerpt}\n"


def test_an_empty_result_has_its_head(tmp_path: Path) -> None:
    assert lines(tmp_path, "query", "SELECT 1 AS a, 2 AS a WHERE false") == ["a  a", "─  ─"]
    assert lines(tmp_path, "query", "SELECT 1 AS a WHERE false", "--json") == []


def test_more_rows_than_are_shown(tmp_path: Path) -> None:
    shown = lines(tmp_path, "query", "SELECT range AS n FROM range(5000)")
    assert (len(shown), shown[-2:]) == (1003, ["999", "… 5000 rows in all; --format csv and --json print every one"])
    found = lines(tmp_path, "query", "SELECT range AS n FROM range(5000)", "--json")
    assert [json.loads(line)["n"] for line in found] == list(range(5000))


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("date '12000-01-01'", "12000-01-01"),
        ("date '0044-03-15 (BC)'", "0044-03-15 (BC)"),
        ("date '0001-03-15 (BC)'", "0001-03-15 (BC)"),
        ("date '5000-01-31 (BC)'", "5000-01-31 (BC)"),
        ("date '-infinity'", "-infinity"),
        ("timestamp 'infinity'", "infinity"),
        ("timestamp '290000-01-01 10:00:00'", "290000-01-01 10:00:00"),
        ("timestamp '0044-03-15 (BC) 10:00:00.5'", "0044-03-15 (BC) 10:00:00.5"),
        ("timestamp '2024-01-01 10:00:00.123456'", "2024-01-01 10:00:00.123456"),
        ("timestamp '2024-01-01 10:00:00.5'", "2024-01-01 10:00:00.5"),
        ("timestamp_ns '2024-01-01 10:00:00.123456789'", "2024-01-01 10:00:00.123456789"),
        ("date '2024-02-29'", "2024-02-29"),
        ("1.50::DECIMAL(9, 3)", "1.500"),
        ("99999999999999999999999999999999999999", "99999999999999999999999999999999999999"),
    ],
)
def test_values_are_shown_as_duckdb_writes_them(tmp_path: Path, sql: str, shown: str) -> None:
    assert lines(tmp_path, "query", f"SELECT {sql} AS x, ({sql})::VARCHAR AS text")[2].split("  ") == [shown, shown]


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("NULL::TIMESTAMP", "NULL"),
        ("''", ""),
        ("[1, NULL]", "[1, NULL]"),
        ("timestamptz '2024-01-01 10:00:00.123456+01'", "2024-01-01 09:00:00.123456"),
        ("timestamptz 'infinity'", "infinity"),
        ("true", "true"),
        ("'\\x01\\xff'::BLOB", "01ff"),
        ("{'n': 1.5, 't': timestamp '2024-01-01'}", '{"n":1.5,"t":"2024-01-01T00:00:00"}'),
        ("[1.5, 2]", "[1.5, 2.0]"),
        ("[]", "[]"),
        ("[['a,b', 'c'], [], ['it''s', '', 'NULL', NULL]]", "[['a,b', c], [], ['it\\'s', '', 'NULL', NULL]]"),
        ("{'l': [1, 2]}", '{"l":[1,2]}'),
        ("range(10)", "[0, 1, 2, 3, 4, 5, 6, 7, … 10 in all]"),
    ],
)
def test_other_values_in_a_table(tmp_path: Path, sql: str, shown: str) -> None:
    assert lines(tmp_path, "query", f"SELECT {sql} AS x")[2].strip() == shown


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("timestamptz '2024-01-01 10:00:00.123456+00'", "2024-01-01T10:00:00.123456Z"),
        ("timestamp '2024-01-01 10:00:00.5'", "2024-01-01T10:00:00.5"),
        ("timestamp 'infinity'", "infinity"),
        ("date '12000-01-01'", "+012000-01-01"),
        ("1.50::DECIMAL(9, 3)", 1.5),
        ("'\\x01'::BLOB", "AQ=="),
        ("[timestamptz '2024-01-01 00:00:00+00']", ["2024-01-01T00:00:00Z"]),
    ],
)
def test_json_is_that_of_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, value: Any) -> None:
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    query = f"SELECT {sql} AS x, {sql} AS x"
    [line] = lines(tmp_path, "query", query, "--json")
    assert json.loads(line) == {"x": value, "x_1": value}
    assert handler({"query": query}, None)["body"] == line + "\n"


def test_times_in_other_json_end_in_z_too(tmp_path: Path) -> None:
    alluvia.connect(str(tmp_path)).create_table("t", {"x": "long"})
    [row] = map(json.loads, lines(tmp_path, "history", "t", "--json"))
    assert row["timestamp"].endswith("Z")
    assert row["timestamp"].count("+") == 0


def test_changes_of_a_table(tmp_path: Path) -> None:
    table = alluvia.connect(str(tmp_path)).create_table("t", {"x": "long"})
    table.append([{"x": 1}, {"x": 2}])
    table.delete("x = 1")
    names = ("x", "_change_type", "_commit_version")
    found = [json.loads(line) for line in lines(tmp_path, "changes", "t", "--from", "1", "--json")]
    assert [tuple(row[name] for name in names) for row in found] == [
        (1, "insert", 1),
        (2, "insert", 1),
        (1, "delete", 2),
    ]
    assert all(row["_commit_timestamp"].endswith("Z") for row in found)
    only = lines(tmp_path, "changes", "t", "--from", "1", "--to", "1")
    assert [line.split()[:3] for line in only[:1] + only[2:]] == [
        list(names),
        ["1", "insert", "1"],
        ["2", "insert", "1"],
    ]
    assert lines(tmp_path, "changes", "t", "--from", "2", "--json", "--to", "2") == [
        json.dumps(found[2], separators=(",", ":"))
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nope", "--from", "0"], "alluvia: there is no table 'nope'\n"),
        (["t", "--from", "0", "--to", "7"], "alluvia: table t: version 7 does not exist; the newest is 0\n"),
        (["t", "--from", "-1"], "alluvia: --from: expected a version number, got -1\n"),
    ],
)
def test_changes_that_are_not_there(tmp_path: Path, words: list[str], told: str) -> None:
    alluvia.connect(str(tmp_path)).create_table("t", {"x": "long"})
    result = run(tmp_path, "changes", *words)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", told)
    assert run(tmp_path, "changes", "t").exit_code == 2
