"""A table, its clones and what keeps their files."""

from __future__ import annotations

from datetime import timedelta

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.delta.refs import CLONE, list_keepers
from tests.unit.operations.vacuuming import DAY

NONE = timedelta(0)
SCHEMA = {"id": "long", "day": "string", "name": "string"}
DELETES = {"delta.enableDeletionVectors": "true"}


def ids(table: Table, version: int | None = None) -> list[int]:
    fresh = Lake(table.lake.store, table.lake.clock).table(table.name)
    return sorted(fresh.to_arrow(version=version)["id"].to_pylist())


def kept(lake: Lake, table: str = "events") -> int:
    return len(list_keepers(lake.store, table, CLONE))


def wipe(table: Table, clock: ManualClock) -> None:
    """Have vacuum take all that it may take of a table whose rows are gone."""
    table.delete("true")
    clock.advance(8 * DAY)
    table.vacuum(NONE)


ROWS = [0, 1, 2, 4, 5, 6, 7, 8, 9]


def partly_deleted(lake: Lake) -> Table:
    """Version 2 has rows 0 to 9 but for row 3, which a deletion vector deletes."""
    table = lake.create_table("events", SCHEMA, ["day"], ["id"], DELETES)
    table.append([{"id": number, "day": f"d {number % 2}", "name": "a"} for number in range(10)])
    table.delete("id = 3")
    return table
