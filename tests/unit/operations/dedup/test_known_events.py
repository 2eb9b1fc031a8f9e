"""Ingestion knows the events of a commit that has their ids in files, by few and small requests."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.event_window.id_files import ID_FOLDER, IdFiles, plan_files
from alluvia.errors import ConcurrentAppend, Corrupt
from alluvia.store import CountingStore
from tests.contract.workers import events
from tests.unit.operations.bringing import bring
from tests.unit.operations.ingesting import ingest, stored
from tests.unit.operations.ingesting import table as table  # noqa: PLC0414 - a fixture
from tests.unit.operations.races import Race

DAY = 24 * 3600


def named(first: int, last: int) -> list[str]:
    return [f"e{number}" for number in range(first, last)]


def id_objects(store: CountingStore) -> list[str]:
    return [info.key for info in store.list(f"t/{ID_FOLDER}")]


def test_a_post_reads_a_header_once_and_a_page_for_each_event_that_may_be_known(
    table: Table, store: CountingStore, clock: ManualClock
) -> None:
    bring(table, *named(0, 6000), files=plan_files(f"{ID_FOLDER}job/", 6000))
    store.reset()
    assert ingest(table, "e5") == (0, 1)
    assert store.requests == {"get": 3}  # the header, the page, and the newest version, since nothing is new
    assert store.bytes_read < 24 * 520 + 2 * 4096 + 4000
    store.reset()
    assert ingest(table, "new 0", "new 1") == (2, 0)
    assert store.requests == {"put": 2}
    store.reset()
    assert ingest(table, "e5", "new 2") == (1, 1)
    assert store.requests == {"put": 2, "get": 1}
    store.reset()
    assert ingest(table, *named(0, 100), "new 3") == (1, 100)
    assert store.requests == {"put": 2, "get": 1}  # pages that are near each other are read together
    assert ingest(Lake(store, clock).table("t"), *named(0, 200), *named(5990, 6001)) == (1, 210)
    assert stored(table) == sorted([*named(0, 6001), *(f"new {number}" for number in range(4))])


def test_a_table_without_such_commits_pays_nothing(table: Table, store: CountingStore) -> None:
    ingest(table, "a")
    store.reset()
    assert ingest(table, "b") == (1, 0)
    assert store.requests == {"put": 2}


def test_other_content_under_an_id_of_a_file_is_a_clash(table: Table) -> None:
    bring(table, "a", "b")
    rows = events(table.snapshot().schema, ["a"])
    other = rows.set_column(rows.column_names.index("event"), "event", pa.array(["other"]))
    answer = table.ingest(other)
    assert (answer.appended, answer.duplicates, answer.clashes) == (0, 0, (0,))
    assert ingest(table, "a", "b") == (0, 2)


@pytest.mark.parametrize("checkpoint_at", [None, 1, 2])
def test_a_cold_process_knows_them_from_the_log_or_the_index(
    table: Table, lake: Lake, clock: ManualClock, checkpoint_at: int | None
) -> None:
    bring(table, *named(0, 40))
    if checkpoint_at == 1:
        table.checkpoint()
    ingest(table, "x")
    if checkpoint_at == 2:
        table.checkpoint()
    assert ingest(Lake(lake.store, clock).table("t"), "e7", "x", "y") == (1, 2)
    clock.advance(3601)
    ingest(table, "z")
    assert ingest(Lake(lake.store, clock).table("t"), "e7") == (1, 0)


def test_a_writer_that_loses_to_such_a_commit_leaves_its_events_out(lake: Lake, table: Table) -> None:
    ingest(table, "a")
    late = Race(lake).table(lambda theirs: bring(theirs, "b", "c"), lambda theirs: ingest(theirs, "d"))
    assert ingest(late, "b", "d", "e") == (1, 2)
    assert stored(late) == ["a", "b", "c", "d", "e"]


def test_pages_are_read_once_however_many_races_are_lost(lake: Lake, table: Table) -> None:
    bring(table, *named(0, 40))
    race = Race(lake)
    late = race.table(*[lambda theirs: theirs.append(events(theirs.snapshot().schema, ["r"]))] * 3)
    race.store.reset()
    assert ingest(late, "e1", "new") == (1, 1)
    pages = [key for kind, key in race.store.keys if kind == "get" and ID_FOLDER in key]
    assert len(pages) == len(set(pages)) + 1  # a header and a page of one object, at most the header of the other


def test_a_transaction_that_loses_to_such_a_commit_is_refused(lake: Lake, table: Table, other: Lake) -> None:
    rows = events(table.snapshot().schema, ["a", "b"])
    tx = lake.transaction()
    tx.table("t").ingest(rows)
    bring(other.table("t"), "b", "c")
    with pytest.raises(ConcurrentAppend, match="same events"):
        tx.commit()
    assert stored(other.table("t")) == ["b", "c"]
    with lake.transaction() as tx:
        answer = tx.table("t").ingest(rows)
    assert (answer.appended, answer.duplicates) == (1, 1)


def test_events_that_a_restore_took_back_may_come_again(table: Table) -> None:
    ingest(table, "a")
    brought = bring(table, "b", "c")
    table.restore(version=1)
    assert ingest(table, "a", "b") == (1, 1)
    table.restore(version=brought)
    assert ingest(table, "b", "c") == (0, 2)
    assert stored(table) == ["a", "b", "c"]


def test_vacuum_deletes_the_files_a_day_after_the_window_and_not_before(
    lake: Lake, store: CountingStore, clock: ManualClock
) -> None:
    table = lake.create_events("t", partition_by=(), properties={"alluvia.dedup_window": "2 days"})
    bring(table, *named(0, 40))
    warm = Lake(store, ManualClock(clock.now_us())).table("t")  # on a machine whose clock has stopped
    assert ingest(warm, "e1") == (0, 1)
    before = id_objects(store)
    clock.advance(3 * DAY - 1)
    table.vacuum(timedelta(0))
    assert id_objects(store) == before
    clock.advance(2)
    table.vacuum(timedelta(0))
    assert id_objects(store) == []
    assert ingest(warm, "e1") == (1, 0)  # its window, of days ago, still held them: vacuum has committed since
    assert ingest(Lake(store, clock).table("t"), "e2") == (1, 0)


def test_a_window_that_is_made_longer_does_not_bring_files_back(
    lake: Lake, store: CountingStore, clock: ManualClock
) -> None:
    table = lake.create_events("t", partition_by=())
    bring(table, "a")
    clock.advance(2 * DAY)
    table.vacuum()
    assert id_objects(store) == []
    table.evolve(properties={"alluvia.dedup_window": "30 days"})
    cold = Lake(store, clock).table("t")
    assert ingest(cold, "a", "b") == (2, 0)
    assert ingest(cold, "a", "b") == (0, 2)


def test_a_branch_does_without_the_files_that_the_vacuum_of_its_lake_has_taken(
    table: Table, store: CountingStore, clock: ManualClock
) -> None:
    bring(table, "a")
    clock.advance(1)
    branch = table.lake.branch("fix")
    clock.advance(2 * DAY)
    ingest(table, "b")
    table.vacuum()
    assert id_objects(store) == []
    for lake in (branch, Lake(store, clock).on_branch("fix")):
        assert ingest(lake.table("t"), f"new on {id(lake)}") == (1, 0)


def test_files_that_are_missing_too_soon_are_reported_and_nothing_is_stored_twice(
    table: Table, store: CountingStore
) -> None:
    bring(table, "a")
    store.delete(id_objects(store))
    with pytest.raises(Corrupt, match=r"the event ids of version 1 are missing: .*_alluvia/window/ids/"):
        ingest(table, "a")
    assert stored(table) == ["a"]


@pytest.mark.parametrize(
    ("said", "instead"),
    [
        (ID_FOLDER, "../../other/"),
        ('"ranges":2', '"ranges":100000000'),
        ('"pages":2', '"pages":100000000'),
        ('"pages":2', '"pages":0'),
        ('"filter_bytes":64', '"filter_bytes":"x"'),
        ('"ranges":2,', ""),
    ],
)
def test_a_commit_that_names_no_files_of_ids_is_refused(table: Table, said: str, instead: str) -> None:
    store = table._handle.store
    bring(table, "a")
    key = "t/_delta_log/00000000000000000001.json"
    text = store.get(key).decode()
    assert text.count(said) == 1
    store.put(key, text.replace(said, instead).encode())
    with pytest.raises(Corrupt, match="version 1: its event id files cannot be read"):
        ingest(Lake(store, table.lake.clock).table("t"), "b")
    assert "event-ids-unreadable" in {each.kind for each in table.verify().findings}


def test_a_checkpoint_of_the_table_keeps_what_was_read_of_the_files(
    table: Table, store: CountingStore, clock: ManualClock
) -> None:
    """A process that has not looked for an hour opens the log again: headers, of up to 64 MB, are not read again."""
    table.evolve(properties={"alluvia.dedup_window": "1 day"})
    bring(table, *named(0, 40), files=IdFiles(f"{ID_FOLDER}job/", 40, 1, 2, 64))
    ingest(table, "e1")
    clock.advance(2 * 3600)
    store.reset()
    assert ingest(table, "e2", "x") == (1, 1)
    assert [kind for kind, key in store.keys if ID_FOLDER in key] == ["get"]


def test_a_copy_of_the_window_knows_the_files(table: Table) -> None:
    """From it an overdue checkpoint is written, meanwhile the window goes on."""
    bring(table, "a")
    assert ingest(table, "a") == (0, 1)
    window = table._handle.window
    assert window is not None
    copied = window.copy()
    bring(table, "b")
    assert ingest(table, "b") == (0, 1)
    assert [each.version for each in copied.files(())] == [1]
    assert [each.version for each in window.files(())] == [1, 2]
