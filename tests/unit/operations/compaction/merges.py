"""Tables of small files."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from alluvia.api.lake import Lake, Table
from alluvia.delta.log.actions import AddFile

NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)


def add(size: int, name: str = "", partition: str = "p", tag: str = "2024-01-01") -> AddFile:
    tags = {"alluvia.partition": json.dumps({"day(ts)": tag})}
    return AddFile(name or f"{size}", {"c": partition}, size, 1, data_change=True, tags=tags)


def table_of(lake: Lake, **options: Any) -> Table:
    schema = pa.schema([("x", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("c", pa.string())])
    return lake.create_table("t", schema, **options)


def noise(rows: int, seed: int) -> list[dict[str, Any]]:
    """Rows that cannot be compressed, of 40 bytes each."""
    chance = random.Random(seed)
    return [{"x": chance.getrandbits(62), "c": f"{chance.getrandbits(128):032x}"} for _ in range(rows)]


def days_of(lake: Lake) -> Table:
    table = table_of(lake, partition_by=["c", "day(ts)"])
    for number in range(3):
        for c in ("de", "fr"):
            table.append([{"x": number, "ts": NOON + timedelta(days=day), "c": c} for day in range(2)])
    return table
