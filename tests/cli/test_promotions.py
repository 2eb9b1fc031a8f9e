"""Columns that are added for fields of `properties` on the command line: what is said of them, and the backfill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from alluvia.cli.command_line import cli


def run(lake: Path, *words: str, text: str = "") -> tuple[list[dict[str, Any]], str]:
    result = CliRunner().invoke(cli, [*words, "--lake", str(lake), "--json"], input=text)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()], result.stderr


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    run(tmp_path, "create", "clicks")
    events = [{"event_id": f"{at}", "user_id": f"u{at % 2}", "n": at} for at in range(4)]
    run(tmp_path, "ingest", "clicks", "-", text="\n".join(map(json.dumps, events)))
    run(tmp_path, "sql", "CREATE VIEW people AS SELECT properties->>'user_id' AS who FROM clicks")
    return tmp_path


def test_an_added_column_has_the_field_of_earlier_events_and_names_its_readers(lake: Path) -> None:
    _, said = run(lake, "suggest", "clicks", "--field", "user_id", "--apply")
    assert "added user_id in version 2" in said
    assert "named in: view people" in said
    assert "alluvia evolve clicks --backfill" in said
    run(lake, "ingest", "clicks", "-", text='{"event_id":"new","user_id":"u2"}')
    [counted], _ = run(lake, "query", "SELECT count(user_id) AS a, count(properties->>'user_id') AS b FROM clicks")
    assert counted == {"a": 5, "b": 5}


def test_a_backfill_rewrites_files_once(lake: Path) -> None:
    [done], said = run(lake, "evolve", "clicks", "--add", "n:long", "--backfill")
    assert done == {"table": "clicks", "version": 3, "files_rewritten": 1}
    assert "--backfill" not in said
    [again], _ = run(lake, "evolve", "clicks", "--backfill")
    assert again == {"table": "clicks", "version": 3, "files_rewritten": 0}
    [optimized], _ = run(lake, "optimize", "clicks", "--backfill")
    assert optimized["files_removed"] == 0


def test_a_dropped_column_is_said_to_take_its_values_along(lake: Path) -> None:
    run(lake, "evolve", "clicks", "--add", "n:long", "--backfill")
    _, said = run(lake, "evolve", "clicks", "--drop", "n")
    assert "values of n that were in the column are gone from properties, too" in said


def test_events_of_csv_show_the_numbers_that_they_have(tmp_path: Path) -> None:
    run(tmp_path, "create", "clicks")
    run(tmp_path, "evolve", "clicks", "--add", "n:long", "--add", "price:double", "--add", "cost:decimal(10,2)")
    (tmp_path / "clicks.csv").write_text("event_id,n,price,cost\na,12,12,1.5\nb,7,0.50,2.25\n")
    run(tmp_path, "ingest", "clicks", str(tmp_path / "clicks.csv"))
    names = ("n", "price", "cost")
    shown = ", ".join(f"{name}::VARCHAR AS {name}, properties->>'{name}' AS {name}_" for name in names)
    found, _ = run(
        tmp_path, "query", f"SELECT {shown}, properties->'_properties' AS aside FROM clicks ORDER BY event_id"
    )
    assert found == [
        {"n": "12", "n_": "12", "price": "12.0", "price_": "12", "cost": "1.50", "cost_": "1.5", "aside": None},
        {"n": "7", "n_": "7", "price": "0.5", "price_": "0.5", "cost": "2.25", "cost_": "2.25", "aside": None},
    ]


def test_a_change_that_a_view_would_not_survive_is_refused_unless_forced(lake: Path) -> None:
    view = "SELECT properties->>'n' AS n, count(*) AS events FROM clicks GROUP BY n"
    run(lake, "sql", f"CREATE VIEW numbers AS {view}")
    for words in (["evolve", "clicks", "--add", "n:long"], ["suggest", "clicks", "--field", "n", "--apply"]):
        refused = CliRunner().invoke(cli, [*words, "--lake", str(lake)])
        assert refused.exit_code == 1
        assert "adding n would break or change view numbers: " in refused.stderr
        assert "or give --force to do it all the same" in refused.stderr
    [history], _ = run(lake, "history", "clicks", "--limit", "1")
    assert history["version"] == 1
    _, said = run(lake, "suggest", "clicks", "--field", "n", "--apply", "--force")
    assert "added n in version 2" in said
    assert "named in: view numbers" in said
    refused = CliRunner().invoke(cli, ["evolve", "clicks", "--rename", "n=number", "--lake", str(lake)])
    assert refused.exit_code == 0, refused.stderr  # the view is broken already


def test_values_that_the_type_does_not_take_are_counted_when_a_column_is_added(tmp_path: Path) -> None:
    run(tmp_path, "create", "orders")
    amounts: list[object] = [1, 2.5, "12,50", "x", None]
    events = [{"event_id": f"{at}", "amount": amount} for at, amount in enumerate(amounts)]
    run(tmp_path, "ingest", "orders", "-", text="\n".join(map(json.dumps, events)))
    _, said = run(tmp_path, "evolve", "orders", "--add", "amount:double")
    assert 'amount: 2 of 4 values in 5 sampled events do not fit double, such as "12,50"' in said
    assert "new events with such values become rejects" in said
    [again], _ = run(tmp_path, "ingest", "orders", "-", text=json.dumps(events[2]))
    assert (again["duplicates"], again["rejected"]) == (1, 0)


def test_a_field_that_no_event_has_at_its_top_is_said_to_be_elsewhere(tmp_path: Path) -> None:
    run(tmp_path, "create", "orders")
    event = {"event_id": "a", "customer": {"email": "a@example.com"}, "n": 1}
    run(tmp_path, "ingest", "orders", "-", text=json.dumps(event))
    for name in ("email", "customer.email"):
        _, said = run(tmp_path, "evolve", "orders", "--add", f"{name}:string")
        assert f"{name}: none of 1 sampled events has a field of this name at its top" in said
        assert "query it as (properties->'customer'->>'email')" in said
    _, said = run(tmp_path, "evolve", "orders", "--add", "phone:string", "--add", "n:long")
    assert "phone: none of 1 sampled events has a field of this name\n" in said
    assert "n: " not in said
    run(tmp_path, "create", "empty")
    _, said = run(tmp_path, "evolve", "empty", "--add", "phone:string")
    assert "sampled" not in said
