"""`alluvia stream`: create, list, show, move, drop; and `alluvia flashback`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import alluvia
from alluvia.cli.command_line import cli


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "lake")
    alluvia.connect(uri).create_table("t", {"id": "long"}).append([{"id": 1}])
    return uri


def run(uri: str, *words: str) -> Result:
    return CliRunner().invoke(cli, ["stream", words[0], "--lake", uri, *words[1:]])


def report(uri: str, *words: str) -> list[dict[str, Any]]:
    result = run(uri, *words, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_streams(uri: str) -> None:
    (made,) = report(uri, "create", "new_rows", "t", "--version", "0", "--appends-only")
    assert (made["source"], made["position"], made["appends_only"], made["versions_behind"]) == ("t", 0, True, 1)
    assert report(uri, "show", "new_rows") == [made]
    assert "already exists: choose another name, or give --exist-ok" in run(uri, "create", "new_rows", "t").stderr
    assert report(uri, "create", "new_rows", "t", "--exist-ok") == [made]
    assert report(uri, "move", "new_rows")[0]["versions_behind"] == 0
    assert [each["name"] for each in report(uri, "list")] == ["new_rows"]
    assert report(uri, "drop", "new_rows") == [{"dropped": "new_rows"}]
    assert report(uri, "list") == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["show", "nothing"], "the lake has no stream 'nothing'"),
        (["create", "s", "nothing"], "there is no table"),
        (["create", "s", "t", "--offset", "soon"], "'soon' is not a time ago"),
    ],
)
def test_what_fails(uri: str, words: list[str], named: str) -> None:
    result = run(uri, *words)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert named in result.stderr


def test_flashback(uri: str) -> None:
    words = ["flashback", "--lake", uri, "--offset", "1 day ago", "--dry-run", "--json"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"name": "t", "action": "drop", "version": None, "new_version": None}
    assert alluvia.connect(uri).tables() == ["t"]
    result = CliRunner().invoke(cli, ["flashback", "--lake", uri, "--offset", "1 day ago"])
    assert (result.exit_code, alluvia.connect(uri).tables()) == (0, [])
    result = CliRunner().invoke(cli, ["flashback", "--lake", uri])
    assert (result.exit_code, "give one of timestamp, offset and tag" in result.stderr) == (1, True)
