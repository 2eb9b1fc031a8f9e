"""Each store call of a consumer of a stream fails in turn, or its process dies there: rows arrive exactly once."""

from __future__ import annotations

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.store import MemoryStore
from tests.faults.attempts import attempts, tried
from tests.faults.store import MODES

COLUMNS = {"id": "long"}


def made(clock: ManualClock) -> MemoryStore:
    store = MemoryStore("faults", clock)
    lake = Lake(store, clock)
    for name in ("orders", "copied"):
        lake.create_table(name, COLUMNS)
    lake.create_stream("new_orders", "orders")
    lake.table("orders").append([{"id": 1}, {"id": 2}])
    return store


def consume(lake: Lake) -> None:
    with lake.transaction(["copied"]) as tx:
        tx.table("copied").append(tx.stream("new_orders").to_arrow(["id"]))


def copied(lake: Lake) -> list[int]:
    return sorted(lake.table("copied").to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("mode", MODES)
def test_a_consumer_whose_nth_call_fails(mode: str) -> None:
    done = 0
    for store, clock in attempts(mode, made):
        finished = tried(consume, Lake(store, clock))
        cold = Lake(store.inner, clock)
        found = copied(cold)
        assert found == [1, 2] if finished else found in ([], [1, 2]), store.at
        cold.table("orders").append([{"id": 3}])
        for _ in range(2):
            consume(cold)
        assert copied(Lake(store.inner, clock)) == [1, 2, 3], store.at
        assert Lake(store.inner, clock).stream("new_orders").to_arrow().num_rows == 0, store.at
        done += 1
    assert done > 6
