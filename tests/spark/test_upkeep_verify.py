"""Verification on Spark finds what the library's finds, in the same order."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from alluvia.api.lake import Lake, Table
from alluvia_spark import upkeep
from alluvia_spark.upkeep import work
from tests import judges

MOMENT = datetime(2026, 1, 3, tzinfo=UTC)


@pytest.fixture
def events(lake: Lake) -> Table:
    """A table of events in several files, with deleted rows, a constraint, and an event that was stored twice."""
    table = lake.create_events("events", properties={"delta.constraints.known": "length(event_id) > 1"})
    for number in range(4):
        table.append([{"event_id": f"e{number * 10 + at}", "ts": MOMENT, "received_at": MOMENT} for at in range(10)])
    table.append([{"event_id": "e7", "ts": MOMENT, "received_at": MOMENT}])
    table.delete("event_id = 'e12'")
    return table


def ids_in(file: Path) -> list[str]:
    return pq.read_table(file, columns=["event_id"])["event_id"].to_pylist()


def test_spark_finds_what_the_library_finds(
    spark: SparkSession, lake: Lake, events: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "GROUP_BYTES", 1)
    root = Path(judges.uri_of(events).removeprefix("file://"))
    paths = sorted(file.path for file in events.snapshot().files)
    first, second, third = (each for each in paths if "e7" not in ids_in(root / each))
    (root / first).unlink()
    (root / second).write_bytes((root / third).read_bytes())
    damaged = bytearray((root / third).read_bytes())
    damaged[4:40] = bytes(36)
    (root / third).write_bytes(damaged)
    told: list[tuple[str, int, int]] = []
    found = upkeep.verify(spark, lake.uri, "events", progress=lambda *each: told.append(each))
    expected = events.verify(full=True)
    assert dataclasses.replace(found, orphans=expected.orphans) == expected
    kinds = {each.kind for each in found.findings}
    assert kinds >= {"data-file-missing", "data-file-unreadable", "event-ids-shared"}
    assert told[-1][0] == "files"
    assert told[-1][1] == told[-1][2]
