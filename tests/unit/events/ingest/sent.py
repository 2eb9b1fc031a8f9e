"""Events sent to a lake, and the rows that they become."""

from __future__ import annotations

from itertools import count
from typing import Any

import alluvia
from alluvia.clock import ManualClock
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import IngestOutcome, Limits

NUMBERS = count()
ARRIVAL_US = 1_700_000_000_000_000


def another(lake: alluvia.Lake) -> alluvia.Lake:
    """The same lake as another process has it."""
    return alluvia.connect(lake.uri, clock=ManualClock(ARRIVAL_US, next(NUMBERS)))


def send(
    lake: alluvia.Lake, body: str, *, key: str | None = None, create: bool = True, table: str = "clicks"
) -> IngestOutcome:
    found = split(body.encode(), content_type=None, content_encoding=None, limits=Limits())
    return ingest_batch(
        lake.catalog, table, found.events, found.rejects, arrival_us=ARRIVAL_US, idempotency_key=key, create=create
    )


def rows(lake: alluvia.Lake, table: str = "clicks") -> list[dict[str, Any]]:
    return sorted(lake.table(table).scan().read_all().to_pylist(), key=lambda row: str(row["event_id"]))


def ids(lake: alluvia.Lake, table: str = "clicks") -> list[str]:
    return [row["event_id"] for row in rows(lake, table)]
