"""Tables without in-commit timestamps have one clock: `history` shows the times that a time in a query means."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import alluvia

BEGAN = datetime(2024, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("attached", [False, True])
def test_history_and_times_in_queries_mean_the_same(tmp_path: Path, attached: bool) -> None:
    """Commits say other times than their files have, and two files are no later than those before them."""
    place = tmp_path / ("share" if attached else "lake") / "t"
    for version in range(5):
        write_deltalake(place, pa.table({"n": [version]}), mode="append")
    times = [BEGAN, BEGAN + timedelta(hours=2), BEGAN + timedelta(hours=1), BEGAN + timedelta(hours=1)]
    times.append(BEGAN + timedelta(hours=3))
    for version, moment in enumerate(times):
        path = place / "_delta_log" / f"{version:020d}.json"
        log = [json.loads(line) for line in path.read_text().splitlines()]
        for action in log:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = 1_600_000_000_000 + version
        path.write_text("\n".join(map(json.dumps, log)))
        os.utime(path, (moment.timestamp(), moment.timestamp()))
    lake = alluvia.connect(tmp_path / "lake")
    if attached:
        lake.attach("t", place)
    later = timedelta(milliseconds=1)
    expected = [BEGAN, times[2], times[2] + later, times[2] + 2 * later, times[4]]
    assert [entry.timestamp for entry in reversed(lake["t"].history())] == expected
    shown = lake.sql("SELECT version, timestamp FROM history('t') ORDER BY version").to_pylist()
    assert [row["timestamp"] for row in shown] == expected
    for row in shown:
        assert lake["t"].snapshot(timestamp=row["timestamp"]).version == row["version"]
        text = f"SELECT count(*) AS n FROM t TIMESTAMP AS OF '{row['timestamp'].isoformat()}'"
        assert lake.sql(text).to_pylist() == [{"n": row["version"] + 1}]
        if row["version"]:
            before = lake["t"].snapshot(timestamp=row["timestamp"] - later)
            assert before.version == row["version"] - 1
