"""Runs of an operation whose Nth store call fails, and what must hold after each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pyarrow as pa

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import CommitUnknown, Unavailable
from alluvia.store import MemoryStore
from tests.faults.store import Died, FailingStore

CALLS_MAX = 200
SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("amount", pa.int64())])
Rows = list[tuple[str, int]]


def events(*numbers: int) -> pa.Table:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return pa.table(
        {
            "event_id": [f"e{number}" for number in numbers],
            "ts": pa.array([moment] * len(numbers), pa.timestamp("us", "UTC")),
            "event": ["open"] * len(numbers),
            "received_at": pa.array([moment] * len(numbers), pa.timestamp("us", "UTC")),
        }
    )


START: Rows = [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
KINDS: dict[str, dict[str, str]] = {
    "copies": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "second checkpoints": {"delta.checkpointPolicy": "v2"},
    "change feed": {"delta.enableChangeDataFeed": "true"},
    "any writer": {"alluvia.writers": "any"},
}


def made(clock: ManualClock, kind: str = "copies") -> MemoryStore:
    """Return a store with a table of five versions: `a` to `d` in a file each, one of them written twice."""
    store = MemoryStore("faults", clock)
    lake = Lake(store, clock)
    properties = {"delta.logRetentionDuration": "interval 1 day", **KINDS[kind]}
    table = lake.create_table("t", SCHEMA, sort_by=["id"], properties=properties)
    for make in (
        lambda: table.append([{"id": "a", "amount": 1}]),
        lambda: table.append([{"id": "b", "amount": 1}]),
        lambda: table.update({"amount": "2"}, where="id = 'b'"),
        lambda: table.append([{"id": "c", "amount": 3}]),
    ):
        clock.advance(1)
        make()
    clock.advance(1)
    table.append([{"id": "d", "amount": 4}])
    return store


def content(lake: Lake) -> Rows:
    rows = lake.table("t").scan(columns=["id", "amount"]).read_all().to_pylist()
    return sorted((row["id"], row["amount"]) for row in rows)


def attempts(mode: str, make: Callable[[ManualClock], MemoryStore]) -> Iterator[tuple[FailingStore, ManualClock]]:
    """Yield a fresh copy of one store, whose call or write 1, 2, … fails, until one run has completed untouched."""
    template_clock = ManualClock()
    template = make(template_clock)
    for at in range(1, CALLS_MAX):
        clock = ManualClock(template_clock.now_us(), seed=at)
        store = FailingStore(copied(template, clock), mode, at)
        yield store, clock
        if not store.fired:
            return
    raise AssertionError("the operation never completes")


def copied(store: MemoryStore, clock: ManualClock) -> MemoryStore:
    """Return a store with the same objects, of the same times."""
    found = MemoryStore("faults", clock)
    found._objects, found._keys = dict(store._objects), list(store._keys)
    return found


def tried(act: Callable[..., object], *arguments: object) -> bool:
    """Whether an operation says that it is done. It may say that the store failed it, or die; nothing else."""
    try:
        act(*arguments)
    except (Unavailable, CommitUnknown, Died):
        return False
    return True


def check_log(lake: Lake, name: str) -> None:
    """Versions are gapless, and each was committed by one transaction."""
    snapshot = lake.table(name).snapshot()
    entries = [lake.table(name)._handle.log.read_commit(at) for at in range(snapshot.version + 1)]
    ids = [entry.info["txnId"] for entry in entries if entry is not None]
    times = [entry.timestamp_ms for entry in entries if entry is not None]
    assert len(ids) == len(set(ids)) == len(entries)
    assert times == sorted(times)
    if snapshot.properties.get("delta.enableInCommitTimestamps") == "true":
        assert len(times) == len(set(times))
