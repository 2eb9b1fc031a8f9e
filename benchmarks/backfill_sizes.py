"""What a driver needs for very many files: `python -m benchmarks.backfill_sizes FOLDER` prints it as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

import alluvia
from alluvia_spark import backfill
from alluvia_spark.backfill_job.committing import Committed, commit
from alluvia_spark.backfill_job.execute import SPLIT_BYTES_MAX
from alluvia_spark.session import session
from alluvia_spark.sources.manifest import file_page, open_manifest, write_manifest
from alluvia_spark.sources.places import Found
from benchmarks.backfill_child import peak_bytes
from benchmarks.backfills import COLUMNS

SOURCE_FILES = 1_000_000
DATA_FILES = 10_000
PAGE_FILES = 1000


def main(folder: Path) -> None:
    """Plan a job of a million source files, and run one that writes ten thousand data files."""
    with session(cores=2, driver_memory_mb=2048) as spark:
        spark.range(10).count()
        found = {"source": _source(spark, folder), "job": _job(spark, folder)}
        sys.stdout.write(json.dumps(found))


def _source(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Plan the tasks of a million files as a job does it, and give Spark so many tasks."""
    store = alluvia.connect(str(folder / "lake")).store
    python, java = _reset_peak(), _live_bytes(spark)
    write_manifest(store, "manifest", _pages())
    tasks = len(open_manifest(store, "manifest").splits(SPLIT_BYTES_MAX))
    kept = spark.range(0, tasks, 1, tasks).persist()
    assert kept.count() == tasks
    return {
        "files": SOURCE_FILES,
        "tasks": tasks,
        "python_bytes": peak_bytes(os.getpid()) - python,
        "java_bytes": _live_bytes(spark) - java,
    }


def _pages() -> Iterator[pa.RecordBatch]:
    for first in range(0, SOURCE_FILES, PAGE_FILES):
        keys = [f"archive/2026/{at // 1000:04}/events-{at:09}.ndjson.gz" for at in range(first, first + PAGE_FILES)]
        tags = [f"{at:032x}" for at in range(first, first + PAGE_FILES)]
        found = Found(["s3://bucket/"] * PAGE_FILES, keys, [100_000] * PAGE_FILES, tags)
        yield file_page(found, [False] * PAGE_FILES)


def _job(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Run a job whose every event is in a partition of its own."""
    lake = folder / "lake"
    alluvia.connect(str(lake)).create_events("events", COLUMNS, partition_by=["user"])
    source = folder / "users.ndjson"
    moment = "2026-01-01T00:00:00Z"
    source.write_bytes(
        b"".join(
            orjson.dumps({"event_id": f"{at:024x}", "ts": moment, "event": "view", "user": f"u{at}"}) + b"\n"
            for at in range(DATA_FILES)
        )
    )
    seconds: list[float] = []

    def timed(*arguments: Any) -> Committed:
        began = time.perf_counter()
        found = commit(*arguments)
        seconds.append(time.perf_counter() - began)
        return found

    python, java, began = _reset_peak(), _live_bytes(spark), time.perf_counter()
    with patch("alluvia_spark.backfill.commit", timed):
        report = backfill.run(str(lake), "events", str(source), spark=spark)
    assert report.files == DATA_FILES
    return {
        "files": DATA_FILES,
        "seconds": time.perf_counter() - began,
        "commit_seconds": seconds[0],
        "python_bytes": peak_bytes(os.getpid()) - python,
        "java_bytes": _live_bytes(spark) - java,
    }


def _reset_peak() -> int:
    """Return how much memory this process has now; its peak is counted from here on."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes(os.getpid())


def _live_bytes(spark: SparkSession) -> int:
    """Return what the heap of Spark's Java holds after a collection."""
    jvm: Any = spark.sparkContext._jvm
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    return int(runtime.totalMemory()) - int(runtime.freeMemory())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
