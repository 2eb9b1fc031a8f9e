"""Scripts of `alluvia sql`, from files and pipes: statements one after another, up to the first error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import alluvia
from alluvia.cli.command_line import cli


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    alluvia.connect(str(tmp_path / "lake")).create_table("t", {"name": "string", "n": "long"})
    return tmp_path / "lake"


def run(lake: Path, *words: str, script: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["sql", "--lake", str(lake), *words], input=script)


def rows(lake: Path, *words: str, script: str | None = None) -> list[Any]:
    result = run(lake, *words, "--json", script=script)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def names(lake: Path) -> list[str]:
    return sorted(alluvia.connect(str(lake)).sql("SELECT name FROM t")["name"].to_pylist())


SCRIPT = """\
-- a script; with what must be alone
CREATE VIEW v AS SELECT name FROM t;
INSERT INTO t VALUES ('é;', 1), ('two
lines', 2);
.tables
BEGIN;
DELETE FROM t WHERE n = 1; INSERT INTO t VALUES ('three', 3);
COMMIT;
SELECT count(*) AS n FROM v; OPTIMIZE t;
BEGIN; DELETE FROM t; ROLLBACK;
SELECT name FROM v ORDER BY name
"""
READ = [
    {"name": "t", "type": "table"},
    {"name": "v", "type": "view"},
    {"n": 2},
    {"name": "three"},
    {"name": "two\nlines"},
]


def test_a_script_of_several_transactions_prints_all_that_it_reads(lake: Path, tmp_path: Path) -> None:
    script = tmp_path / "load.sql"
    script.write_text(SCRIPT, "utf-8-sig")
    result = run(lake, "--file", str(script), "--json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == READ
    told = [line.removeprefix(str(script)) for line in result.stderr.splitlines()]
    assert told == [
        ":2: CREATE VIEW: view v, version 0",
        ":3: INSERT: 2 rows inserted, version 1",
        ":7: DELETE: 1 row deleted",
        ":7: INSERT: 1 row inserted",
        ":8: COMMIT: committed",
        ":9: OPTIMIZE: table t, files removed 2, files added 1, version 3",
        ":10: DELETE: 2 rows deleted",
        ":10: ROLLBACK: rolled back",
    ]


def test_a_pipe_a_file_and_its_name_are_the_same(tmp_path: Path) -> None:
    script = tmp_path / "load.sql"
    script.write_text("CREATE TABLE t (name STRING, n INT);\n" + SCRIPT)
    expected = READ
    for at, words in enumerate((("-f", str(script)), (str(script),), (), ("-",), ("-f", "-"))):
        given = None if at < 2 else script.read_text()
        assert rows(tmp_path / f"lake{at}", *words, script=given) == expected


def test_results_are_apart_as_tables(lake: Path) -> None:
    assert run(lake, script="SELECT 1 AS a; SELECT 2 AS b;").stdout == "a\n─\n1\n\nb\n─\n2\n"


@pytest.mark.parametrize(
    ("script", "told", "stays"),
    [
        (
            "INSERT INTO t VALUES ('a', 1);\n\n  INSERT INTO gone\nVALUES (1);\nDELETE FROM t;",
            "alluvia: <stdin>:3: there is no table 'gone'",
            ["The statement in line 1 is committed."],
        ),
        (
            "INSERT INTO t VALUES ('a', 1); INSERT INTO t\nVALUES ('b', 2);\nSELECT 1;  ALTER TABLE t\n WRONG;",
            "alluvia: <stdin>:4:2: expected ADD COLUMN",
            ["The 2 statements that wrote in line 1 are committed."],
        ),
        (
            "SELECT 1; INSERT INTO t VALUES ('a', 1) FROM x",
            "alluvia: <stdin>:1: Parser Error",
            ["LINE 1: VALUES ('a', 1) FROM x", "                        ^"],
        ),
        (
            "INSERT INTO t VALUES ('a', 1);\nBEGIN;\nINSERT INTO t VALUES ('b', 1);\nSELECT\n nope FROM t;\nCOMMIT;",
            'alluvia: <stdin>:5: Binder Error: Referenced column "nope"',
            [
                "LINE 2:  nope FROM t",
                "         ^",
                "The transaction that begins in line 2 is rolled back.",
                "The statement in line 1 is committed.",
            ],
        ),
        (
            "INSERT INTO t VALUES ('a', 1);\nBEGIN;\nDELETE FROM t;",
            "alluvia: <stdin>:2: BEGIN without COMMIT",
            ["The transaction that begins in line 2 is rolled back.", "The statement in line 1 is committed."],
        ),
        (
            "BEGIN; INSERT INTO t VALUES ('a', 1); CREATE VIEW v AS FROM t; COMMIT;",
            "alluvia: <stdin>:1: CREATE VIEW cannot be part of a transaction",
            ["The transaction that begins in line 1 is rolled back."],
        ),
        ("SELECT 1;\n.nope\nSELECT 2", "alluvia: <stdin>:2: there is no command '.nope'", []),
        (
            "SELECT 1;\nSELECT 'open;\n",
            "alluvia: <stdin>:2: Parser Error: unterminated quoted string",
            ["LINE 1: SELECT 'open;", "               ^"],
        ),
    ],
)
def test_the_first_error_ends_a_script_with_its_line_and_what_stays(
    lake: Path, script: str, told: str, stays: list[str]
) -> None:
    result = run(lake, script=script)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("alluvia:"))
    assert lines[at].startswith(told)
    assert lines[at + 1 :] == stays
    written = sum("is committed" in each for each in stays) + 2 * sum("are committed" in each for each in stays)
    assert names(lake) == ["a", "b"][:written]


def test_one_transaction_if_asked_for(lake: Path) -> None:
    writes = "INSERT INTO t VALUES ('a', 1);\nINSERT INTO t VALUES ('b', 2);\n"
    failed = run(lake, "--single-transaction", script=writes + "SELECT nope FROM t")
    assert (failed.exit_code, failed.stderr.splitlines()[-1]) == (1, "Nothing of the script is committed.")
    begun = run(lake, "-1", script=writes + "BEGIN;")
    assert "<stdin>:3: BEGIN is not possible with --single-transaction" in begun.stderr
    assert names(lake) == []
    assert rows(lake, "-1", script=writes + "SELECT count(*) AS n FROM t") == [{"n": 2}]
    table = alluvia.connect(str(lake)).table("t")
    assert (names(lake), table.version) == (["a", "b"], 1)
    assert run(lake, "-1", "SELECT 1").exit_code == 2


def test_values_are_for_the_statements_that_name_them(lake: Path) -> None:
    script = "INSERT INTO t VALUES ($name, $n);\n.tables\nSELECT n FROM t WHERE name = $name;"
    words = ("-p", "name=it's", "-p", "n=7")
    assert rows(lake, *words, script=script) == [{"name": "t", "type": "table"}, {"n": 7}]
    unused = run(lake, *words, "-p", "m=1", script=script)
    assert "parameter m is not used: no statement of the script has $m" in unused.stderr
    assert names(lake) == ["it's"]


def test_a_script_is_longer_than_a_text_may_be(lake: Path) -> None:
    value = "x" * 90_000
    script = f"INSERT INTO t VALUES ('{value}', 1);\n" * 4 + "SELECT sum(length(name)) AS n FROM t;\n.exit\nnonsense"
    assert rows(lake, script=script) == [{"n": 360_000}]


def test_what_is_not_text_or_not_there_is_told(lake: Path, tmp_path: Path) -> None:
    script = tmp_path / "latin.sql"
    script.write_bytes(b"SELECT 1;\nSELECT '\xe9';")
    result = run(lake, str(script))
    assert (result.exit_code, "not text in UTF-8" in result.stderr) == (1, True)
    missing = run(lake, "missing.sql")
    assert (missing.exit_code, "there is no file 'missing.sql'" in missing.stderr) == (2, True)


def test_a_lake_that_is_not_there_is_made_by_a_write_alone(tmp_path: Path) -> None:
    read = run(tmp_path / "new", script="SELECT 1;")
    assert (read.exit_code, "<stdin>:1: there is no lake at" in read.stderr) == (1, True)
    assert not (tmp_path / "new").exists()


def test_statements_run_as_they_come(lake: Path) -> None:
    words = [sys.executable, "-m", "alluvia.cli", "sql", "--lake", str(lake), "--json"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.write("SELECT 1 AS n;\n")
        shell.stdin.flush()
        assert json.loads(shell.stdout.readline()) == {"n": 1}
        shell.stdin.write("SELECT 2 AS n;\n")
        shell.stdin.close()
        assert json.loads(shell.stdout.read()) == {"n": 2}
