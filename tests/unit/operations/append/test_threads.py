"""Threads of one process that share a lake, and with it each table's log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.store import MemoryStore, PutResult


@pytest.fixture
def _eager_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class ListingStore(MemoryStore):
    """Has another thread list the lake's tables after each commit is put, before its writer knows of it."""

    lake: Lake | None = None

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        result = super().put_if_absent(key, data)
        if self.lake is not None:
            thread = Thread(target=self.lake.tables)
            thread.start()
            thread.join(0.2)  # it may wait for the commit to end
        return result


def test_a_commit_stands_whoever_looks_at_the_log_meanwhile() -> None:
    """A table that was dropped and made again is looked at by its log when the tables are listed."""
    clock = ManualClock()
    store = ListingStore("m", clock)
    lake = Lake(store, clock)
    lake.create_table("t", {"k": "long"})
    lake.drop_table("t")
    table = lake.create_table("t", {"k": "long"})
    store.lake = lake
    assert [table.append([{"k": key}]).version for key in range(3)] == [3, 4, 5]
    store.lake = None
    assert sorted(table.scan().read_all()["k"].to_pylist()) == [0, 1, 2]
    assert lake.tables() == ["t"]


@pytest.mark.usefixtures("_eager_threads")
def test_changes_can_be_read_while_others_commit(lake: Lake) -> None:
    table = lake.create_table("t", {"k": "long"})
    table.append([{"k": 0}])
    done = Event()

    def read() -> int:
        rounds = 0
        while not done.is_set():
            found = table.changes(1).read_all()["k"].to_pylist()
            assert found == list(range(len(found)))
            rounds += 1
        return rounds

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for key in range(1, 60):
            table.append([{"k": key}])
        done.set()
        assert all(reader.result() > 0 for reader in readers)
    assert len(table.scan().read_all()) == 60
