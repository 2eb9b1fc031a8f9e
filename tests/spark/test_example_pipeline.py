"""The example of `events/pipelines` on Spark: the rows of its tables are those that DuckDB gives without Spark."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import alluvia
from alluvia.api.lake import Lake
from alluvia_spark import pipelines

EVENTS = Path(__file__).parents[2] / "events"
COLUMNS = {
    **dict.fromkeys(("ip", "method", "path", "referrer", "agent"), "string"),
    **dict.fromkeys(("status", "bytes"), "long"),
}
TABLES = {
    "silver.pages": 2228,
    "silver.sessions": 1322,
    "silver.users": 15,
    "silver.repositories": 25,
    "gold.daily_traffic": 4,
    "gold.funnel": 4,
    "gold.retention": 10,
}
"""The tables, and how many rows each has: `tests/docs/test_example_pipeline.py` holds their values to plain Python."""


def lines(name: str) -> list[Any]:
    return list(map(json.loads, gzip.decompress((EVENTS / "data" / name).read_bytes()).splitlines()))


def deliver(lake: Lake, second: bool) -> None:
    """Ingest what arrives on the first day, or on the second, late and repeated events too."""
    requests, webhooks = lines("access_log.ndjson.gz"), lines("github_webhooks.ndjson.gz")
    first = [each for number, each in enumerate(requests, 1) if number <= 4600 and number % 50]
    rest = [each for number, each in enumerate(requests, 1) if number > 4500 or not number % 50]
    lake["bronze.requests"].ingest(rest if second else first)
    lake["bronze.webhooks"].ingest(webhooks if second else webhooks[:200])


def test_the_example_gives_the_same_rows_on_both_engines(spark: SparkSession, tmp_path: Path) -> None:
    lakes = [alluvia.connect(str(tmp_path / engine)) for engine in ("spark", "duckdb")]
    for lake in lakes:
        for schema in ("bronze", "silver", "gold"):
            lake.create_schema(schema)
        lake.create_events("bronze.requests", COLUMNS)
        lake.create_events("bronze.webhooks")
    declared = EVENTS / "pipelines"
    for second in (False, True):
        for lake in lakes:
            deliver(lake, second)
        on_spark = pipelines.run(spark, str(tmp_path / "spark"), str(declared))
        without = lakes[1].pipeline(str(declared)).run()
        assert [(each.table, each.mode, each.error) for each in on_spark] == [
            (each.table, each.mode, each.error) for each in without
        ]
    for table, count in TABLES.items():
        found, expected = (lake.sql(f"FROM {table}").to_pylist() for lake in lakes)
        assert len(found) == count
        assert Counter(map(repr, found)) == Counter(map(repr, expected)), table
