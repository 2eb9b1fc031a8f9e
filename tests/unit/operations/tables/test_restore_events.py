"""A restore takes events back: they may come again, and those of the version that it goes to may not."""

from __future__ import annotations

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.event_window.index import index_name
from alluvia.store import CountingStore
from tests.unit.operations.ingesting import ingest, stored
from tests.unit.operations.races import Race


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_events("t", partition_by=())


def seen_by(lake: Lake) -> Table:
    """Return the table as a process sees it that has just begun."""
    return Lake(lake.store, lake.clock).table("t")


@pytest.mark.parametrize("checkpoint_at", [None, 2, 3])
@pytest.mark.parametrize("who", ["the restorer", "a process that knew them", "a new process"])
def test_events_that_were_taken_back_may_come_again(
    lake: Lake, table: Table, other: Lake, who: str, checkpoint_at: int | None
) -> None:
    known = other.table("t")
    ingest(table, "a")
    ingest(known, "b", "c")
    if checkpoint_at == 2:
        known.checkpoint()
    table.restore(version=1)
    if checkpoint_at == 3:
        table.checkpoint()
    sender = {"the restorer": table, "a process that knew them": known}.get(who) or seen_by(lake)
    if sender is known:
        sender.snapshot()
    assert ingest(sender, "a", "b", "c") == (2, 1)
    assert ingest(sender, "b") == (0, 1)
    assert stored(seen_by(lake)) == ["a", "b", "c"]
    assert ingest(seen_by(lake), "a", "b", "c") == (0, 3)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_restore_forward_brings_what_was_known_back(lake: Lake, table: Table, *, checkpoint: bool) -> None:
    ingest(table, "a")
    ingest(table, "b")
    table.restore(version=1)
    ingest(table, "c")
    if checkpoint:
        table.checkpoint()
    table.restore(version=2)
    assert stored(table) == ["a", "b"]
    assert ingest(seen_by(lake), "a", "b") == (0, 2)
    assert ingest(table, "a", "b", "c") == (1, 2)
    table.restore(version=4)
    assert stored(table) == ["a", "c"]
    assert ingest(seen_by(lake), "a", "b", "c") == (1, 2)


def test_known_events_of_a_batch_that_meets_a_restore_are_looked_up_again(lake: Lake, table: Table) -> None:
    ingest(table, "a")
    ingest(table, "b")
    ours = Race(lake).table(lambda theirs: theirs.restore(version=1))
    assert ingest(ours, "b", "c") == (2, 0)
    assert stored(table) == ["a", "b", "c"]


def test_a_restore_that_changes_nothing_leaves_no_mark(table: Table) -> None:
    ingest(table, "a")
    before = table.snapshot().properties
    assert table.restore(version=1).version == 1
    assert table.snapshot().properties == before
    assert ingest(table, "a") == (0, 1)


def test_the_same_version_again_changes_nothing(table: Table) -> None:
    ingest(table, "a")
    ingest(table, "b")
    assert table.restore(version=1).version == 3
    assert table.restore(version=1).version == 3


def test_events_that_were_deleted_before_the_restore_are_taken_back_too(table: Table) -> None:
    ingest(table, "a")
    ingest(table, "b")
    table.delete("event_id = 'b'")
    table.evolve(properties={"team": "x"})
    table.restore(version=1)
    assert ingest(table, "b") == (1, 0)


def test_what_was_taken_back_stays_so_over_a_drop(lake: Lake, table: Table) -> None:
    ingest(table, "a")
    ingest(table, "b")
    table.restore(version=1)
    lake.drop_table("t")
    lake.undrop("t")
    assert ingest(seen_by(lake), "a", "b") == (1, 1)


def test_the_window_still_forgets(lake: Lake, table: Table, clock: ManualClock) -> None:
    ingest(table, "a")
    ingest(table, "b")
    table.restore(version=1)
    clock.advance(2 * 3600)
    ingest(table, "c")
    assert ingest(seen_by(lake), "a", "b", "c") == (2, 1)


def test_verify_finds_the_index_sound(table: Table, store: CountingStore) -> None:
    ingest(table, "a")
    ingest(table, "b")
    table.restore(version=1)
    ingest(table, "b", "c")
    table.checkpoint()
    assert store.head(f"t/{index_name(4)}") is not None
    report = table.verify(full=True)
    assert report.ok, report.findings
