"""The memory of a merge stays within its limit: that of the process, as the system counts it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import alluvia
from alluvia.engine.duck.database import DUCKDB_BYTES_MIN, ENGINE_BYTES, memory_shares

MB = 1_000_000


@pytest.mark.parametrize("limit_mb", [350, 512, 2048, 10_000])
def test_the_shares_fit_the_limit(limit_mb: int) -> None:
    shares = memory_shares(limit_mb, held=110 * MB)
    assert 110 * MB + ENGINE_BYTES + shares.duckdb + 4 * shares.rows <= limit_mb * MB
    assert shares.settings["memory_limit"] == shares.settings["block_allocator_memory"] == f"{shares.duckdb}B"


def test_without_any_room_there_is_a_least_share() -> None:
    assert memory_shares(100, held=500 * MB).duckdb == DUCKDB_BYTES_MIN
    assert memory_shares(100, held=500 * MB).settings["threads"] == "1"


def test_a_merge_that_needs_more_sorts_on_disk(tmp_path: Path) -> None:
    columns = {"id": "string", "text": "string", "n": "long"}
    table = alluvia.connect(str(tmp_path)).create_table("t", columns, sort_by=["id"])
    query = "SELECT md5(random()::text) AS id, md5(random()::text) AS text, range AS n FROM range(350000)"
    with duckdb.connect() as connection:
        for _ in range(4):
            table.append(connection.sql(query).to_arrow_table())
    table.optimize(memory_mb=330)
    assert (len(table.files), table.count()) == (1, 1_400_000)
