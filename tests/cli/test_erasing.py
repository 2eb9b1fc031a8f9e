"""`alluvia erase` as its user sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import alluvia
from alluvia.cli.commands import cli
from alluvia.lake import Lake
from tests.erased import traces

VICTIM = "mallory@example.org"
WHERE = f"user_id = '{VICTIM}'"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = alluvia.connect(str(tmp_path))
    for name in ("clicks", "orders"):
        lake.create_table(name, {"user_id": "string", "n": "long"})
        lake.table(name).append([{"user_id": VICTIM, "n": 1}, {"user_id": "alice", "n": 2}])
    lake.create_table("places", {"name": "string"}).append([{"name": "here"}])
    lake.create_rollup("totals", "SELECT user_id, count(*) AS n FROM clicks GROUP BY user_id")
    return lake


def run(lake: Lake, *words: str) -> Result:
    return CliRunner().invoke(cli, ["erase", *words, "--lake", lake.uri])


def reports(lake: Lake, *words: str) -> list[dict[str, Any]]:
    result = run(lake, *words, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_all_tables_with_the_columns_are_erased_rollups_last(lake: Lake) -> None:
    found = reports(lake, WHERE, "--prove")
    assert [(each["table"], each["rows"], each["ok"]) for each in found] == [
        ("clicks", 1, True),
        ("orders", 1, True),
        ("totals", 0, True),
    ]
    assert traces(lake.store, VICTIM) == []
    assert lake.table("totals").to_arrow().to_pylist() == [{"user_id": "alice", "n": 1}]
    assert lake.table("places").version == 1


def test_what_was_done_and_searched_is_printed(lake: Lake) -> None:
    result = run(lake, WHERE, "orders", "--prove")
    assert result.exit_code == 0
    assert "orders: erased 1 row; the oldest version that can be read is 2" in result.stdout
    assert "removed: 1 data file, what 1 commit showed" in result.stdout
    assert "searched 4 commits (" in result.stdout
    assert "searched 1 data file (" in result.stdout
    assert "nothing found up to version 3" in result.stdout
    assert VICTIM not in result.output
    assert traces(lake.store, VICTIM, "orders/") == []
    assert traces(lake.store, VICTIM, "clicks/")


def test_a_dry_run_only_searches(lake: Lake) -> None:
    before = {info.key: lake.store.get(info.key) for info in lake.store.list("")}
    result = run(lake, WHERE, "clicks", "--dry-run")
    assert result.exit_code == 0
    assert "found in 1 object:" in result.stdout
    assert "a readable version has matching rows in it" in result.stdout
    assert {info.key: lake.store.get(info.key) for info in lake.store.list("")} == before


def test_what_is_left_ends_with_status_1(lake: Lake) -> None:
    table = lake.table("orders")
    table._handle.writer(table.snapshot()).write(table.to_arrow(where=WHERE))
    result = run(lake, WHERE, "orders", "--prove")
    assert result.exit_code == 1
    assert "a transaction may be about to commit it; erase again after " in result.stdout
    assert result.stderr == "alluvia: something is left in orders\n"


def test_a_condition_that_no_table_knows_is_refused(lake: Lake) -> None:
    result = run(lake, "nobody = 'x'")
    assert result.exit_code == 1
    assert "nobody" in result.stderr
    assert run(lake, WHERE, "places").exit_code == 1
