"""What it takes to carry out a transaction that has happened, where the process that decided it has died."""

from __future__ import annotations

from alluvia.api.lake import Lake
from alluvia.commit.commit_records import DECISIONS
from alluvia.store import CountingStore
from tests.transactions import APPLY_OF_A, stopped, two_tables


def test_its_decision_is_read_once() -> None:
    lake = two_tables()
    stopped(lake, APPLY_OF_A)
    counting = CountingStore(lake.store)
    handle = Lake(counting, lake.clock).catalog.handle("b")
    newest = handle.newest()
    counting.reset()
    assert handle.carry_out(newest)
    assert [kind for kind, key in counting.keys if DECISIONS in key] == ["get", "head"]
    assert not handle.carry_out(handle.newest())
