"""Lakes for unit tests: in memory with a clock that stands still, and on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock, SystemClock
from alluvia.store import CountingStore, DirectoryStore, MemoryStore
from tests.unit.operations.converting import Write


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


@pytest.fixture
def disk(tmp_path: Path) -> Lake:
    return Lake(CountingStore(DirectoryStore(tmp_path / "lake")), SystemClock())


@pytest.fixture
def write(disk: Lake, tmp_path: Path) -> Write:
    """Write a Parquet file below the directory `t` of the lake."""

    def put(path: str, rows: pa.Table | Mapping[str, Any], **options: Any) -> None:
        target = tmp_path / "lake" / "t" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows if isinstance(rows, pa.Table) else pa.table(dict(rows)), target, **options)

    return put
