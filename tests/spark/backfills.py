"""Events, files of them that a backfill loads, and the rows of its table."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from alluvia.api.lake import Lake, Table
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import Limits
from alluvia_spark import backfill
from alluvia_spark.backfill_job.job import Report

COLUMNS = pa.schema([("ip", pa.string()), ("status", pa.int64()), ("bytes", pa.int64())])
NDJSON = "application/x-ndjson"
BROKEN = [
    b"{broken",
    b'{"event_id":"r1","ts":"2015-05-17T10:00:00Z","status":"abc"}',
    b"[1]",
    b'{"event_id":"r2","event":5}',
]


def write(path: Path, lines: Sequence[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def event_of(number: int, *, day: int = 1, event_id: str | None = None, **fields: object) -> bytes:
    body = {
        "event_id": event_id or f"e{number}",
        "ts": f"2026-01-{day:02}T00:00:00Z",
        "event": "e",
        "n": number,
        **fields,
    }
    return orjson.dumps(body)


def rows_of(table: Table, *without: str) -> list[dict[str, Any]]:
    rows = table.scan().read_all()
    return sorted(
        rows.drop_columns(list(without)).to_pylist(), key=lambda row: (str(row["event_id"]), str(row.get("source")))
    )


def numbers_of(table: Table) -> list[int]:
    return sorted(orjson.loads(text)["n"] for text in table.scan(["properties"]).read_all()["properties"].to_pylist())


def rejects_of(lake: Lake) -> list[tuple[str, bytes]]:
    rows = lake.table("requests/_rejects").scan(["reason", "raw"]).read_all().to_pylist()
    return sorted((row["reason"], row["raw"]) for row in rows)


def ingest(lake: Lake, *lines: bytes) -> tuple[int, int, int]:
    body = split(b"\n".join([*lines, b""]), content_type=NDJSON, content_encoding=None, limits=Limits())
    answer = ingest_batch(lake.catalog, "requests", body.events, body.rejects, arrival_us=1)
    return answer.stored, answer.duplicates, answer.conflicting


@pytest.fixture
def events(lake: Lake) -> Table:
    return lake.create_events("requests", COLUMNS)


@pytest.fixture
def fill(spark: SparkSession, lake: Lake) -> Callable[..., Report]:
    return filler(spark, lake)


def filler(spark: SparkSession, lake: Lake) -> Callable[..., Report]:
    """Run a backfill into the lake's table `requests`."""

    def run(source: Path | str, job_id: str = "job", **options: Any) -> Report:
        return backfill.run(lake.uri, "requests", str(source), job_id, spark=spark, **options)

    return run
