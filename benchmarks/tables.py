"""Tables for the benchmarks, made fast: logs of many files, whose data files are not there where nobody reads them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path

import orjson
import pyarrow as pa

import alluvia
from alluvia.api.lake import Table
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.commit import encode_commit
from alluvia.delta.log.paths import commit_name

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("name", pa.string()),
        ("value", pa.float64()),
        ("day", pa.string()),
    ]
)
ROWS = 1000
"""Rows that each file is said to hold."""
FILES_A_DAY = 1000
FIRST_DAY = date(2024, 1, 1)
MADE_MS = time.time_ns() // 1_000_000
"""When the files were made: old ones are not committed."""
OPEN = {"alluvia.writers": "any", "delta.checkpointInterval": "1000000"}
"""Properties under which `deltalake` may write too, and writes no checkpoint of its own accord."""


def files(start: int, end: int) -> Iterator[AddFile]:
    """Yield files with statistics, partitioned by day: number n holds the ids from 1000 n on."""
    for number in range(start, end):
        day = str(FIRST_DAY + timedelta(days=number // FILES_A_DAY))
        first = {"id": number * ROWS, "ts": f"{day}T00:00:00.000Z", "name": f"name {number:06d}", "value": number / 2}
        last = {
            "id": number * ROWS + ROWS - 1,
            "ts": f"{day}T23:59:59.000Z",
            "name": f"name {number + 1:06d}",
            "value": number / 2 + 1,
        }
        nulls = dict.fromkeys(first, 0)
        stats = {"numRecords": ROWS, "minValues": first, "maxValues": last, "nullCount": nulls}
        path = f"day={day}/part-{uuid.uuid5(uuid.NAMESPACE_OID, str(number))}.parquet"
        size, modified_ms = 120_000 + number % 1000, MADE_MS + number
        yield AddFile(path, {"day": day}, size, modified_ms, data_change=True, stats=orjson.dumps(stats).decode())


def row(number: int) -> pa.Table:
    """Return one row, which is file number `number`'s first."""
    day = str(FIRST_DAY + timedelta(days=number // FILES_A_DAY))
    return pa.table({"id": pa.array([number * ROWS], pa.int64()), "day": pa.array([day])})


def table_of(
    lake: alluvia.Lake, name: str, count: int, a_commit: int = 1000, properties: Mapping[str, str] | None = None
) -> Table:
    """Create a table of so many files, committed so many at a time."""
    table = lake.create_table(name, SCHEMA, partition_by=["day"], properties={**OPEN, **(properties or {})})
    for start in range(0, count, a_commit):
        table.commit_files(list(files(start, min(start + a_commit, count))))
    return table


def log_of_commits(folder: Path, commits: int) -> None:
    """Write a log of one file a commit, as appends make it, without a checkpoint."""
    alluvia.connect(str(folder.parent)).create_table(folder.name, SCHEMA, partition_by=["day"], properties=OPEN)
    for version, file in enumerate(files(0, commits - 1), 1):
        info = {
            "timestamp": file.modification_time,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append"},
            "readVersion": version - 1,
            "isBlindAppend": True,
            "txnId": str(uuid.uuid5(uuid.NAMESPACE_OID, f"commit {version}")),
        }
        (folder / commit_name(version)).write_bytes(encode_commit(info, [file]))
