"""A reject is known for as long as its table's events, also where that has become longer since the first one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.operations.tables.evolve import evolve
from alluvia.store import CountingStore, MemoryStore
from tests.unit.operations.dropping import reject, send

WINDOW = "alluvia.dedup_window"
WEEK = {WINDOW: "interval 7 days"}


@pytest.fixture
def lake() -> Lake:
    clock = ManualClock()
    lake = Lake(CountingStore(MemoryStore("m", clock)), clock)
    lake.create_events("t")
    send(lake, "a")
    return lake


def again(lake: Lake) -> Lake:
    """Return the lake as another process opens it."""
    return Lake(lake.store, lake.clock)


def rejects(lake: Lake) -> list[bytes]:
    return sorted(again(lake).table("t/_rejects").scan(["raw"]).read_all()["raw"].to_pylist())


def by_evolve(lake: Lake) -> None:
    lake.table("t").evolve(properties=WEEK)


def by_sql(lake: Lake) -> None:
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('alluvia.dedup_window' = 'interval 7 days')")


def in_a_transaction(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.table("t").evolve(properties=WEEK)


def as_an_earlier_release(lake: Lake) -> None:
    evolve(lake.catalog.handle("t"), properties=WEEK)


WAYS = (by_evolve, by_sql, in_a_transaction, as_an_earlier_release)


@pytest.mark.parametrize("who", ["the same process", "a new process"])
@pytest.mark.parametrize("lengthen", WAYS)
def test_a_longer_window_holds_for_rejects_too(lake: Lake, lengthen: Callable[[Lake], None], who: str) -> None:
    assert isinstance(lake.clock, ManualClock)
    reject(lake, b"A")
    lengthen(lake)
    lake.clock.advance(2 * 3600)
    reject(lake if who == "the same process" else again(lake), b"B")
    for each in (lake, again(lake)):
        reject(each, b"A")
    assert rejects(lake) == [b"A", b"B"]
    assert lake.table("t/_rejects").snapshot().properties[WINDOW] == "interval 7 days"
    lake.clock.advance(8 * 24 * 3600)
    for raw in (b"C", b"A"):
        reject(again(lake), raw)
    assert rejects(lake) == [b"A", b"A", b"B", b"C"]


def test_upkeep_of_the_rejects_forgets_none_before_the_next_one(lake: Lake) -> None:
    assert isinstance(lake.clock, ManualClock)
    reject(lake, b"A")
    lake.table("t").evolve(properties=WEEK)
    lake.clock.advance(2 * 3600)
    lake.table("t/_rejects").evolve(properties={"team": "x"})
    lake.table("t/_rejects").checkpoint()
    reject(again(lake), b"A")
    assert rejects(lake) == [b"A"]


def test_a_shorter_window_of_the_table_leaves_that_of_its_rejects(lake: Lake) -> None:
    reject(lake, b"A")
    lake.table("t/_rejects").evolve(properties={WINDOW: "3 days"})
    lake.table("t").evolve(properties={WINDOW: "1 day"})
    before = lake.table("t/_rejects").version
    reject(lake, b"B")
    assert lake.table("t/_rejects").version == before + 1
    assert lake.table("t/_rejects").snapshot().properties[WINDOW] == "3 days"


def test_a_default_window_that_is_longer_holds_too(lake: Lake) -> None:
    lake.table("t").evolve(properties={WINDOW: "10 minutes"})
    reject(lake, b"A")
    assert lake.table("t/_rejects").snapshot().properties[WINDOW] == "10 minutes"
    lake.table("t").evolve(properties={WINDOW: None})
    assert WINDOW not in lake.table("t/_rejects").snapshot().properties


def test_the_look_at_the_tables_window_is_no_request(lake: Lake) -> None:
    assert isinstance(lake.store, CountingStore)
    reject(lake, b"A")
    lake.store.reset()
    reject(lake, b"B")
    assert lake.store.requests == {"put": 2}


def test_a_table_without_rejects_gets_none(lake: Lake) -> None:
    lake.table("t").evolve(properties=WEEK)
    assert lake.tables(rejects=True) == ["t"]
