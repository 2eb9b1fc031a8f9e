"""A lake of derived tables for tests of the pipeline function, and the queue that may run them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.serverless import sqs_sender, warm_lake
from alluvia.store import MemoryStore

SILVER = "CREATE TABLE silver SCHEDULE ON CHANGE AS SELECT id, who, n FROM events WHERE n >= 0"
GOLD = "CREATE TABLE gold SCHEDULE ON CHANGE AS SELECT who, sum(n) AS s FROM silver GROUP BY who"
BAD = "CREATE TABLE bad SCHEDULE ON CHANGE AS SELECT error('broken')::INT AS x FROM events WHERE n > 1"
MINUTE = 60
TABLES = ("events", "silver", "gold")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lake(clock: ManualClock) -> Iterator[Lake]:
    lake = Lake(MemoryStore("lake", clock), clock)
    lake.create_table("events", {"id": "long", "who": "string", "n": "long"}).append([{"id": 1, "who": "a", "n": 1}])
    with warm_lake.using(lake):
        yield lake


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    sqs_sender.sqs.cache_clear()
    with mock_aws():
        url = boto3.client("sqs").create_queue(QueueName="steps.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        monkeypatch.setenv("ALLUVIA_TABLES_QUEUE_URL", url)
        yield url
    sqs_sender.sqs.cache_clear()


def declare(lake: Lake, folder: Path, *texts: str) -> None:
    """Run declarations once, as a person does from files, which no function sees."""
    place = folder / "pipelines"
    place.mkdir(exist_ok=True)
    (place / "all.sql").write_text(";\n".join(texts))
    assert [each.error for each in lake.pipeline(place).run()] == [None] * len(texts)
    for file in place.iterdir():
        file.unlink()


def append(lake: Lake, *rows: tuple[int, str, int]) -> None:
    lake["events"].append([dict(zip(("id", "who", "n"), row, strict=True)) for row in rows])


def rows(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(f"FROM {name} ORDER BY ALL").to_pylist()]


def ran(answer: dict[str, Any]) -> dict[str, Any]:
    return {each["table"]: each.get("mode") for each in answer["tables"]}
