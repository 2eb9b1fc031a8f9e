from __future__ import annotations

import pytest

from alluvia.clock import ManualClock
from alluvia.lake import Lake
from alluvia.store import CountingStore, MemoryStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> CountingStore:
    return CountingStore(MemoryStore("m", clock))


@pytest.fixture
def lake(store: CountingStore, clock: ManualClock) -> Lake:
    return Lake(store, clock)


@pytest.fixture
def other(store: CountingStore, clock: ManualClock) -> Lake:
    """The same lake in another process."""
    return Lake(store, clock)
