"""People who are to be erased."""

from __future__ import annotations

from typing import Any

from alluvia.api.lake import Lake
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent

VICTIM = "mallory@example.org"
WHERE = f"user_id = '{VICTIM}'"


def post(lake: Lake, *events: dict[str, Any], table: str = "events") -> None:
    sent = [RawEvent(at, {"event": "view", **event}) for at, event in enumerate(events)]
    ingest_batch(lake.catalog, table, sent, arrival_us=lake.clock.now_us(), create=True)
