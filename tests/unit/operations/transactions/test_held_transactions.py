"""A tag, a clone and a restore where a transaction has happened, and its dead process has not carried it out."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.store import MemoryStore
from tests.transactions import APPLY_OF_A, APPLY_OF_B, SCHEMA, again, stopped

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def an_event(lake: Lake, event_id: str) -> pa.Table:
    schema = lake.table("a").snapshot().schema
    return pa.Table.from_pylist([{"event_id": event_id, "ts": NOON, "received_at": NOON, "event": "e"}], schema)


def event_ids(lake: Lake, name: str = "a") -> list[str]:
    return sorted(again(lake).table(name).to_arrow(columns=["event_id"])["event_id"].to_pylist())


def half_done(before: int) -> tuple[Lake, ManualClock]:
    """Return a lake whose last transaction has happened, and is not in both logs, since its process has died."""
    clock = ManualClock()
    lake = Lake(MemoryStore("m", clock), clock)
    lake.create_events("a").ingest(an_event(lake, "first"))
    lake.create_table("b", SCHEMA).append([{"id": "x", "amount": 1}])

    def act(dies: Lake) -> None:
        with dies.transaction(("a", "b")) as tx:
            tx.table("a").ingest(an_event(lake, "second"))
            tx.table("b").append([{"id": "y", "amount": 2}])

    stopped(lake, before, act)
    clock.advance(5)
    return again(lake), clock


@pytest.mark.parametrize("of_the_lake", [False, True])
@pytest.mark.parametrize("before", [APPLY_OF_A, APPLY_OF_B])
def test_events_of_a_transaction_stay_known_where_a_tag_held_it_before_the_log_did(
    before: int, of_the_lake: bool
) -> None:
    lake, clock = half_done(before)
    lake.tag("t")
    clock.advance(5)
    for event_id in ("second", "third"):
        again(lake).table("a").ingest(an_event(lake, event_id))
    restored = again(lake)
    _ = restored.restore(tag="t") if of_the_lake else restored.table("a").restore(tag="t")
    assert event_ids(lake) == ["first", "second"]
    stored = [
        again(lake).table("a").ingest(an_event(lake, event_id)).appended for event_id in ("first", "second", "third")
    ]
    assert stored == [0, 0, 1]
    assert event_ids(lake) == ["first", "second", "third"]


def test_a_clone_and_a_tag_of_the_newest_version_have_what_has_happened() -> None:
    lake, _ = half_done(APPLY_OF_A)
    assert event_ids(lake) == ["first", "second"]
    again(lake).clone("a", "copy")
    assert event_ids(lake, "copy") == ["first", "second"]
    lake, _ = half_done(APPLY_OF_A)
    again(lake).table("a").tag("t")
    assert sorted(again(lake).table("a").to_arrow(tag="t")["event_id"].to_pylist()) == ["first", "second"]
