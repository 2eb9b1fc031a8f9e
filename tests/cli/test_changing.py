"""The commands that change rows, as their user sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import alluvia
from alluvia.cli.command_line import cli

TYPES = {"id": "long", "name": "string", "ts": "timestamp", "price": "decimal(10,2)"}


class Shell:
    def __init__(self, folder: Path) -> None:
        self.uri = str(folder / "lake")
        self.table = alluvia.connect(self.uri).create_table("t", TYPES)
        self.table.append([{"id": number, "name": f"n{number}"} for number in range(5)])

    def run(self, *words: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(cli, [words[0], "--lake", self.uri, *words[1:]], input=stdin)

    def report(self, *words: str, stdin: bytes | None = None) -> dict[str, Any]:
        result = self.run(*words, "--json", stdin=stdin)
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    def names(self) -> dict[int, str]:
        rows = self.table.scan(["id", "name"]).read_all().to_pylist()
        return {row["id"]: row["name"] for row in rows}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_delete(shell: Shell) -> None:
    report = shell.report("delete", "t", "--where", "id < 2")
    assert (report["version"], report["rows_deleted"]) == (2, 2)
    assert "rows deleted   0" in shell.run("delete", "t", "--where", "id < 2").stdout
    assert sorted(shell.names()) == [2, 3, 4]


def test_update(shell: Shell) -> None:
    report = shell.report("update", "t", "--set", "name='x=' || name", "--set", "price=1.5", "--where", "id = 3")
    assert report["rows_updated"] == 1
    assert shell.names()[3] == "x=n3"
    assert shell.report("update", "t", "--set", "name=NULL", "--all")["rows_updated"] == 5


def test_upsert_of_lines(shell: Shell) -> None:
    lines = b'{"id": 3, "name": "x"}\n\n{"id": 9, "ts": "2024-01-01T00:00:00Z", "price": "1.50"}\n'
    report = shell.report("upsert", "t", "-", "--on", "id", stdin=lines)
    assert (report["rows_updated"], report["rows_inserted"]) == (1, 1)
    assert shell.names()[3] == "x"
    row = shell.table.scan(where="id = 9").read_all().to_pylist()[0]
    assert (str(row["ts"]), str(row["price"])) == ("2024-01-01 00:00:00+00:00", "1.50")


def test_a_column_that_no_line_has_keeps_its_values(shell: Shell) -> None:
    shell.report("upsert", "t", "-", "--on", "id", stdin=b'{"id": 3, "price": "2"}')
    assert shell.names()[3] == "n3"


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".ndjson"])
def test_upsert_of_a_file(shell: Shell, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table({"id": [3, 4, 9], "name": ["x", "y", "z"], "op": ["U", "D", "I"]}), path)
    elif suffix == ".csv":
        path.write_text("id,name,op\n3,x,U\n4,y,D\n9,z,I\n")
    else:
        rows = [(3, "x", "U"), (4, "y", "D"), (9, "z", "I")]
        path.write_text("".join(json.dumps({"id": i, "name": n, "op": o}) + "\n" for i, n, o in rows))
    report = shell.report("upsert", "t", str(path), "--on", "id", "--delete-when", "new.op = 'D'")
    assert (report["rows_updated"], report["rows_deleted"], report["rows_inserted"]) == (1, 1, 1)
    assert shell.names() == {0: "n0", 1: "n1", 2: "n2", 3: "x", 9: "z"}


def test_restore(shell: Shell) -> None:
    shell.report("delete", "t", "--where", "true")
    report = shell.report("restore", "t", "--version", "1")
    assert (report["version"], report["restored_version"], report["files_restored"]) == (3, 1, 1)
    assert len(shell.names()) == 5


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["delete", "unknown", "--where", "true"], "there is no table"),
        (["update", "t", "--set", "name='x'"], "give --where with a condition, or --all"),
        (["update", "t", "--set", "name='x'", "--all", "--where", "true"], "give --where with a condition, or --all"),
        (["update", "t", "--set", "name", "--all"], "--set 'name': write it as NAME=SQL"),
        (["update", "t", "--set", "id=name", "--all"], "column id is long"),
        (["upsert", "t", __file__, "--on", "id"], "test_changing.py: expected a file that ends in"),
        (["upsert", "t", "none.csv", "--on", "id"], "none.csv"),
        (["upsert", "t", "-", "--on", "none"], "on: 'none' is not a column"),
        (["restore", "t"], "give one of version, timestamp, offset and tag"),
        (["restore", "t", "--offset", "soon"], "'soon' is not a time ago"),
        (["restore", "t", "--version", "9"], "version 9 does not exist"),
    ],
)
def test_an_error_is_one_line(shell: Shell, words: list[str], named: str) -> None:
    result = shell.run(*words, stdin=b'{"id": 1}')
    assert result.exit_code == 1
    assert named in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_error_in_a_condition_marks_its_place(shell: Shell) -> None:
    result = shell.run("delete", "t", "--where", "id = 1 AND nothing = 1")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[1:] == ["LINE 1: id = 1 AND nothing = 1", "                   ^"]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (b"no json", "row 1: not valid JSON"),
        (b'{"id": 1}\n[2]\n', "row 2: expected a JSON object, got an array"),
        (b'{"id": "x"}\n', "row 1, column id: expected a number (long), got a string"),
        (b"", "the file has no rows"),
    ],
)
def test_lines_that_are_no_rows(shell: Shell, lines: bytes, why: str) -> None:
    result = shell.run("upsert", "t", "-", "--on", "id", stdin=lines)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"alluvia: -: {why}")


@pytest.mark.parametrize(
    ("head", "named", "place"), [("id,id", "id", 2), ("id,name,name", "name", 3), ("id,x,x", "x", 3)]
)
def test_a_column_that_a_file_has_twice(shell: Shell, tmp_path: Path, head: str, named: str, place: int) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"{head}\n" + ",".join("1" for _ in head.split(",")) + "\n")
    result = shell.run("upsert", "t", str(path), "--on", "id")
    assert result.exit_code == 1
    fix = f'give one another name with --rename "#{place}=NAME" (rename)'
    assert result.stderr == f"alluvia: {path}: the file has the column {named!r} twice: {fix}\n"
    assert shell.names() == {number: f"n{number}" for number in range(5)}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["create", "t", "--plain", "--column", "x:long"], "give --exist-ok"),
        (["update", "t", "--set", "x=1", "--all"], "add it with `alluvia evolve --add NAME:TYPE` first"),
        (["upsert", "t", "-", "--on", "id"], "add it with `alluvia evolve --add NAME:TYPE`, or leave it out"),
        (["upsert", "t", "-", "--on", "id", "--delete-when", "false", "--column", "x"], "evolve --add NAME:TYPE`"),
        (["changes", "t", "--from", "9"], "--from: 9 is greater than the last version"),
    ],
)
def test_an_error_says_what_to_type(shell: Shell, words: list[str], told: str) -> None:
    result = shell.run(*words, stdin=b'{"id": 1, "x": 2}')
    assert (result.exit_code, told in result.stderr) == (1, True)


def test_an_append_only_table_says_what_to_type(shell: Shell) -> None:
    shell.run("evolve", "t", "--property", "delta.appendOnly=true")
    result = shell.run("delete", "t", "--where", "true")
    assert "with `alluvia evolve --property NAME=VALUE` first" in result.stderr


@pytest.mark.parametrize("words", [["delete", "t"], ["update", "t", "--all"], ["upsert", "t", "-"]])
def test_missing_options_are_usage_errors(shell: Shell, words: list[str]) -> None:
    assert shell.run(*words).exit_code == 2
