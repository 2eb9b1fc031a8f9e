"""Vacuum, clean-up, drops and restores that sleep for days between two requests."""

from __future__ import annotations

from datetime import timedelta

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import TransactionExpired, Unavailable, VersionExpired
from alluvia.store import MemoryStore
from tests.faults.sleeping import DAY, PROPERTIES, SCHEMA, SleepingStore, changes, values
from tests.faults.sleeping import clock as clock  # noqa: PLC0414 - a fixture
from tests.faults.sleeping import store as store  # noqa: PLC0414 - a fixture


def test_vacuum_that_slept_takes_no_file_that_was_committed_meanwhile(store: MemoryStore, clock: ManualClock) -> None:
    asleep = SleepingStore(store)
    table = Lake(asleep, clock).table("t")
    orphan = changes(table, 2)
    clock.advance(2 * DAY)

    def meanwhile() -> None:
        """A patient committer brings a file that vacuum has just taken for an orphan."""
        handle = Lake(store, clock).table("t")._handle
        handle.transaction(handle.newest()).commit(orphan)

    asleep.before["commit"] = meanwhile
    assert table.vacuum().orphans == ()
    assert values(store, clock) == [1, 2]


def test_vacuum_that_slept_before_its_listing_knows_what_came(store: MemoryStore, clock: ManualClock) -> None:
    asleep = SleepingStore(store)
    table = Lake(asleep, clock).table("t")
    table.snapshot()

    def meanwhile() -> None:
        Lake(store, clock).table("t").append([{"x": 2}])
        clock.advance(3 * DAY)

    asleep.before["list"] = meanwhile
    table.vacuum(timedelta(0))
    assert values(store, clock) == [1, 2]


def test_a_restorer_that_slept_brings_back_nothing_that_vacuum_took(store: MemoryStore, clock: ManualClock) -> None:
    awake = Lake(store, clock).table("t")
    awake.delete("x = 1")
    clock.advance(1)
    asleep = SleepingStore(store)

    def meanwhile() -> None:
        assert len(awake.vacuum(timedelta(0)).data_files) == 1

    asleep.before["commit"] = meanwhile
    with pytest.raises(VersionExpired):
        Lake(asleep, clock).table("t").restore(version=1)
    assert values(store, clock) == []


def test_sidecars_that_an_open_handle_may_name_again_stay(store: MemoryStore, clock: ManualClock) -> None:
    """A checkpoint of a table that was idle for long makes the one before it needless, but not at once."""
    properties = {**PROPERTIES, "delta.checkpointPolicy": "v2", "delta.checkpointInterval": "1000"}
    table = Lake(store, clock).create_table("v", SCHEMA, properties=properties)
    for value in range(20):
        table.append([{"x": value}])
    table.checkpoint()
    table.append([{"x": 1000}])
    clock.advance(2 * DAY)
    open_before = Lake(store, clock).table("v")
    open_before.snapshot()
    clock.advance(600)
    Lake(store, clock).table("v").checkpoint()
    clock.advance(600)
    Lake(store, clock).table("v").vacuum()
    open_before.delete("x = 1000")
    open_before.checkpoint()
    assert sorted(Lake(store, clock).table("v").scan().read_all()["x"].to_pylist()) == list(range(20))


def test_a_dropper_that_slept_leaves_a_table_that_is_known_as_dropped(store: MemoryStore, clock: ManualClock) -> None:
    asleep = SleepingStore(store)

    def meanwhile() -> None:
        clock.advance(8 * DAY)
        Lake(store, clock).table("t").vacuum()

    asleep.before["commit"] = meanwhile
    try:
        Lake(asleep, clock).drop_table("t")
    except TransactionExpired:
        Lake(asleep, clock).drop_table("t")
    lake = Lake(store, clock)
    assert lake.tables() == []
    assert [each.name for each in lake.dropped()] == ["t"]
    lake.undrop("t")
    assert values(store, clock) == [1]


@pytest.mark.parametrize("at", ["data file", "checkpoint"])
def test_a_checkpoint_that_slept_names_no_sidecar_that_clean_up_took(
    store: MemoryStore, clock: ManualClock, at: str
) -> None:
    properties = {**PROPERTIES, "delta.checkpointPolicy": "v2", "delta.checkpointInterval": "1000"}
    Lake(store, clock).create_table("v", SCHEMA, properties=properties).append([{"x": 1}])
    asleep = SleepingStore(store)

    def meanwhile() -> None:
        clock.advance(2 * DAY)
        (sidecar,) = Lake(store, clock).table("v").vacuum().log_files
        assert "_sidecars" in sidecar

    asleep.before[at] = meanwhile
    with pytest.raises(Unavailable, match="writing a checkpoint of version 1 took over 12 hours"):
        Lake(asleep, clock).table("v").checkpoint()
    assert asleep.before == {}
    assert Lake(store, clock).table("v").to_arrow()["x"].to_pylist() == [1]
    Lake(store, clock).table("v").checkpoint()
    assert Lake(store, clock).table("v").to_arrow()["x"].to_pylist() == [1]


def test_vacuum_that_slept_for_days_plans_again(store: MemoryStore, clock: ManualClock) -> None:
    """Seed 56158 of the simulation: a file came back, and went again so long ago that no checkpoint names it."""
    awake = Lake(store, clock).table("t")
    awake.delete("true")
    clock.advance(5 * 3600)
    asleep = SleepingStore(store)

    def meanwhile() -> None:
        awake.restore(version=1)
        awake.append([{"x": 2}])
        awake.delete("x = 1")
        clock.advance(60 * 3600)
        awake.append([{"x": 3}])
        awake.checkpoint()

    asleep.before["commit"] = meanwhile
    Lake(asleep, clock).table("t").vacuum()
    fresh = Lake(store, clock).table("t")
    for version in range(fresh.snapshot().version + 1):
        try:
            fresh.scan(version=version).read_all()
        except VersionExpired:
            continue
    assert fresh.verify(full=True).ok
    assert values(store, clock) == [2, 3]


def test_retention_counts_from_when_a_late_commit_took_effect(store: MemoryStore, clock: ManualClock) -> None:
    """Seed 30639 of the simulation: a commit was put hours after it was made, and readers were there until then."""
    Lake(store, clock).table("t").evolve(properties={"delta.deletedFileRetentionDuration": "interval 12 hours"})
    asleep = SleepingStore(store)
    asleep.before["commit"] = lambda: clock.advance(10 * 3600)
    asleep_table = Lake(asleep, clock).table("t")
    reader = Lake(store, clock).table("t")
    version = reader.snapshot().version
    asleep_table._handle.log.refresh()
    assert asleep_table.delete("true").version == version + 1
    clock.advance(4 * 3600)
    assert Lake(store, clock).table("t").vacuum().data_files == ()
    assert reader.scan(version=version).read_all()["x"].to_pylist() == [1]
    clock.advance(9 * 3600)
    assert len(Lake(store, clock).table("t").vacuum().data_files) == 1
