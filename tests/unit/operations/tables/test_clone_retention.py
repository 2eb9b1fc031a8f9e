"""Files that clones share stay as long as one of them needs them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.delta.refs import TAG
from alluvia.errors import VersionExpired
from alluvia.operations.references.pinned_versions import keep_version
from alluvia.operations.tables import clone as cloning
from tests.unit.operations.tables.clones import NONE, ROWS, SCHEMA, ids, kept, partly_deleted, wipe
from tests.unit.operations.vacuuming import DAY


@pytest.fixture
def source(lake: Lake) -> Table:
    return partly_deleted(lake)


def optimized(_: Lake, table: Table, clock: ManualClock) -> None:
    table.optimize(full=True)
    clock.advance(8 * DAY)
    table.vacuum()


def dropped(lake: Lake, table: Table, clock: ManualClock) -> None:
    lake.drop_table("events")
    clock.advance(8 * DAY)
    table.vacuum(NONE)


def replaced(lake: Lake, table: Table, clock: ManualClock) -> None:
    lake.drop_table("events")
    new = lake.create_table("events", {"other": "long"})
    new.append([{"other": 1}])
    clock.advance(60 * DAY)
    table.vacuum(NONE)
    new.append([{"other": 2}])
    new.checkpoint()
    clock.advance(60 * DAY)
    new.vacuum(NONE)


def cleaned(_: Lake, table: Table, clock: ManualClock) -> None:
    table.delete("true")
    clock.advance(60 * DAY)
    table.checkpoint()
    table.append([{"id": 1, "day": "d", "name": "x"}])
    clock.advance(60 * DAY)
    table.checkpoint()
    table.vacuum()


REMOVALS: dict[str, Callable[[Lake, Table, ManualClock], None]] = {
    "delete and vacuum": lambda _, table, clock: wipe(table, clock),
    "optimize and vacuum": optimized,
    "drop and vacuum": dropped,
    "drop, create and vacuum": replaced,
    "log clean-up": cleaned,
}


@pytest.mark.parametrize("removal", REMOVALS)
def test_the_source_keeps_what_its_clones_need(lake: Lake, clock: ManualClock, source: Table, removal: str) -> None:
    clone = lake.clone("events", "dev")
    nested = lake.clone("dev", "nested")
    REMOVALS[removal](lake, source, clock)
    assert ids(clone) == ids(nested) == ROWS
    assert clone.verify(full=True).findings == nested.verify(full=True).findings == ()
    assert ids(lake.clone("dev", "third")) == ROWS


def test_a_clone_of_a_clone_needs_no_clone_in_between(lake: Lake, clock: ManualClock, source: Table) -> None:
    clone = lake.clone("events", "dev")
    clone.append([{"id": 100, "day": "d 0", "name": "mine"}])
    nested = lake.clone("dev", "nested")
    assert [kept(lake), kept(lake, "dev")] == [2, 1]
    lake.drop_table("dev")
    for _ in range(3):
        wipe(source, clock)
        clone.vacuum(NONE)
        source.vacuum(NONE)
    assert [kept(lake), kept(lake, "dev")] == [2, 1]
    assert ids(nested) == [*ROWS, 100]
    lake.drop_table("nested")
    clock.advance(8 * DAY)
    for _ in range(3):
        for table in (nested, clone, source):
            table.vacuum(NONE)
    assert [kept(lake), kept(lake, "dev")] == [0, 0]
    left = [info.key for info in lake.store.list("") if info.key.endswith((".parquet", ".bin"))]
    assert [key for key in left if "_delta_log" not in key] == []


def test_what_a_clone_needed_goes_once_it_needs_it_no_more(lake: Lake, clock: ManualClock, source: Table) -> None:
    clone = lake.clone("events", "dev")
    wipe(source, clock)
    clone.update({"name": "'b'"})
    clone.vacuum()
    source.vacuum()
    assert kept(lake) == 1, "versions of the clone within its retention need it"
    assert ids(clone, version=0) == ROWS
    clock.advance(8 * DAY)
    clone.vacuum()
    source.vacuum()
    assert kept(lake) == 0
    with pytest.raises(VersionExpired):
        ids(clone, version=0)
    assert sum(source.vacuum().counts.values()) > 0
    assert ids(clone) == ROWS
    assert clone.verify(full=True).findings == ()


def test_a_dropped_clone_comes_back_until_its_retention_has_passed(
    lake: Lake, clock: ManualClock, source: Table
) -> None:
    clone = lake.clone("events", "dev")
    lake.drop_table("dev")
    wipe(source, clock)
    lake.undrop("dev")
    assert ids(clone) == ROWS
    lake.drop_table("dev")
    clock.advance(8 * DAY)
    clone.vacuum()
    with pytest.raises(VersionExpired):
        lake.undrop("dev")
    source.vacuum(NONE)
    assert kept(lake) == 0


def test_the_keeper_of_a_clone_that_never_came_goes_after_a_day(
    lake: Lake, clock: ManualClock, source: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cloning, "create", die)
    with pytest.raises(KeyboardInterrupt):
        lake.clone("events", "dev")
    assert kept(lake) == 1
    source.delete("true")
    source.vacuum(NONE)
    assert kept(lake) == 1, "it may still come"
    clock.advance(DAY + 1)
    source.vacuum(NONE)
    assert kept(lake) == 0
    assert len(source.vacuum(NONE).data_files) == 3


def test_a_clone_in_the_log_of_a_dropped_table_is_known_to_be_made(
    lake: Lake, clock: ManualClock, source: Table
) -> None:
    """The oldest version of that log is of the dropped table, and has nothing of the source."""
    lake.create_table("dev", SCHEMA)
    lake.drop_table("dev")
    clone = lake.clone("events", "dev")
    wipe(source, clock)
    source.vacuum(NONE)
    assert kept(lake) == 1
    assert ids(clone) == ROWS


def test_a_clone_that_another_tag_keeps_needs_all_that_it_has(lake: Lake, clock: ManualClock, source: Table) -> None:
    clone = lake.clone("events", "dev")
    keep_version(clone._handle, TAG, "release")
    clone.delete("true")
    wipe(source, clock)
    for _ in range(3):
        clock.advance(8 * DAY)
        clone.vacuum()
        source.vacuum(NONE)
    assert kept(lake) == 1
    assert ids(clone, version=0) == ROWS


def test_a_clone_of_a_clone_keeps_only_the_tables_whose_files_it_has(
    lake: Lake, clock: ManualClock, source: Table
) -> None:
    clone = lake.clone("events", "dev")
    nested = lake.clone("dev", "nested")
    assert [kept(lake), kept(lake, "dev")] == [2, 0]
    lake.drop_table("dev")
    wipe(source, clock)
    clone.vacuum()
    source.vacuum()
    assert kept(lake) == 1
    assert ids(nested) == ROWS
