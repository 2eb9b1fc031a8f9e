"""status, head, schema and export: a lake and its tables as they are."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import alluvia
from alluvia.cli.command_line import cli
from tests.serving import serving

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    made = alluvia.connect(tmp_path / "lake")
    events = made.create_events("events", {"n": "long"})
    for hour in range(3):
        at = NOON.replace(hour=hour)
        events.append([{"event_id": f"e{hour}", "ts": NOON, "received_at": at, "event": "click", "n": hour}])
    plain = made.create_table("plain", {"name": "string", "price": "decimal(9,2)"})
    plain.append([{"name": "bolt", "price": Decimal("1.50")}])
    made.sql("CREATE VIEW names AS SELECT name FROM plain")
    return tmp_path / "lake"


def run(lake: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, [words[0], "--lake", str(lake), *words[1:]])


def rows(lake: Path, *words: str) -> list[Any]:
    done = run(lake, *words, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_status_sums_the_tables(lake: Path) -> None:
    [status] = rows(lake, "status")
    by_table = {each.pop("table"): each for each in status.pop("by_table")}
    assert by_table["events"]["newest_event"] == "2026-11-20T02:00:00Z"
    assert (by_table["events"]["rows"], by_table["plain"]["rows"]) == (3, 1)
    assert (by_table["plain"]["newest_event"], by_table["plain"]["upkeep_due"]) == (None, "")
    stored = alluvia.connect(lake)
    assert status == {
        "lake": stored.uri,
        "tables": 2,
        "views": ["names"],
        "rows": 4,
        "bytes": sum(stored[name].snapshot().totals[1] for name in stored),
        "newest_event": "2026-11-20T02:00:00Z",
        "rejects": 0,
        "upkeep_due": ["optimize events"],
        "servers": [],
    }
    shown = [line.split() for line in run(lake, "status").stdout.splitlines()]
    assert ["upkeep", "due", "optimize", "events"] in shown


def test_the_status_says_which_upkeep_is_due_until_it_is_done(lake: Path) -> None:
    stored = alluvia.connect(lake)
    stored["events"].evolve(properties={"alluvia.ttl": "1 day"})
    stored.create_rollup("hourly", "SELECT event, count(*) AS n FROM events GROUP BY event")
    stored["events"].append([{"event_id": "late", "ts": datetime.now(UTC), "received_at": datetime.now(UTC)}])
    [status] = rows(lake, "status")
    assert status["upkeep_due"] == ["expire, optimize events", "rollup refresh hourly"]
    stored["hourly"].refresh()
    stored["events"].expire()
    stored["hourly"].refresh()
    assert rows(lake, "status")[0]["upkeep_due"] == ["optimize hourly"]
    stored["hourly"].optimize()
    assert rows(lake, "status")[0]["upkeep_due"] == []


def test_the_status_names_the_servers_that_run_here(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serving(lake, quiet=True) as (_, port):
        assert rows(lake, "status")[0]["servers"] == [f"http://127.0.0.1:{port}"]
    assert rows(lake, "status")[0]["servers"] == []


def test_the_status_counts_rejects_and_names_a_damaged_table(lake: Path, tmp_path: Path) -> None:
    file = tmp_path / "more.ndjson"
    file.write_text('{"event": "ok"}\nno event\n')
    assert run(lake, "ingest", "events", str(file)).exit_code == 0
    assert rows(lake, "status")[0]["rejects"] == 1
    (lake / "plain" / "_delta_log" / f"{0:020}.json").write_text("{")
    done = run(lake, "status")
    assert done.exit_code == 1
    assert "1 of 2 tables could not be read and are not in the sums" in done.stderr
    assert "plain" in done.stderr.splitlines()[0]


def test_the_head_is_some_rows_of_a_table_or_a_view(lake: Path) -> None:
    assert len(rows(lake, "head", "events")) == 3
    assert len(rows(lake, "head", "events", "-n", "2")) == 2
    assert rows(lake, "head", "events", "-n", "0") == []
    assert rows(lake, "head", "names") == [{"name": "bolt"}]
    assert run(lake, "head", "plain", "--format", "csv").stdout_bytes == b"name,price\r\nbolt,1.50\r\n"
    unknown = run(lake, "head", "evnts")
    assert (unknown.exit_code, unknown.stderr) == (1, "alluvia: the lake has no table 'evnts': did you mean events?\n")
    for name in ("", "../events", "events/"):
        assert f"alluvia: table name {name!r}" in run(lake, "head", name).stderr
        assert f"alluvia: table name {name!r}" in run(lake, "schema", name).stderr


def test_the_schema_has_the_types_that_create_takes(lake: Path) -> None:
    shown = rows(lake, "schema", "plain")
    assert shown == [
        {"column": "name", "type": "string", "nullable": True},
        {"column": "price", "type": "decimal(9,2)", "nullable": True},
    ]
    words = [word for each in shown for word in ("--column", f"{each['column']}:{each['type']}")]
    assert run(lake, "create", "again", "--plain", *words).exit_code == 0
    assert rows(lake, "schema", "again") == shown
    assert rows(lake, "schema", "names") == shown[:1]
    alluvia.connect(lake)["plain"].evolve({"more": "long"})
    assert len(rows(lake, "schema", "plain")) == 3
    assert rows(lake, "schema", "plain", "--version", "0") == shown
    assert "did you mean plain?" in run(lake, "schema", "plane").stderr


def test_an_export_is_all_rows_of_a_table_a_view_or_a_query(lake: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    [done] = rows(lake, "export", "events", str(file))
    assert done == {"file": str(file), "rows": 3, "bytes": file.stat().st_size}
    assert sorted(pq.read_table(file)["n"].to_pylist()) == [0, 1, 2]
    file = tmp_path / "rows.csv"
    assert rows(lake, "export", "names", str(file))[0]["rows"] == 1
    assert file.read_bytes() == b"name\r\nbolt\r\n"
    query = "SELECT n FROM events WHERE n >= $least ORDER BY n"
    assert rows(lake, "export", query, str(tmp_path / "rows.json"), "-p", "least=1")[0]["rows"] == 2
    assert json.loads((tmp_path / "rows.json").read_text()) == [{"n": 1}, {"n": 2}]


def test_an_export_that_fails_leaves_the_file_as_it_was(lake: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("as it was")
    for what in ("evnts", "SELECT name::INT FROM plain"):
        assert run(lake, "export", what, str(file)).exit_code == 1
    assert "its suffix names no format" in run(lake, "export", "events", str(tmp_path / "rows.xlsx")).stderr
    assert (file.read_text(), sorted(each.name for each in tmp_path.iterdir())) == ("as it was", ["lake", "rows.csv"])


def test_tables_lists_views_after_the_tables(lake: Path) -> None:
    named = {"view": "names", "version": 0, "query": "SELECT name FROM plain"}
    assert [each.get("table") for each in rows(lake, "tables")] == ["events", "plain", None]
    assert rows(lake, "tables")[-1] == named
    assert [line.split()[0] for line in run(lake, "tables").stdout.splitlines() if line][-3:-1] == ["view", "─────"]
    alluvia.connect(lake).sql("DROP TABLE events")
    alluvia.connect(lake).sql("DROP TABLE plain")
    assert rows(lake, "tables") == [named]
    alluvia.connect(lake).sql("DROP VIEW names")
    assert rows(lake, "tables") == []


def test_describe_shows_a_view_with_its_query(lake: Path) -> None:
    assert rows(lake, "describe", "names") == [
        {
            "view": "names",
            "version": 0,
            "query": "SELECT name FROM plain",
            "columns": [{"column": "name", "type": "string", "nullable": True}],
        }
    ]
    alluvia.connect(lake).sql("DROP VIEW names")
    assert run(lake, "describe", "names").stderr == "alluvia: there is no table 'names'\n"


@pytest.mark.parametrize(
    "words",
    [
        ["drop", "names"],
        ["history", "names"],
        ["describe", "names", "--version", "0"],
        ["vacuum", "names"],
        ["clone", "names", "other"],
        ["erase", "names", "--where", "name = 'bolt'"],
    ],
)
def test_commands_on_tables_say_that_a_name_is_a_view(lake: Path, words: list[str]) -> None:
    refused = run(lake, *words)
    told = "there is no table 'names', but a view: DESCRIBE names shows it, DROP VIEW names drops it"
    assert (refused.exit_code, refused.stderr) == (1, f"alluvia: {told}\n")
    assert rows(lake, "head", "names") == [{"name": "bolt"}]


def test_a_table_in_a_schema_by_its_name(lake: Path) -> None:
    for text in ("CREATE SCHEMA gold", "CREATE SCHEMA bronze", "CREATE TABLE bronze.taps (id BIGINT)"):
        assert run(lake, "sql", text).exit_code == 0
    assert run(lake, "sql", "INSERT INTO bronze.taps VALUES (7)").exit_code == 0
    assert rows(lake, "schemas") == [
        {"schema": "main", "tables": 2, "views": 1},
        {"schema": "bronze", "tables": 1, "views": 0},
        {"schema": "gold", "tables": 0, "views": 0},
    ]
    assert rows(lake, "head", "bronze.taps") == [{"id": 7}]
    assert [each["table"] for each in rows(lake, "tables") if "table" in each] == ["events", "plain", "bronze.taps"]
    done = run(lake, "create", "silver.taps", "--column", "id:long")
    assert done.exit_code == 1
    assert "silver.taps: there is no schema 'silver': create it with CREATE SCHEMA silver" in done.stderr
