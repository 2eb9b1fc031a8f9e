"""Orders, and what a stream gives of them."""

from __future__ import annotations

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.store import CountingStore

COLUMNS = {"id": "long", "amount": "long"}


def order(lake: Lake, *ids: int) -> None:
    lake.table("orders").append([{"id": each, "amount": each * 10} for each in ids])


def unread(lake: Lake, name: str = "new_orders", **limits: int) -> list[tuple[str, int, int]]:
    rows = lake.stream(name).to_arrow(None, **limits).to_pylist()
    return [(row["_change_type"], row["_commit_version"], row["id"]) for row in rows]


def ids(changes: list[tuple[str, int, int]]) -> list[int]:
    return [each for _, _, each in changes]


def consume(lake: Lake, name: str = "new_orders", **limits: int) -> None:
    with lake.transaction(["big"]) as tx:
        tx.table("big").append(tx.stream(name).to_arrow(["id", "amount"], **limits))


def arrived(lake: Lake) -> list[int]:
    return sorted(lake.table("big").to_arrow()["id"].to_pylist())


def with_stream(store: CountingStore, clock: ManualClock) -> Lake:
    """A table `orders` with a stream `new_orders`, and a table `big`."""
    lake = Lake(store, clock)
    lake.create_table("orders", COLUMNS)
    lake.create_table("big", COLUMNS)
    lake.create_stream("new_orders", "orders")
    return lake
