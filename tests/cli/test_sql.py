"""`alluvia sql` with a text, which is one transaction."""

from __future__ import annotations

import json
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


def run(lake: Path, *words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["sql", "--lake", str(lake), *words], input=stdin)


def rows(lake: Path, *words: str, stdin: str | None = None) -> list[Any]:
    result = run(lake, *words, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_statements_that_write_make_a_lake(tmp_path: Path) -> None:
    made = run(tmp_path / "new", "CREATE TABLE t (n BIGINT); INSERT INTO t VALUES (1), (2); SELECT sum(n) AS n FROM t")
    assert (made.exit_code, made.stdout.splitlines()) == (0, ["n", "─", "3"])
    assert alluvia.connect(str(tmp_path / "new")).table("t").count() == 2


def test_a_lake_that_is_not_there_is_not_made_by_a_read(tmp_path: Path) -> None:
    result = run(tmp_path / "new", "SELECT 1")
    assert (result.exit_code, "there is no lake at" in result.stderr) == (1, True)
    assert not (tmp_path / "new").exists()


def test_a_write_says_what_it_did(lake: Path) -> None:
    (said,) = rows(lake, "INSERT INTO t VALUES ('a', 1), ('b', 2)")
    assert said["rows_inserted"] == 2


def test_what_is_rolled_back_is_not_shown_as_done(lake: Path) -> None:
    assert rows(lake, "BEGIN; INSERT INTO t VALUES ('a', 1); ROLLBACK") == [{"transaction": "rolled back"}]
    assert rows(lake, "FROM t") == []


def test_parameters_are_never_part_of_the_text(lake: Path) -> None:
    rows(lake, "INSERT INTO t VALUES ($name, $n::BIGINT)", "-p", "name='); DROP TABLE t; --", "-p", "n=5")
    assert rows(lake, "SELECT * FROM t") == [{"name": "'); DROP TABLE t; --", "n": 5}]


@pytest.mark.parametrize(
    ("sql", "told", "excerpt"),
    [
        (
            "INSERT INTO t VALUES ('a', 1); SELECT nope FROM t",
            'alluvia: Binder Error: Referenced column "nope"',
            ["LINE 1: SELECT nope FROM t", "               ^"],
        ),
        ("INSERT INTO t VALUES ('a', 1); INSERT INTO gone VALUES (1)", "alluvia: there is no table 'gone'", []),
        ("INSERT INTO t VALUES ('a', 1); BEGIN", "alluvia: BEGIN is not possible here", []),
    ],
)
def test_an_error_changes_nothing_and_is_one_line_with_its_place(
    lake: Path, sql: str, told: str, excerpt: list[str]
) -> None:
    result = run(lake, sql)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(told)
    assert result.stderr.splitlines()[1:] == excerpt
    assert alluvia.connect(str(lake)).table("t").version == 0


def test_a_time_limit_undoes_the_writes(lake: Path) -> None:
    slow = "SELECT count(*) FROM range(100000000000) r(i) WHERE hash(i) = 1"
    result = run(lake, f"INSERT INTO t VALUES ('a', 1); {slow}", "--timeout", "0.3")
    assert (result.exit_code, "longer than the 0.3 seconds allowed" in result.stderr) == (1, True)
    assert alluvia.connect(str(lake)).table("t").version == 0
