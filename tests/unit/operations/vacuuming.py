"""A table that vacuum goes through, and what tests ask of it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import VersionExpired

DAY = 86_400
SCHEMA = pa.schema([("x", pa.int64())])


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("t", SCHEMA, properties={"delta.checkpointInterval": "1000"})


def values(table: Table, version: int | None = None) -> list[int]:
    return sorted(table.scan(version=version).read_all()["x"].to_pylist())


def cold(table: Table) -> Table:
    return Lake(table.lake.store, table.lake.clock).table(table.name)


def readable(table: Table) -> list[int]:
    """Return the versions that read; all below must have expired, naming the lowest of them."""
    fresh = cold(table)
    newest = fresh.snapshot().version
    found, messages = [], {}
    for version in range(newest + 1):
        try:
            values(fresh, version)
            found.append(version)
        except VersionExpired as error:
            messages[version] = str(error)
    assert found == list(range(newest + 1 - len(found), newest + 1))
    assert messages == {
        version: f"version {version} of t has expired; the oldest version that can be read is {found[0]}"
        for version in range(found[0])
    }
    return found


def history(table: Table, clock: ManualClock, steps: int, seconds: float = 1) -> None:
    for number in range(steps):
        clock.advance(seconds)
        table.append([{"x": number}])
