"""Events for tables with promoted fields, their rows, and how far their files have moved."""

from __future__ import annotations

from typing import Any

import orjson

from alluvia.api.lake import Lake
from alluvia.delta.promoted_fields import TAG
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import Limits
from alluvia.query.engine import run

ARRIVAL_US = 1_700_000_000_000_000


def send(lake: Lake, events: list[dict[str, Any]], table: str = "clicks") -> None:
    body = b"\n".join(map(orjson.dumps, events))
    found = split(body, content_type=None, content_encoding=None, limits=Limits())
    answer = ingest_batch(lake.catalog, table, found.events, found.rejects, arrival_us=ARRIVAL_US)
    assert not answer.rejected


def rows(lake: Any, query: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in run(lake.catalog, query, None, parameters).read_all().to_pylist()]


def stored(lake: Lake, name: str = "clicks") -> list[str | None]:
    """Return the tag of each file with the highest promotion that it was written with."""
    return [file.tags.get(TAG) for file in lake[name].snapshot().files]
