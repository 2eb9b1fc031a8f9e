"""A lake whose tables are looked into by SQL."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from alluvia.api.lake import Lake
from alluvia.clock import SystemClock
from alluvia.store.counting import CountingStore
from alluvia.store.memory import MemoryStore

READ = frozenset({"read"})
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("kind", pa.string()),
        ("land", pa.string()),
        ("ok", pa.bool_()),
        ("place", pa.struct([("zip", pa.int32()), ("city", pa.string())])),
    ]
)


def rows_of(day: int, land: str) -> list[dict[str, object]]:
    return [
        {
            "id": day * 10 + n,
            "ts": datetime(2024, 1, day, n, tzinfo=UTC),
            "kind": f"kind-{day}",
            "land": land,
            "ok": None,
            "place": {"zip": day, "city": None},
        }
        for n in range(4)
    ]


def filled(lake: Lake) -> Lake:
    """Table `orders`, of two countries and three days: version 4 deletes a row by a vector; and `users`, empty."""
    vectors = {"delta.enableDeletionVectors": "true"}
    orders = lake.create_table("orders", SCHEMA, partition_by=["land", "day(ts)"], properties=vectors)
    for day, land in ((1, "de"), (2, "de"), (3, "fr")):
        orders.append(rows_of(day, land))
    orders.delete("id = 21")
    lake.create_table("users", {"name": "string"})
    lake.sql("CREATE VIEW german AS SELECT * FROM orders WHERE land = 'de'")
    return lake


def ask(lake: Lake, sql: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = lake.sql(sql).to_pylist()
    return found


def counted() -> tuple[Lake, CountingStore]:
    store = CountingStore(MemoryStore("inspected"))
    lake = filled(Lake(store, SystemClock()))
    lake.sql("FROM files('orders')")
    store.reset()
    return lake, store
