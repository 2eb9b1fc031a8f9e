"""Commands over all tables of a lake in which one is damaged; and which table an error is about."""

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
    """Three tables of two small files each, and of the middle one a commit that is cut off."""
    lake = alluvia.connect(str(tmp_path))
    for name in ("first", "middle", "rest"):
        table = lake.create_table(name, {"x": "long"})
        for x in range(2):
            table.append([{"x": x}])
    cut(tmp_path, "middle")
    return tmp_path


def cut(lake: Path, table: str) -> None:
    last = sorted((lake / table / "_delta_log").glob("*.json"))[-1]
    last.write_bytes(last.read_bytes()[:30])


def run(lake: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, [words[0], "--lake", str(lake), *words[1:]])


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("words", [["tables"], ["optimize"], ["checkpoint"], ["vacuum"], ["vacuum", "--dry-run"]])
def test_a_damaged_table_stops_no_other(lake: Path, words: list[str]) -> None:
    result = run(lake, *words, "--json")
    assert result.exit_code == 1
    assert [row["table"] for row in rows(result)] == ["first", "rest"]
    assert result.stderr.startswith("alluvia: table middle: _delta_log/00000000000000000002.json, line 1: ")
    assert len(result.stderr.splitlines()) == 1


def test_the_others_are_merged(lake: Path) -> None:
    assert "first" in run(lake, "optimize").stdout
    opened = alluvia.connect(str(lake))
    assert [len(opened.table(name).snapshot().files) for name in ("first", "rest")] == [1, 1]


def test_several_failures_are_told_one_by_one(lake: Path) -> None:
    cut(lake, "first")
    result = run(lake, "tables")
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == ["table first", "table middle"]
    assert "rest" in result.stdout


def test_tables_that_are_named(lake: Path) -> None:
    result = run(lake, "optimize", "nope", "Bad", "middle", "rest", "--json")
    assert result.exit_code == 1
    assert [row["table"] for row in rows(result)] == ["rest"]
    assert [line[:32] for line in result.stderr.splitlines()] == [
        "alluvia: there is no table 'nope",
        "alluvia: table name 'Bad': use u",
        "alluvia: table middle: _delta_lo",
    ]


def test_a_table_that_was_dropped_before_it_was_damaged(lake: Path) -> None:
    opened = alluvia.connect(str(lake))
    opened.drop_table("first")
    opened.drop_table("rest")
    opened.undrop("rest")
    cut(lake, "rest")
    opened.create_table("sound", {"x": "long"})
    result = run(lake, "tables", "--json")
    assert (result.exit_code, [row["table"] for row in rows(result)]) == (1, ["sound"])
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == ["table middle", "table rest"]


def test_a_sound_lake_exits_0(tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path))
    lake.create_table("gone", {"x": "long"})
    lake.drop_table("gone")
    lake.create_table("t", {"x": "long"})
    for command in ("tables", "optimize", "checkpoint"):
        result = run(tmp_path, command, "--json")
        assert (result.exit_code, result.stderr, [row["table"] for row in rows(result)]) == (0, "", ["t"])


@pytest.mark.parametrize(
    "words",
    [
        ["describe", "middle"],
        ["history", "middle"],
        ["files", "middle"],
        ["delete", "middle", "--where", "true"],
        ["restore", "middle", "--version", "1"],
        ["evolve", "middle", "--add", "y:long"],
        ["drop", "middle"],
    ],
)
def test_an_error_of_one_table_names_it(lake: Path, words: list[str]) -> None:
    result = run(lake, *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("alluvia: table middle: _delta_log/")


def test_a_traceback_on_request(lake: Path) -> None:
    result = run(lake, "tables", "--debug", "--json")
    assert (result.exit_code, [row["table"] for row in rows(result)]) == (1, ["first", "rest"])
    assert "Traceback" in result.stderr


def test_what_nobody_expected_is_one_line_too(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AttributeError("nobody\nexpected this")

    monkeypatch.setattr(alluvia.Lake, "table", fail)
    result = run(lake, "history", "t")
    assert result.exit_code == 1
    assert result.stderr.startswith("alluvia: unexpected AttributeError: ")
    assert result.stderr.endswith("(--debug shows where)\n")
    assert len(result.stderr.splitlines()) == 1
