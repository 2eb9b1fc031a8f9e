"""Requests to the process of a query, answered in this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from alluvia.engine.duck.failures import INTERRUPT, details_of
from alluvia.query.process import worker
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
