"""Rollups that processes compute, with many groups."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import alluvia


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_million_groups_are_recomputed_in_one_refresh(tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path))
    source = lake.create_table("events", {"k": "long", "n": "long"})
    keys = pa.array(range(2_000_000), pa.int64())
    source.append(pa.table({"k": keys, "n": pa.repeat(1, len(keys))}))
    rollup = lake.create_rollup("distinct_n", "SELECT k, count(DISTINCT n) AS d FROM events GROUP BY k")
    source.append(pa.table({"k": keys.slice(0, 1_000_000), "n": pa.repeat(2, 1_000_000)}))
    assert rollup.refresh().mode == "recomputed"
    found = lake.sql("SELECT d, count(*) AS groups FROM distinct_n GROUP BY d ORDER BY d").to_pylist()
    assert found == [{"d": 1, "groups": 1_000_000}, {"d": 2, "groups": 1_000_000}]
