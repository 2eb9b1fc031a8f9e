"""A table whose versions keepers keep."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.delta.refs import TAG, Keeper
from alluvia.operations.checkpointing import checkpoint
from alluvia.operations.reading.scan import scan
from alluvia.operations.references.pinned_versions import keep_version
from alluvia.store import CountingStore
from tests.transactions import kept_snapshot
from tests.unit.operations.vacuuming import DAY, SCHEMA, cold, history

NONE = timedelta(0)
T = TypeVar("T")


def keep(table: Table, version: int | None = None, name: str = "x", kind: str = TAG) -> Keeper:
    return keep_version(table._handle, kind, name, version)[0]


def kept(table: Table, keeper: Keeper) -> list[int]:
    fresh = cold(table)
    snapshot = kept_snapshot(fresh._handle, keeper)
    return sorted(scan(snapshot, fresh.lake.store).read_all()["x"].to_pylist())


def age(table: Table, clock: ManualClock, days: int = 60) -> None:
    """Let the log of what is there expire, behind a checkpoint."""
    clock.advance(days * DAY)
    table.append([{"x": 100}])
    table.lake.table("t").optimize()


class Between(CountingStore):
    """Calls `then` before the first request for which `when` holds."""

    when: Callable[[str, str], bool] | None = None
    then: Callable[[], object]
    called = False

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if self.when is not None and not self.called and self.when(kind, key):
            self.called = True
            self.then()
        return super().request(kind, key, send)


def with_history(lake: Lake, clock: ManualClock) -> Table:
    """Versions 1 to 3 add a row each, in files of their own; version 4 has them in one. 2 and 4 have checkpoints."""
    table = lake.create_table("t", SCHEMA, properties={"delta.checkpointInterval": "1"})
    history(table, clock, 2)
    checkpoint(table._handle)
    table.append([{"x": 2}])
    table.optimize()
    return table
