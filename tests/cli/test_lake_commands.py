"""convert, drop, undrop and evolve as their user sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from alluvia.cli.command_line import cli


class Shell:
    def __init__(self, lake: Path) -> None:
        self.lake = lake

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(cli, [words[0], "--lake", str(self.lake), *words[1:]])

    def one(self, *words: str) -> dict[str, Any]:
        result = self.run(*words, "--json")
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    def rows(self, *words: str) -> list[dict[str, Any]]:
        result = self.run(*words, "--json")
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    def fails(self, *words: str) -> str:
        result = self.run(*words)
        assert result.exit_code == 1
        assert "Traceback" not in result.output
        assert len(result.stderr.splitlines()) == 1
        return result.stderr


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "lake")


@pytest.fixture
def hive(shell: Shell) -> Path:
    folder = shell.lake / "visits"
    for zip_code, x in (("01234", 1), ("99999", 2)):
        (folder / f"zip={zip_code}").mkdir(parents=True)
        pq.write_table(pa.table({"x": [x]}), folder / f"zip={zip_code}" / "part.parquet")
    return folder


def test_a_directory_is_converted(shell: Shell, hive: Path) -> None:
    assert "'zip' is a partition column" in shell.fails("convert", "visits", "visits", "--cluster-by", "zip")
    made = shell.one("convert", "visits", "visits", "--type", "zip:string", "--sort-by", "x", "--property", "owner=me")
    assert (made["table"], made["version"], made["files"], made["rows"]) == ("visits", 0, 2, 2)
    assert (made["columns"], made["partition_by"]) == (["x", "zip"], ["zip"])
    assert shell.rows("query", "SELECT * FROM visits ORDER BY x")[0] == {"x": 1, "zip": "01234"}
    assert "is already a table" in shell.fails("convert", "visits", "visits")


def test_a_whole_path_is_taken_too(shell: Shell, hive: Path) -> None:
    assert shell.one("convert", str(hive), "visits")["rows"] == 2
    assert shell.rows("query", "SELECT max(zip) AS z FROM visits") == [{"z": 99999}]


def test_what_cannot_be_converted_is_one_clear_line(shell: Shell, hive: Path) -> None:
    assert "belongs at 'other' in the lake" in shell.fails("convert", "visits", "other")
    assert "--type 'zip': write it as NAME:TYPE" in shell.fails("convert", "visits", "visits", "--type", "zip")
    (hive / "notes.txt").write_text("x")
    assert "notes.txt cannot be part of a table" in shell.fails("convert", "visits", "visits")


def test_a_table_is_dropped_and_comes_back(shell: Shell, hive: Path) -> None:
    shell.run("convert", "visits", "visits")
    assert shell.one("drop", "visits") == {"dropped": "visits", "version": 1}
    assert shell.rows("tables") == []
    assert "it was dropped; `alluvia undrop visits` brings it back" in shell.fails("drop", "visits")
    waiting = shell.rows("undrop")
    assert [(row["table"], row["version"]) for row in waiting] == [("visits", 1)]
    assert shell.one("undrop", "visits") == {"table": "visits", "version": 2, "files": 2, "rejects": None}
    assert shell.rows("undrop") == []
    assert [row["table"] for row in shell.rows("tables")] == ["visits"]


def test_one_of_several_dropped_tables_comes_back(shell: Shell) -> None:
    for column in ("a", "b"):
        shell.run("create", "t", "--plain", "--column", f"{column}:long")
        shell.run("drop", "t")
    assert [row["version"] for row in shell.rows("undrop")] == [1, 3]
    assert "was not dropped in version 2; it was in 1, 3" in shell.fails("undrop", "t", "--version", "2")
    shell.one("undrop", "t", "--version", "1")
    assert [row["column"] for row in shell.one("describe", "t")["columns"]] == ["a"]
    assert "there is a table 't'" in shell.fails("undrop", "t", "--version", "3")
    assert "name the table too" in shell.fails("undrop", "--version", "3")
    assert "'none'" in shell.fails("undrop", "none")


def test_vacuum_takes_a_dropped_table(shell: Shell, hive: Path) -> None:
    shell.run("convert", "visits", "visits")
    shell.run("drop", "visits")
    report = shell.rows("vacuum", "--retention", "0s", "--yes")
    assert [(row["table"], len(row["data_files"])) for row in report] == [("visits", 2)]
    assert "has expired" in shell.fails("undrop", "visits")
    assert not list(hive.rglob("part.parquet"))


def test_columns_and_properties_are_added(shell: Shell) -> None:
    shell.run("create", "t", "--plain", "--column", "x:long")
    changed = shell.one("evolve", "t", "--add", "y:decimal(5,2)", "--add", "s:string", "--property", "owner=me=you")
    assert changed == {"table": "t", "version": 1}
    facts = shell.one("describe", "t")
    assert [row["column"] for row in facts["columns"]] == ["x", "y", "s"]
    assert facts["properties"]["owner"] == "me=you"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "nothing to change"),
        (("--add", "x:string"), "column x already exists, as long; a column cannot change its type"),
        (("--add", "y"), "--add 'y': write it as NAME:TYPE"),
        (("--add", "y:long", "--add", "y:string"), "each name once"),
        (("--add", "y:int8"), "unknown type 'int8'"),
        (("--property", "delta.columnMapping.mode=name"), "cannot be set: renaming or dropping a column"),
        (("--property", "alluvia.writers=any"), "alluvia.writers cannot be changed"),
    ],
)
def test_a_change_that_cannot_be_is_one_clear_line(shell: Shell, words: tuple[str, ...], named: str) -> None:
    shell.run("create", "t", "--plain", "--column", "x:long")
    assert named in shell.fails("evolve", "t", *words)
