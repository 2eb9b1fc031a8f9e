"""A table t in a store whose answers come after a long sleep."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.changes import Changes
from alluvia.store import MemoryStore, Store, Wrapper

T = TypeVar("T")
DAY = 24 * 3600
SCHEMA = pa.schema([pa.field("x", pa.int64())])
PROPERTIES = {
    "delta.logRetentionDuration": "interval 1 day",
    "delta.deletedFileRetentionDuration": "interval 1 hour",
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    store = MemoryStore("awake", clock)
    Lake(store, clock).create_table("t", SCHEMA, properties=PROPERTIES).append([{"x": 1}])
    return store


class SleepingStore(Wrapper):
    """A store whose user falls asleep once, before or after a request that a test names."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.before: dict[str, Callable[[], None]] = {}

    def _sleep(self, call: str) -> None:
        meanwhile = self.before.pop(call, None)
        if meanwhile is not None:
            meanwhile()

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        self._sleep(f"{kind} {key}")
        if kind in ("put_if_absent", "list"):
            self._sleep("commit" if kind == "put_if_absent" else kind)
        if kind == "put_if_absent" and key.startswith("t/_delta_log/"):
            self._sleep("lake's commit")
        if kind == "put_new" and ".checkpoint." in key:
            self._sleep("checkpoint")
        result = send()
        if kind in ("get", "get_file"):
            self._sleep(f"after {key}")
        elif kind == "put_if_absent":
            self._sleep("after commit")
        elif kind == "copy":
            self._sleep("copy")
        elif kind == "put_new_file" or (kind == "put_new" and key.endswith(".parquet")):
            self._sleep("data file")
        return result


def changes(table: Table, value: int) -> Changes:
    """Write a data file and return the commit that names it."""
    adds = table._handle.writer(table.snapshot()).write(pa.table({"x": [value]}, schema=SCHEMA))
    return Changes("WRITE", {"mode": "Append"}, adds=adds)


def values(store: MemoryStore, clock: ManualClock) -> list[int]:
    found: list[int] = Lake(store, clock).table("t").scan().read_all()["x"].to_pylist()
    return sorted(found)
