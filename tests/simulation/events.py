"""What clients send: each event's content follows from its number."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa

from tests.simulation.checker import Event
from tests.simulation.faults import HOUR_US
from tests.simulation.world import START_US

KINDS = ("open", "close", "click")
CLAIMS = ("yes", "no")
"""Kinds of disputed events, which nobody deletes."""


def value_of(event: Event, claim: str | None = None) -> dict[str, object]:
    """Return an event as it is sent; `claim` is the kind of a disputed one."""
    kind = 5 if event.reject else claim or kind_of(event)
    return {"event_id": event.id, "ts": time_of(event).isoformat(), "event": kind}


def time_of(event: Event) -> datetime:
    """Return when it happened."""
    at_us = START_US + 7_000_000 * int(event.id[1:]) + (20 * HOUR_US if int(event.id[1:]) % 7 == 0 else 0)
    return datetime.fromtimestamp(at_us / 1e6, UTC)


def kind_of(event: Event) -> str:
    """Return what happened."""
    return KINDS[int(event.id[1:]) % len(KINDS)]


def event_rows(batch: Sequence[Event], now_us: int, kinds: list[str] | None = None) -> pa.Table:
    """Return events as rows that arrive now."""
    received = datetime.fromtimestamp(now_us / 1e6, UTC)
    time = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "event_id": [event.id for event in batch],
            "ts": pa.array([time_of(event) for event in batch], time),
            "event": kinds or [kind_of(event) for event in batch],
            "received_at": pa.array([received] * len(batch), time),
        }
    )
