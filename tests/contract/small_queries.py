"""Queries of a function whose process has little memory."""

from __future__ import annotations

from pathlib import Path

import pytest

import alluvia
from alluvia import scratch
from alluvia.processes.pool import IDLE_MAX
from alluvia.query.process.processes import POOL
from functions.query.handler import handler


def small_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    """Return a lake with a table of two rows, and make the query function use it."""
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    monkeypatch.setenv("ALLUVIA_QUERY_TIMEOUT_SECONDS", "120")  # enough on a busy machine; hostile queries set less
    monkeypatch.setenv("ALLUVIA_QUERY_MEMORY_MB", "300")
    lake = alluvia.connect(str(tmp_path))
    lake.create_table("t", {"n": "long"}).append([{"n": 1}, {"n": 2}])
    return lake


def ask(text: str) -> tuple[int, str]:
    """Return the status and the body that the query function answers with."""
    answer = handler({"query": text}, None)
    return answer["statusCode"], answer["body"]


def assert_nothing_happened() -> None:
    """Check that the next query succeeds, and that earlier ones have left nothing behind."""
    assert ask("SELECT sum(n) AS s FROM t") == (200, '{"s":3}\n')
    assert not list(scratch.scratch_root().glob("query-*"))
    assert len(POOL._idle) <= IDLE_MAX
