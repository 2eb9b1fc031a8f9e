"""Vacuum of dropped tables, and what drops cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.delta.properties import OLDEST_READABLE
from alluvia.errors import (
    VersionExpired,
)
from alluvia.store import CountingStore
from tests.judges import (
    judges_agree,
)
from tests.unit.operations.dropping import DAY_SECONDS, filled, numbers, reject


def objects(store: CountingStore, name: str = "t") -> set[str]:
    return {info.key for info in store.list(f"{name}/") if info.key.endswith(".parquet")}


def test_vacuum_frees_a_dropped_table_after_its_retention(lake: Lake, store: CountingStore, clock: ManualClock) -> None:
    table = filled(lake)
    mine = objects(store)
    lake.drop_table("t")
    clock.advance(6 * DAY_SECONDS)
    assert table.vacuum().data_files == ()
    assert objects(store) >= mine
    clock.advance(2 * DAY_SECONDS)
    assert len(table.vacuum().data_files) == 2
    assert not objects(store) & mine
    with pytest.raises(VersionExpired, match="version 2 of t has expired"):
        lake.undrop("t")
    assert lake.dropped() == []
    new = lake.create_table("t", {"y": "string"})
    new.append([{"y": "a"}])
    assert new.scan().read_all().to_pydict() == {"y": ["a"]}
    judges_agree(new, [new.snapshot().version])


@pytest.mark.parametrize("writers", ["alluvia", "any"])
def test_vacuum_of_the_next_table_frees_the_old_one_only(
    lake: Lake, store: CountingStore, clock: ManualClock, writers: str
) -> None:
    filled(lake, **{"alluvia.writers": writers})
    dropped = lake.drop_table("t").version
    new = lake.create_table("t", {"x": "long"}, properties={"alluvia.writers": writers})
    new.append([{"x": 3}])
    clock.advance(8 * DAY_SECONDS)
    assert len(new.vacuum().data_files) == 2
    assert numbers(new) == [3]
    assert numbers(new, version=new.history()[-1].version + 1) == [3]
    lake.drop_table("t")
    with pytest.raises(VersionExpired):
        lake.undrop("t", version=dropped)
    lake.undrop("t")
    assert numbers(new) == [3]


def test_vacuum_of_a_dropped_table_by_a_handle_that_is_warm_for_long(lake: Lake, clock: ManualClock) -> None:
    table = filled(lake, **{"delta.checkpointPolicy": "v2"})
    for _ in range(5):
        clock.advance(1800)
        table.snapshot()
    lake.drop_table("t")
    clock.advance(60)
    assert table.vacuum(timedelta(0)).data_files
    assert lake.tables() == []


def test_vacuum_leaves_a_dropped_table_quick_to_open(lake: Lake, other: Lake, store: CountingStore) -> None:
    table = filled(lake)
    for number in range(20):
        table.append([{"x": number}])
    lake.drop_table("t")
    lake.table("t").vacuum(timedelta(0))
    store.reset()
    assert other.tables() == []
    assert store.requests["get"] <= 4  # the hint to the checkpoint, it, the commit of its time, and no newer one
    lake.create_table("t", {"x": "long"}).append([{"x": 1}])
    judges_agree(lake.table("t"), [lake.table("t").snapshot().version])


def test_an_undrop_between_vacuums_look_and_its_deletion_keeps_the_files(
    lake: Lake, other: Lake, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(lake)
    lake.drop_table("t")
    listed, undone = store.list, list[bool]()

    def list_then_undrop(prefix: str, start_after: str | None = None) -> Any:
        found = list(listed(prefix, start_after))
        if prefix == "t/" and not undone:
            undone.append(True)
            other.undrop("t")
        return iter(found)

    monkeypatch.setattr(store, "list", list_then_undrop)
    lake.table("t").vacuum(timedelta(0))
    assert numbers(other.table("t")) == [1, 2]


def test_scheduled_vacuum_sees_dropped_tables_and_rejects(lake: Lake) -> None:
    lake.create_events("t")
    reject(lake, b"1")
    lake.drop_table("t")
    assert lake.tables(rejects=True, dropped=True) == ["t", "t/_rejects"]


def test_vacuums_record_outlives_a_change_of_writers(lake: Lake, clock: ManualClock) -> None:
    """It stands in a metadata domain of guarded tables, and in a property of others."""
    filled(lake)
    lake.drop_table("t")
    clock.advance(8 * DAY_SECONDS)
    lake.table("t").vacuum()
    new = lake.create_table("t", {"x": "long"}, properties={"alluvia.writers": "any"})
    assert new.snapshot().properties[OLDEST_READABLE] == "3"
    assert new.snapshot().state.domains == {}


def test_vacuum_forgets_drops_that_were_undone(lake: Lake, store: CountingStore, clock: ManualClock) -> None:
    table = filled(lake)

    def requests() -> int:
        store.reset()
        assert Lake(store, clock).tables() == ["t"]
        return sum(store.requests.values())

    before = requests()
    lake.drop_table("t")
    lake.undrop("t")
    table.vacuum()
    assert requests() > before
    clock.advance(8 * DAY_SECONDS)
    table.vacuum()
    assert requests() == before
    lake.drop_table("t")
    assert Lake(store, clock).tables() == []


def test_a_drop_of_a_table_at_hand_is_few_requests(lake: Lake, store: CountingStore) -> None:
    filled(lake)
    store.reset()
    lake.drop_table("t")
    assert store.requests == {
        "get": 3,
        "put": 3,
        "list": 2,
    }  # twice no newer commit; no rejects: a GET and a LIST; hint, mark, commit


def test_listing_the_tables_costs_dropped_ones_an_opening(lake: Lake, other: Lake, store: CountingStore) -> None:
    for name in ("a", "b", "c"):
        filled(lake, name)
    lake.drop_table("b")
    store.reset()
    assert other.tables() == ["a", "c"]
    assert store.requests["list"] == 1 + 3 + 1
