"""Tables whose checkpoints have small sidecars."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.changes import Changes
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.checkpoints import v2 as checkpoint_v2
from alluvia.store import CountingStore, MemoryStore, Store

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])
START = datetime(2024, 5, 6, tzinfo=UTC)
START_MS = int(START.timestamp()) * 1000
DAY_MS = 24 * 60 * 60 * 1000
SIDECARS = "t/_delta_log/_sidecars/"
V2 = {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "1000"}


@pytest.fixture(autouse=True)
def small_sidecars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_v2, "SIDECAR_ROWS", 8)


def new_table(properties: dict[str, str] | None = None) -> tuple[ManualClock, CountingStore, Table]:
    clock = ManualClock(int(START.timestamp()) * 1_000_000)
    counting = CountingStore(MemoryStore("m", clock))
    table = Lake(counting, clock).create_table("t", SCHEMA, properties={**V2, **(properties or {})})
    return clock, counting, table


def row(number: int) -> dict[str, Any]:
    return {"id": number, "s": f"name {number:04d}", "ts": START + timedelta(hours=number)}


def add(number: int) -> AddFile:
    """Return a file that holds the row of a number, by its statistics."""
    bounds = {"id": number, "s": f"name {number:04d}", "ts": row(number)["ts"].isoformat()}
    stats = {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": dict.fromkeys(bounds, 0)}
    return AddFile(f"f{number:04d}", {}, 10, START_MS, data_change=True, stats=orjson.dumps(stats).decode())


def fill(table: Table, numbers: range) -> None:
    now_ms = table.lake.clock.now_ms()
    table.commit_files([replace(add(number), modification_time=now_ms) for number in numbers])


def replace_file(table: Table, number: int, new: int) -> None:
    snapshot = table.snapshot()
    old = snapshot.files.get(f"f{number:04d}")
    assert old is not None
    changes = Changes("DELETE", adds=[add(new)], removes=[old.removed(0, data_change=True)])
    table._handle.transaction(snapshot).commit(changes)


def cold(store: Store, table: Table) -> Table:
    return Lake(store, table.lake.clock).table("t")


def paths(table: Table) -> list[str]:
    return sorted(file.path for file in table.snapshot().files)


def written(store: CountingStore) -> list[str]:
    return [
        re.sub(r"[0-9a-f-]{36}", "*", key.rpartition("_delta_log/")[2]) for kind, key in store.keys if kind == "put"
    ]
