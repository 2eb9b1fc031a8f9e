"""Tables to drop, and events for them."""

from __future__ import annotations

from typing import Any

from alluvia.api.lake import Lake, Table
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent, Reject

DAY_SECONDS = 24 * 60 * 60


def numbers(table: Table, **at: Any) -> list[int]:
    return sorted(table.scan(["x"], **at).read_all()["x"].to_pylist())


def filled(lake: Lake, name: str = "t", **properties: str) -> Table:
    """A table with two commits, versions 1 and 2."""
    table = lake.create_table(name, {"x": "long"}, properties=properties)
    table.append([{"x": 1}])
    table.append([{"x": 2}])
    return table


def event(event_id: str) -> RawEvent:
    return RawEvent(0, {"event_id": event_id, "event": "e", "ts": 1_700_000_000})


def send(lake: Lake, *event_ids: str, create: bool = False) -> tuple[int, int]:
    """Ingest events; returns accepted and duplicates."""
    done = ingest_batch(lake.catalog, "t", [event(each) for each in event_ids], arrival_us=1, create=create)
    return done.accepted, done.duplicates


def reject(lake: Lake, raw: bytes) -> None:
    ingest_batch(lake.catalog, "t", [], [Reject(0, "broken", raw, None)], arrival_us=1)
