"""How long an event is known by its id, and by what: the window, its index, and clean-up."""

from __future__ import annotations

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.event_window.index import index_name
from alluvia.delta.log.paths import LOG_FOLDER, commit_name
from alluvia.operations.dedup import follow_window
from alluvia.store import CountingStore
from tests.contract.workers import events
from tests.unit.operations.ingesting import ingest, stored
from tests.unit.operations.ingesting import table as table  # noqa: PLC0414 - a fixture


def test_an_event_is_forgotten_after_the_window_by_the_logs_time(lake: Lake, clock: ManualClock, other: Lake) -> None:
    table = lake.create_events("t", properties={"alluvia.dedup_window": "10 minutes"})
    ingest(table, "a")
    clock.advance(599)
    assert ingest(table, "a", "b") == (1, 1)
    clock.advance(2)
    assert ingest(table, "c") == (1, 0)
    assert ingest(other.table("t"), "a", "b") == (1, 1)
    assert ingest(table, "a", "b") == (0, 2)
    assert stored(table) == ["a", "a", "b", "c"]


def test_silence_does_not_shorten_the_window(table: Table, clock: ManualClock, other: Lake) -> None:
    ingest(table, "a")
    clock.advance(5 * 3600)
    assert ingest(table, "a") == (0, 1)
    assert ingest(other.table("t"), "a") == (0, 1)


def test_a_writer_with_a_slow_clock_forgets_nothing(table: Table, clock: ManualClock, other: Lake) -> None:
    ingest(table, "a")
    clock.advance(-10 * 3600)
    assert ingest(other.table("t"), "b") == (1, 0)
    assert ingest(table, "a", "b") == (0, 2)


def test_a_longer_window_counts_from_when_it_is_set(table: Table, clock: ManualClock, other: Lake) -> None:
    ingest(table, "a")
    other.table("t").evolve(properties={"alluvia.dedup_window": "1 day"})
    table.snapshot()
    ingest(table, "b")
    clock.advance(3 * 3600)
    ingest(table, "c")
    assert ingest(table, "a", "b") == (0, 2)
    assert ingest(Lake(table.lake.store, clock).table("t"), "a", "b") == (0, 2)


@pytest.mark.parametrize("checkpoint_at", [0, 1, 3, 5])
@pytest.mark.parametrize("index", ["there", "gone"])
def test_a_cold_handle_knows_the_window_with_or_without_its_index(
    table: Table, store: CountingStore, clock: ManualClock, checkpoint_at: int, index: str
) -> None:
    for number in range(6):
        ingest(table, f"e{number}")
        clock.advance(15 * 60)
        if number == checkpoint_at:
            version = table.checkpoint()
            if index == "gone":
                store.delete([f"t/{index_name(version)}"])
    table.append(events(table.snapshot().schema, ["plain"]))
    cold = Lake(store, clock).table("t")
    ids = [f"e{number}" for number in range(6)]
    assert ingest(cold, *ids) == (2, 4)  # the first two are older than an hour
    assert ingest(table, *ids) == (0, 6)
    warm_window, cold_window = (follow_window(each._handle) for each in (table, cold))
    assert list(warm_window.entries()) == list(cold_window.entries())


def test_rows_that_were_appended_without_ids_are_not_known(table: Table) -> None:
    table.append(events(table.snapshot().schema, ["a"]))
    assert ingest(table, "a") == (1, 0)


def checkpointed_while_open(lake: Lake, clock: ManualClock, other: Lake) -> Table:
    """Return a table whose log was opened on a checkpoint, of version 1, that a newer one has made needless."""
    properties = {"alluvia.dedup_window": "3 days", "delta.logRetentionDuration": "interval 1 day"}
    table = lake.create_events("t", partition_by=(), properties=properties)
    ingest(table, "a")
    table.checkpoint()
    ingest(table, "b")
    clock.advance(2 * 24 * 3600)
    late = other.table("t")
    late.snapshot()
    Lake(lake.store, clock).table("t").checkpoint()
    return late


def clean_up(store: CountingStore) -> None:
    """Take the checkpoint at version 1 and all below it, though it is young: vacuum would wait a day."""
    names = [commit_name(0), commit_name(1), f"{LOG_FOLDER}{1:020d}.checkpoint.parquet", index_name(1)]
    assert all(store.head(f"t/{name}") for name in names)
    store.delete([f"t/{name}" for name in names])


def test_an_index_that_clean_up_took_is_looked_for_again(
    lake: Lake, clock: ManualClock, other: Lake, store: CountingStore
) -> None:
    """A log that was opened a moment before clean-up stands on a checkpoint that is gone, and so are its commits."""
    late = checkpointed_while_open(lake, clock, other)
    clean_up(store)
    assert ingest(late, "a", "b", "c") == (1, 2)
    late.checkpoint()
    assert ingest(Lake(lake.store, clock).table("t"), "a", "b", "c", "d") == (1, 3)


def test_a_checkpoint_after_clean_up_keeps_the_window(
    lake: Lake, clock: ManualClock, other: Lake, store: CountingStore
) -> None:
    late = checkpointed_while_open(lake, clock, other)
    late.append(events(late.snapshot().schema, ["x"]))
    clean_up(store)
    late.checkpoint()
    assert ingest(Lake(lake.store, clock).table("t"), "a", "b") == (0, 2)


def test_an_undropped_table_knows_the_ids_of_a_checkpoint_before_the_drop(
    lake: Lake, clock: ManualClock, other: Lake
) -> None:
    properties = {"alluvia.dedup_window": "7 days", "delta.logRetentionDuration": "interval 1 day"}
    table = lake.create_events("t", partition_by=(), properties=properties)
    ingest(table, "a")
    ingest(table, "b")
    table.checkpoint()
    ingest(table, "c")
    clock.advance(3 * 24 * 3600)
    assert other.table("t").vacuum().log_files
    other.drop_table("t")
    Lake(lake.store, clock).table("t").vacuum()
    Lake(lake.store, clock).undrop("t")
    again = Lake(lake.store, clock).table("t")
    assert ingest(again, "a", "b", "c", "d") == (1, 3)
    again.checkpoint()
    assert ingest(Lake(lake.store, clock).table("t"), "a", "b", "c", "d") == (0, 4)


def test_the_window_goes_on_over_merges_and_evolutions(table: Table, other: Lake) -> None:
    for number in range(3):
        ingest(table, f"e{number}")
    table.optimize()
    table.evolve({"extra": "long"})
    assert ingest(other.table("t"), "e0", "e1", "e2", "new") == (1, 3)
    assert ingest(table, "new") == (0, 1)
