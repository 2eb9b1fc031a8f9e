"""The Nth store call of an expiry, a vacuum or a tag fails."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.store import MemoryStore
from tests.faults.attempts import START, attempts, check_log, content, events, made, tried
from tests.faults.store import MODES

DAY = 24 * 3600


@pytest.mark.parametrize("mode", MODES)
def test_an_expiry_whose_nth_call_fails(mode: str) -> None:
    def old(clock: ManualClock) -> MemoryStore:
        store = MemoryStore("faults", clock)
        table = Lake(store, clock).create_events("events", properties={"alluvia.ttl": "1 day"})
        table.ingest(events(1, 2))
        clock.advance(datetime(2026, 2, 1, tzinfo=UTC).timestamp() - clock.now_us() / 1e6)
        now = pa.array([clock.now_us()], pa.int64()).cast(pa.timestamp("us", "UTC"))
        table.ingest(events(3).set_column(1, "ts", now))
        return store

    for store, clock in attempts(mode, old):
        finished = tried(Lake(store, clock).table("events").expire)
        again = Lake(store.inner, clock).table("events")
        assert again.count() in ((1,) if finished else (1, 3)), store.at
        again.expire()
        assert again.to_arrow(["event_id"])["event_id"].to_pylist() == ["e3"], store.at
        check_log(Lake(store.inner, clock), "events")
        assert [entry.operation for entry in again.history()].count("EXPIRE") == 1, store.at


@pytest.mark.parametrize("mode", MODES)
def test_vacuum_of_an_old_log_whose_nth_call_fails(mode: str) -> None:
    def old(clock: ManualClock) -> MemoryStore:
        store = made(clock)
        table = Lake(store, clock).table("t")
        table.optimize(full=True)
        table.checkpoint()
        clock.advance(40 * DAY)
        table.append([{"id": "e", "amount": 5}])
        return store

    rows = [*START, ("e", 5)]
    for store, clock in attempts(mode, old):
        tried(Lake(store, clock).table("t").vacuum)
        assert content(Lake(store.inner, clock)) == rows, store.at
        report = Lake(store.inner, clock).table("t").vacuum()
        assert content(Lake(store.inner, clock)) == rows, store.at
        left = [info.key for info in store.inner.list("t/") if info.key.endswith(".parquet")]
        data = [key for key in left if "_delta_log" not in key]
        assert len(data) == 2, store.at
        assert report.oldest_version >= 6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("of_lake", [False, True], ids=["table", "lake"])
def test_a_tag_whose_nth_call_fails(mode: str, of_lake: bool) -> None:
    """A tag that is told of reads as it was, whatever is vacuumed; one that is not is whole or not there."""

    def old(clock: ManualClock) -> MemoryStore:
        store = made(clock)
        clock.advance(1)
        return store

    for store, clock in attempts(mode, old):
        lake = Lake(store, clock)
        finished = tried((lake if of_lake else lake.table("t")).tag, "x")
        again = Lake(store.inner, clock)
        clock.advance(1)
        again.table("t").delete("true")
        again.table("t").vacuum(timedelta(0))
        tags = again.tags(tables=True)
        assert len(tags) == 1 if finished else len(tags) <= 1, store.at
        for tag in tags:
            found = Lake(store.inner, clock).table("t").to_arrow(["id", "amount"], tag=tag.name).to_pylist()
            assert sorted((row["id"], row["amount"]) for row in found) == START, store.at
        (again if of_lake else again.table("t")).tag("x", replace=True)
        assert again.table("t").count(tag="x") == 0, store.at


@pytest.mark.parametrize("mode", MODES)
def test_a_vacuum_beside_tags_whose_nth_call_fails(mode: str) -> None:
    def tagged(clock: ManualClock) -> MemoryStore:
        store = made(clock)
        lake = Lake(store, clock)
        lake.table("t").tag("mine")
        clock.advance(1)
        lake.tag("all")
        clock.advance(1)
        lake.table("t").append([{"id": "e", "amount": 5}])
        lake.table("t").optimize(full=True)
        lake.table("t").checkpoint()
        clock.advance(40 * DAY)
        lake.table("t").append([{"id": "f", "amount": 6}])
        return store

    for store, clock in attempts(mode, tagged):
        tried(Lake(store, clock).table("t").vacuum)
        for _ in range(2):
            table = Lake(store.inner, clock).table("t")
            for name in ("mine", "all"):
                rows = table.to_arrow(["id", "amount"], tag=name).to_pylist()
                assert sorted((row["id"], row["amount"]) for row in rows) == START, store.at
            table.vacuum()
        lake = Lake(store.inner, clock)
        lake.drop_tag("all")
        lake.table("t").drop_tag("mine")
        lake.table("t").vacuum()
        left = [
            info.key for info in store.inner.list("") if info.key.endswith(".parquet") and "_delta_log" not in info.key
        ]
        assert len(left) == 2, store.at
