"""A lake, and statements that are sent to the query function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import alluvia
from functions.query import handler as query
from tests.functions.test_query import Answer, event


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    lake = alluvia.connect(str(tmp_path))
    lake.create_table("totals", {"name": "string", "n": "long"}).append([{"name": "a", "n": 1}, {"name": "b", "n": 2}])
    return lake


@pytest.fixture
def writing(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    monkeypatch.setenv("ALLUVIA_ALLOW_WRITES", "true")
    return lake


def send(sql: str, parameters: Any = None, path: str = "/q", accept: str | None = None) -> Answer:
    body = {"query": sql} if parameters is None else {"query": sql, "parameters": parameters}
    return query.handler(event(json.dumps(body), path=path, accept=accept), None)


def rows(answer: Answer) -> list[Any]:
    assert answer["statusCode"] == 200, answer["body"]
    return [json.loads(line) for line in answer["body"].splitlines()]


def state(lake: alluvia.Lake) -> tuple[list[str], dict[str, int]]:
    """The versions of all tables, and what is in `totals`."""
    fresh = alluvia.connect(lake.uri)
    found = fresh.table("totals").to_arrow().to_pylist()
    return [f"{name}@{fresh.table(name).version}" for name in fresh.tables()], {row["name"]: row["n"] for row in found}
