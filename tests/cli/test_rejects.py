"""Rejected events on the command line: looked at, replayed, and made fit by suggested columns."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from alluvia.cli.command_line import cli


def run(lake: Path, *words: str, text: str = "") -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, [*words, "--lake", str(lake), "--json"], input=text)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def failed(lake: Path, *words: str) -> str:
    result = CliRunner().invoke(cli, [*words, "--lake", str(lake)])
    assert result.exit_code != 0, result.output
    return result.stderr


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    run(tmp_path, "create", "clicks", "--column", "status:long")
    events = [
        '{"event_id":"a","plan":"pro"}',
        '{"event_id":"b","status":"x"}',
        '{"event_id":"c","status":"y"}',
        "broken",
    ]
    run(tmp_path, "ingest", "clicks", "-", text="\n".join(events))
    return tmp_path


def test_rejects_are_counted_shown_and_replayed(lake: Path) -> None:
    counted = run(lake, "rejects", "list")
    assert [(row["table"], row["reason"], row["rejects"]) for row in counted] == [
        ("clicks", "status: expected a number (long), got a string", 2),
        ("clicks", "not valid JSON: Expecting value at character 0", 1),
    ]
    shown = run(lake, "rejects", "show", "clicks", "--where", "reason LIKE 'status%'", "--limit", "5")
    assert sorted(row["raw"] for row in shown) == ['{"event_id":"b","status":"x"}', '{"event_id":"c","status":"y"}']
    assert len(run(lake, "rejects", "show", "clicks", "--limit", "2")) == 2
    for words in (["rejects", "show", "clicks"], ["query", "SELECT raw, '\\xFF'::BLOB AS other FROM clicks._rejects"]):
        result = CliRunner().invoke(cli, [*words, "--lake", str(lake)])
        assert '{"event_id":"b","status":"x"}' in result.stdout
        assert words[0] != "query" or "ff" in result.stdout
    run(lake, "evolve", "clicks", "--rename", "status=status_number")
    [done] = run(lake, "rejects", "replay", "clicks", "--where", "event_id LIKE 'b#%'")
    counts = {"looked_at": 1, "settled": 1, "stored": 1, "duplicates": 0, "remaining": 0}
    assert done == {"table": "clicks", **counts, "staying": []}
    [done] = run(lake, "rejects", "replay", "clicks")
    assert (done["stored"], done["remaining"]) == (1, 1)
    stored = run(lake, "query", "SELECT event_id, properties->>'$.status' AS status FROM clicks ORDER BY 1")
    assert [(row["event_id"], row["status"]) for row in stored] == [("a", None), ("b", "x"), ("c", "y")]
    assert [row["rejects"] for row in run(lake, "rejects", "list", "clicks")] == [1]


def test_rejects_are_repaired(lake: Path, tmp_path: Path) -> None:
    repair = ["rejects", "replay", "clicks", "--set", "status=ascii(status) - 100", "--where", "reason LIKE 'status%'"]
    [planned] = run(lake, *repair, "--dry-run")
    counts = {"looked_at": 2, "settled": 2, "stored": 2, "duplicates": 0, "remaining": 0}
    assert planned | {"rows": []} == {"table": "clicks", **counts, "dry_run": True, "staying": [], "rows": []}
    assert sorted((row["event_id"], row["status"]) for row in planned["rows"]) == [("b", 20), ("c", 21)]
    result = CliRunner().invoke(cli, ["rejects", "replay", "clicks", "--set", "status=stats", "--lake", str(lake)])
    assert "--set: no rejected event has a field 'stats'" in result.stderr
    assert "status: expected a number (long), got a string" in result.stdout
    result = CliRunner().invoke(
        cli, ["rejects", "replay", "clicks", "--set", "stauts=1", "--dry-run", "--lake", str(lake)]
    )
    assert "--set: 'stauts' is neither a field of a rejected event nor a column, so its value goes to" in result.stderr
    assert '{"event_id":"b","status":"x"}' in result.stdout
    assert "set event_id: the field identifies the event" in failed(
        lake, "rejects", "replay", "clicks", "--set", "event_id=1"
    )
    [done] = run(lake, *repair)
    assert done == {"table": "clicks", **counts, "staying": []}
    stored = run(lake, "query", "SELECT event_id, status FROM clicks WHERE status IS NOT NULL ORDER BY 1")
    assert [(row["event_id"], row["status"]) for row in stored] == [("b", 20), ("c", 21)]


def test_an_expression_without_quotes_says_how_text_is_quoted(lake: Path) -> None:
    run(lake, "evolve", "clicks", "--add", "plan:string")
    words = "text stands in single quotes: --set \"plan='pro max'\""
    assert words in failed(lake, "update", "clicks", "--all", "--set", "plan=pro max")
    one = failed(lake, "update", "clicks", "--all", "--set", "plan=pro")
    assert "text stands in single quotes: --set \"plan='pro'\"\nLINE 1: pro\n" in one
    twice = failed(lake, "rejects", "replay", "clicks", "--set", "plan='it's'")
    assert "a single quote within text is written twice: --set \"plan='it''s'\"\nLINE" in twice
    for command in (["update", "clicks", "--all"], ["rejects", "replay", "clicks", "--dry-run"]):
        told = failed(lake, *command, "--set", "status=12,50")
        assert "status: a comma makes two expressions of '12,50': decimals come after a point" in told
    assert "single quotes" not in failed(lake, "update", "clicks", "--all", "--set", "status=nope + 1")
    told = (
        CliRunner()
        .invoke(cli, ["rejects", "replay", "clicks", "--set", "plan=pro", "--dry-run", "--lake", str(lake)])
        .stderr
    )
    assert "--set: no rejected event has a field 'pro'; text stands in single quotes: --set \"plan='pro'\"" in told


def test_times_that_cannot_be_read_are_named_everywhere(lake: Path, tmp_path: Path) -> None:
    events = tmp_path / "e.ndjson"
    events.write_text('{"event_id":"t","ts":"yesterday"}\n{"event_id":"u","ts":"11/12/2026"}\n{"ts":"2999-01-01"}\n')
    result = CliRunner().invoke(cli, ["ingest", "clicks", str(events), str(events), "--lake", str(lake), "--json"])
    first, again = map(json.loads, result.stdout.splitlines())
    assert (first["unreadable_times"], first["stored"]) == ({"events": 2, "field": "ts", "value": "yesterday"}, 3)
    assert (again["unreadable_times"], again["duplicates"]) == (first["unreadable_times"], 3)
    assert "4 events have a time that cannot be read" in result.stderr
    assert "such as ts 'yesterday': the property alluvia.unreadable_time of clicks decides" in result.stderr
    assert "2 events have a time more than a day after arrival, such as ts '2999-01-01'" in result.stderr
    [described] = run(lake, "describe", "clicks")
    assert (described["unreadable_times"], described["future_times"]) == (2, 1)
    assert run(lake, "suggest", "clicks")[0]["field"] == "ts"


def test_numbers_whose_points_may_group_digits_wait_for_an_answer(tmp_path: Path) -> None:
    columns = [word for name in ("n:long", "x:double") for word in ("--column", name)]
    file = tmp_path / "orders.csv"
    file.write_text("event_id;n;x;p q\na;1.000;1.250;1.500\nb;2;0.5;x\n")
    run(tmp_path / "lake", "create", "orders", *columns)
    [done] = run(tmp_path / "lake", "ingest", "orders", str(file), "--rename", "p q=p")
    assert (done["stored"], done["rejected"]) == (1, 1)
    [kept] = run(tmp_path / "lake", "rejects", "replay", "orders")
    assert (kept["stored"], kept["remaining"]) == (0, 1)
    repair = ("rejects", "replay", "orders", "--set", "n=replace(n, '.', '')::BIGINT")
    assert run(tmp_path / "lake", *repair)[0]["stored"] == 1
    stored = "SELECT event_id, n, x FROM orders ORDER BY event_id"
    assert run(tmp_path / "lake", "query", stored) == [
        {"event_id": "a", "n": 1000, "x": 1.25},
        {"event_id": "b", "n": 2, "x": 0.5},
    ]
    [again] = run(tmp_path / "lake", "ingest", "orders", str(file), "--rename", "p q=p")
    assert (again["stored"], again["duplicates"], again["rejected"]) == (0, 2, 0)
    for at, (option, separator, number) in enumerate(
        [("decimal", ".", 1), ("decimal", ",", 1000), ("thousands", "'", 1)]
    ):
        lake = tmp_path / f"lake{at}"
        run(lake, "create", "orders", *columns)
        file.write_text("event_id;n\na;1.000\n")
        run(lake, "ingest", "orders", str(file), f"--{option}-separator", separator)
        assert run(lake, "query", "SELECT n FROM orders") == [{"n": number}]


def test_rows_get_the_times_that_could_not_be_read(tmp_path: Path) -> None:
    events = [
        {"event_id": "a", "ts": "20.11.2026 10:00"},
        {"event_id": "b", "ts": "yesterday"},
        {"event_id": "c", "ts": "2026-11-20T10:00:00Z"},
    ]
    text = "\n".join(map(json.dumps, events))
    run(tmp_path, "ingest", "clicks", "-", text=text)
    page = Path("docs/OPERATIONS.md").read_text()
    commands = page.split("### Accepted events without a readable time")[1].split("```")[1].splitlines()[1:]
    shown, updated = (run(tmp_path, *shlex.split(command)[1:]) for command in commands)
    assert sorted((row["sent"], row["events"]) for row in shown) == [("20.11.2026 10:00", 1), ("yesterday", 1)]
    assert updated[0]["rows_updated"] == 1
    stored = run(tmp_path, "query", "SELECT ts FROM clicks WHERE ts <> received_at ORDER BY event_id")
    assert [row["ts"] for row in stored] == ["2026-11-20T09:00:00Z", "2026-11-20T10:00:00Z"]
    assert run(tmp_path, "describe", "clicks")[0]["unreadable_times"] == 1
    [again] = run(tmp_path, "ingest", "clicks", "-", text=text)
    assert (again["stored"], again["duplicates"]) == (0, 3)


def test_a_table_that_has_rejected_nothing_and_no_table(lake: Path) -> None:
    run(lake, "create", "views")
    assert run(lake, "rejects", "list", "views") == run(lake, "rejects", "show", "views") == []
    for verb in ("list", "show", "replay"):
        assert "nowhere" in failed(lake, "rejects", verb, "nowhere")


def test_suggested_columns_are_added_and_a_missing_one_names_its_path(lake: Path) -> None:
    wrong = failed(lake, "query", "SELECT plan FROM clicks")
    assert "properties->>'$.plan'" in wrong
    assert run(lake, "query", "SELECT properties->>'$.plan' AS plan FROM clicks") == [{"plan": "pro"}]
    assert "A field" not in failed(lake, "query", "SELECT plan FROM clicks._rejects")
    for query, said in [
        ("SELECT c.plan FROM clicks c", "A field without a column is in properties: properties->>'$.plan'"),
        ("SELECT properties.plan FROM clicks", "A field without a column is in properties: properties->>'$.plan'"),
        ("SELECT properties['plan'] FROM clicks", "A field without a column is in properties: properties->>'$.plan'"),
        ('SELECT c.properties."o\'x y" FROM clicks c', "Cannot extract field"),
        ('SELECT "x/y" FROM clicks', "A field without a column is in properties: properties->>'/x~1y'"),
        ("SELECT plan.name FROM clicks", "An object without a column is in properties: properties->>'$.plan.…'"),
        ("SELECT CAST('plan' AS int) FROM clicks", "'plan'"),
    ]:
        assert said in failed(lake, "query", query)
    assert "column is in" not in failed(lake, "query", "SELECT CAST('plan' AS int) FROM clicks")
    [found] = run(lake, "suggest", "clicks", "--coverage", "0.1")
    assert (found["field"], found["type"], found["events"], found["example"]) == ("plan", "string", 3, '"pro"')
    assert run(lake, "suggest", "clicks", "--coverage", "0.9") == []
    assert "no sampled event" in failed(lake, "suggest", "clicks", "--field", "plans")
    run(lake, "suggest", "clicks", "--field", "plan", "--apply")
    run(lake, "ingest", "clicks", "-", text='{"event_id":"d","plan":"free"}')
    assert {"plan": "free"} in run(lake, "query", "SELECT plan FROM clicks")
    assert "nothing was added" in failed(lake, "suggest", "clicks", "--apply")
