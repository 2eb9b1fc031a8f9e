"""Requests to the process of a query, answered in this one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

from alluvia.engine.duck.failures import INTERRUPT, details_of
from alluvia.query.process import ahead, worker
from alluvia.query.process.worker import QueryDatabase


def stream_of(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def told_once_as_interrupted(
    details_of: Callable[[Exception], dict[str, str]],
) -> Callable[[Exception], dict[str, str]]:
    """Say of the first failure what DuckDB says at times where several threads run a query."""
    told: list[Exception] = []

    def first_time(error: Exception) -> dict[str, str]:
        told.append(error)
        return {"exception_type": INTERRUPT} if len(told) == 1 else details_of(error)

    return first_time


@pytest.mark.parametrize("request_name", ["stream", "render"])
def test_a_query_is_asked_again_why_it_failed(request_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = QueryDatabase(lambda reply, data: None)
    database.open({"threads": "1"})
    database.register("given", stream_of(pa.table({"n": [1, 2]})))
    database.execute("CREATE TABLE kept AS SELECT n FROM given", [])
    database.unregister("given")
    database.execute("CREATE VIEW t AS SELECT n FROM kept", [])
    database.execute("SET disabled_optimizers = 'top_n'", [])
    database.confine([])
    monkeypatch.setattr(worker, "details_of", told_once_as_interrupted(details_of))
    request: dict[str, Any] = {"sql": "SELECT CASE n WHEN 2 THEN error('late') ELSE n END FROM t"}
    if request_name == "render":
        request |= {"form": "ndjson", "limit_bytes": 1000}
    assert worker._answer(database, request_name, request) == {
        "error": {"exception_type": "Invalid Input", "exception_message": "late"}
    }
    database.close()


LEFT_BY_A_QUERY = (
    "CREATE TABLE kept AS SELECT 1 AS n",
    "CREATE TEMP TABLE hidden AS SELECT 2 AS n",
    "CREATE TABLE alluvia.scan_0 AS SELECT 3 AS n",
    "CREATE MACRO added(x) AS x + 1",
    "CREATE TYPE mood AS ENUM ('good')",
    "CREATE SECRET (TYPE http, BEARER_TOKEN 'theirs')",
    "SET VARIABLE mine = 'theirs'",
    "SET disabled_optimizers = 'top_n'",
    "SET SESSION default_order = 'DESC'",
    "PREPARE asked AS SELECT 4",
    "ATTACH ':memory:' AS other",
)
STATE = {
    "duckdb_settings()": "name, value",
    "duckdb_tables()": "table_name",
    "duckdb_views()": "schema_name, view_name",
    "duckdb_functions() WHERE NOT internal": "function_name",
    "duckdb_types() WHERE NOT internal": "type_name",
    "duckdb_secrets()": "name",
    "duckdb_variables()": "name, value",
    "duckdb_prepared_statements()": "name",
    "duckdb_databases()": "database_name",
    "duckdb_schemas()": "schema_name",
}


def state_of(database: QueryDatabase) -> dict[str, list[Any]]:
    return {
        source: database.execute(f"SELECT {columns} FROM {source} ORDER BY ALL", [])["rows"]
        for source, columns in STATE.items()
    }


def opened(database: QueryDatabase, options: dict[str, str]) -> dict[str, list[Any]]:
    database.open(options)
    state = state_of(database)
    settings = dict(state["duckdb_settings()"])
    assert {name: settings[name] for name in options} == options
    database.execute("ROLLBACK", [])
    return state


def test_databases_opened_ahead_hold_nothing_of_an_earlier_query(tmp_path: Path) -> None:
    options = {"memory_limit": "64.0 MiB", "threads": "1", "temp_directory": str(tmp_path / "one")}
    new = opened(QueryDatabase(lambda reply, data: None), options)
    database = QueryDatabase(lambda reply, data: None)
    opened(database, options)
    for _ in range(4):
        for statement in LEFT_BY_A_QUERY:
            database.execute(statement, [])
        database.register("given", stream_of(pa.table({"n": [1]})))
        database.confine([str(tmp_path / "theirs.parquet")])
        assert state_of(database) != new
        database.close()
        assert opened(database, options) == new


def test_a_database_has_the_requested_options(tmp_path: Path) -> None:
    database = QueryDatabase(lambda reply, data: None)
    few = {"memory_limit": "64.0 MiB", "threads": "1"}
    more = {"memory_limit": "128.0 MiB", "threads": "2", "max_temp_directory_size": "16.0 MiB"}
    for number, options in enumerate([few, few, more, few, more, more, more, few, few]):
        folder = tmp_path / str(number)
        opened(database, {**options, "temp_directory": str(folder)})
        assert not folder.exists()
        database.close()


def test_a_query_reports_why_no_database_opened_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(options: dict[str, str]) -> None:
        raise RuntimeError("Resource temporarily unavailable")

    heard: list[str] = []

    def take() -> None:
        with pytest.raises(RuntimeError, match="temporarily unavailable") as raised:
            databases.take({"threads": "1"})
        heard.append(str(raised.value))

    databases = ahead.DatabasesAhead()
    databases.take({"threads": "1"}).close()
    databases.take({"threads": "1"}).close()
    monkeypatch.setattr(ahead, "connect", no_thread)
    databases.refill()
    for _ in range(ahead.AHEAD):
        waiting = Thread(target=take, daemon=True)
        waiting.start()
        waiting.join(10)
    assert len(heard) == ahead.AHEAD
    monkeypatch.undo()
    databases.take({"threads": "1"}).close()


def test_only_a_confined_database_runs_a_users_text() -> None:
    database = QueryDatabase(lambda reply, data: None)
    database.open({"threads": "1"})
    for request in (
        ("stream", {"sql": "SELECT 1"}),
        ("described", {"sql": "DESCRIBE SELECT 1"}),
        ("render", {"sql": "SELECT 1", "form": "ndjson", "limit_bytes": 1000}),
        ("compute", {"sql": "SELECT 1", "limit_bytes": 1000, "rows": stream_of(pa.table({"n": [1]}))}),
    ):
        with pytest.raises(RuntimeError, match="not confined"):
            worker._answer(database, *request)
    database.confine([])
    database.close()
    database.open({"threads": "1"})
    with pytest.raises(RuntimeError, match="not confined"):
        database.stream("SELECT 1")


def test_nothing_runs_after_a_failed_step() -> None:
    replies: list[Any] = []
    database = QueryDatabase(lambda reply, data: replies.append(reply))
    database.open({"threads": "1"})
    before = [
        {"step": 3, "do": "execute", "sql": "CREATE VIEW one AS SELECT 1 AS n", "parameters": []},
        {"step": 4, "do": "execute", "sql": "CREATE VIEW two AS SELECT n FROM missing", "parameters": []},
        {"step": 5, "do": "confine", "paths": []},
    ]
    reply = worker._answer(database, "stream", {"sql": "FROM one", "before": before})
    assert reply["step"] == 4
    assert reply["error"]["exception_type"] == "Catalog"
    assert replies == []
    with pytest.raises(RuntimeError, match="not confined"):
        database.stream("SELECT 1")
