"""Transactions over two tables that stop somewhere, as one whose process died, and what others see of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from alluvia.api.lake import Lake
from alluvia.clock import Clock, ManualClock
from alluvia.commit.handle import ReadableTable
from alluvia.delta.refs import Keeper
from alluvia.delta.snapshot import Snapshot
from alluvia.operations.reading.scan import scan
from alluvia.operations.references.pinned_versions import kept_at
from alluvia.store import MemoryStore, Store, Wrapper

T = TypeVar("T")
SCHEMA = {"id": "string", "amount": "long"}
NAMES = ("a", "b")
CLAIM_OF_A, CLAIM_OF_B, DECISION, APPLY_OF_A, APPLY_OF_B = range(5)
"""The conditional writes of a transaction over `a` and `b`, in order."""


class Died(BaseException):
    """The process is gone. No library code may catch it."""


class HookedStore(Wrapper):
    """Calls a hook before requests: `hook(kind, key)`. What the hook itself asks for is not hooked."""

    def __init__(self, inner: Store, hook: Callable[[str, str], object]) -> None:
        super().__init__(inner)
        self._hook: Callable[[str, str], object] | None = hook

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if (hook := self._hook) is not None:
            self._hook = None
            try:
                hook(kind, key)
            finally:
                self._hook = hook
        return send()


def two_tables(clock: Clock | None = None, properties: Mapping[str, str] | None = None) -> Lake:
    """Return a lake in memory with the tables of `filled`."""
    clock = clock or ManualClock()
    return filled(Lake(MemoryStore("m", clock), clock), properties)


def filled(lake: Lake, properties: Mapping[str, str] | None = None) -> Lake:
    """Create the tables `a` and `b`, which have the rows x and y with 100 each."""
    for name in NAMES:
        table = lake.create_table(name, SCHEMA, properties=properties)
        table.append([{"id": "x", "amount": 100}, {"id": "y", "amount": 100}])
    return lake


def again(lake: Lake) -> Lake:
    """Return the lake as another process opens it."""
    return Lake(lake.store, lake.clock)


def transfer(lake: Lake, amount: int = 10) -> None:
    """Move an amount from `a` to `b`."""
    with lake.transaction(NAMES) as tx:
        tx.table("a").update({"amount": f"amount - {amount}"}, "id = 'x'")
        tx.table("b").update({"amount": f"amount + {amount}"}, "id = 'x'")


def append_both(lake: Lake, name: str = "new") -> None:
    """Append a row to `a` and `b`."""
    with lake.transaction(NAMES) as tx:
        for table in NAMES:
            tx.table(table).append([{"id": name, "amount": 1}])


def dying(lake: Lake, before: int) -> Lake:
    """Return the lake of a process that dies before a conditional write, by its number from 0."""
    puts = [0]

    def hook(kind: str, key: str) -> None:
        puts[0] += kind == "put_if_absent"
        if puts[0] > before:
            raise Died

    return Lake(HookedStore(lake.store, hook), lake.clock)


def stopped(lake: Lake, before: int, act: Callable[[Lake], None] = transfer) -> None:
    """Have a process die in a transaction, before one of its conditional writes."""
    try:
        act(dying(lake, before))
    except Died:
        return
    raise AssertionError("the transaction came to its end")


def kept_snapshot(handle: ReadableTable, keeper: Keeper) -> Snapshot:
    """Return a table as a keeper keeps it."""
    return handle.as_of(kept_at(handle, keeper).shown)


def amounts(lake: Lake) -> tuple[int, int]:
    """Return what is in `a` and in `b`, as one query sees them."""
    found = lake.catalog.readable(NAMES)
    first, second = (sum(scan(found[name], lake.store, ["amount"]).read_all()["amount"].to_pylist()) for name in NAMES)
    return first, second
