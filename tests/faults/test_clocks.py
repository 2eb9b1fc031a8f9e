"""Machines whose clocks are wrong."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.store import MemoryStore

NOW_US = 1_700_000_000_000_000
HOUR_US = 3_600_000_000
Tables = tuple[Table, Table, ManualClock]


@pytest.fixture(params=[-5 * HOUR_US, 5 * HOUR_US])
def tables(request: pytest.FixtureRequest) -> Tables:
    """Return one table as machines with the right and with a wrong time see it, and the right clock."""
    clock = ManualClock(NOW_US)
    store = MemoryStore("clocks", clock)
    right = Lake(store, clock).create_events("events")
    wrong = Lake(store, ManualClock(NOW_US + request.param, seed=1)).table("events")
    return right, wrong, clock


def event(name: str) -> pa.Table:
    moment = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    return pa.table({"event_id": [name], "ts": moment, "event": ["open"], "received_at": moment})


def test_a_wrong_clock_takes_no_known_event_for_new(tables: Tables) -> None:
    right, wrong, _ = tables
    assert wrong.ingest(event("first")).appended == 1
    assert right.ingest(event("second")).appended == 1
    right.snapshot()
    wrong.snapshot()
    assert wrong.ingest(event("second")).duplicates == 1
    assert right.ingest(event("second")).duplicates == 1


def test_a_wrong_clock_that_only_looks_on_forgets_nothing(tables: Tables) -> None:
    """The window is measured by the log's time: that of the newest commit."""
    right, wrong, _ = tables
    for name in ("first", "second", "third"):
        assert right.ingest(event(name)).appended == 1
        wrong.snapshot()
        assert wrong.ingest(event(name)).duplicates == 1
    assert wrong.ingest(event("first")).duplicates == 1


def test_versions_keep_their_order_in_time(tables: Tables) -> None:
    right, wrong, clock = tables
    for number in range(6):
        (wrong if number % 2 else right).ingest(event(f"e{number}"))
        clock.advance(1)
    times = [entry.timestamp for entry in right.history()]
    assert times == sorted(set(times), reverse=True)
    assert len(times) == 7
