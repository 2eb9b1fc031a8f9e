"""`alluvia pipeline` as its user sees it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import alluvia
from alluvia.cli.command_line import cli

DECLARED = """CREATE TABLE views (CONSTRAINT some EXPECT (n > 1) ON VIOLATION QUARANTINE) AS SELECT id, n FROM events;
CREATE TABLE sums AS SELECT n, count(*) AS c FROM views GROUP BY n;"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a lake and a pipeline, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    events = alluvia.connect("lake").create_table("events", {"id": "long", "n": "long"})
    events.append([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "web.sql").write_text(DECLARED)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["pipeline", *words])


def rows(*words: str) -> list[dict[str, Any]]:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_pipeline_is_planned_run_and_told_of(folder: Path) -> None:
    planned = [(row["table"], row["kind"], row["mode"]) for row in rows("plan")]
    assert planned == [("views", "append", "rebuilt"), ("sums", "aggregate", "rebuilt")]
    views, sums = rows("run")
    assert (views["rows"], views["quarantined"], views["failed"], sums["sources"]) == (2, 1, {"some": 1}, {"views": 1})
    alluvia.connect("lake")["events"].append([{"id": 3, "n": 2}])
    assert [(row["table"], row["mode"], row["behind"]) for row in rows("status")] == [
        ("views", "appended", {"events": 1}), ("sums", "nothing", {"views": 0}),
    ]  # fmt: skip
    assert [row["table"] for row in rows("run", "--select", "views+")] == ["views", "sums"]
    assert [row["mode"] for row in rows("plan")] == ["nothing", "nothing"]
    table = run("plan").output
    assert "events@2" in table
    assert "nothing" in table


def test_a_failure_is_told_after_the_others_and_fails_the_command(folder: Path) -> None:
    (folder / "pipelines" / "a.sql").write_text("CREATE TABLE bad AS SELECT id FROM missing")
    result = run("run")
    assert result.exit_code == 1
    assert "alluvia: pipelines/a.sql:1: table bad: its query reads a table that does not exist" in result.stderr
    assert "sums" in result.stdout
    assert alluvia.connect("lake").tables() == ["events", "sums", "views", "views_quarantine"]


def test_a_full_refresh_is_asked_for(folder: Path) -> None:
    rows("run")
    (folder / "pipelines" / "web.sql").write_text(DECLARED.replace("count(*)", "max(id)"))
    refused = run("run", "--select", "sums")
    assert (refused.exit_code, "run it with --full-refresh" in refused.stderr) == (1, True)
    (done,) = rows("run", "--select", "sums", "--full-refresh")
    assert (done["mode"], done["reason"]) == ("rebuilt", "the query changed")


def test_a_pipeline_runs_on_a_branch(folder: Path) -> None:
    alluvia.connect("lake").branch("fix")
    assert [row["mode"] for row in rows("run", "--branch", "fix")] == ["rebuilt", "rebuilt"]
    assert alluvia.connect("lake").tables() == ["events"]


def test_an_example_is_written_tested_run_and_backfilled(folder: Path) -> None:
    lake = alluvia.connect("lake")
    visits = lake.create_table("visits", {"at": "timestamp", "page": "string"})
    visits.append([{"at": datetime(2026, 1, day, tzinfo=UTC), "page": "/"} for day in (1, 1, 2)])
    lake.drop_table("events")
    assert [row["file"] for row in rows("init", "--path", "new")] == ["new/example.sql", "new/tests/example.sql"]
    assert [row["passed"] for row in rows("test", "--path", "new")] == [True]
    assert [row["table"] for row in rows("run", "--path", "new")] == ["visits_clean", "visits_daily"]
    assert [row["n"] for row in lake.sql("SELECT rows AS n FROM visits_daily ORDER BY day").to_pylist()] == [2, 1]
    again, below = rows("backfill", "visits_clean", "--path", "new")
    assert (again["mode"], again["reason"], below["rows"]) == ("rebuilt", "it was asked for", 0)
    test = folder / "new" / "tests" / "example.sql"
    test.write_text(test.read_text().replace("DATE '2026-01-01', 2", "DATE '2026-01-01', 7"))
    result = run("test", "--path", "new")
    assert result.exit_code == 1
    assert "alluvia: new/tests/example.sql:1: rows are counted by day: missing: " in result.stderr
    assert "new has files already" in run("init", "--path", "new").stderr


def test_a_folder_that_is_missing_says_how_to_begin(folder: Path) -> None:
    result = run("plan", "--path", "elsewhere")
    assert "alluvia: there is no folder elsewhere: `alluvia pipeline init` makes one with an example" in result.stderr
