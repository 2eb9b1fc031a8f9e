"""What goes and what stays, and what a reader of an old version is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.changes import Changes
from alluvia.commit.event_window.index import index_name
from alluvia.delta.log.actions import DomainMetadata
from alluvia.delta.log.paths import LOG_FOLDER
from alluvia.errors import Invalid, VersionExpired, VersionNotFound
from alluvia.store import CountingStore
from tests.contract.workers import events
from tests.judges import judges_agree
from tests.rejects import create_rejects
from tests.unit.operations.races import Race
from tests.unit.operations.vacuuming import DAY, SCHEMA, cold, history, readable, values
from tests.unit.operations.vacuuming import table as table  # noqa: PLC0414 - a fixture


def test_files_that_a_merge_replaced_go_after_the_retention(table: Table, clock: ManualClock) -> None:
    history(table, clock, 3)
    table.optimize()
    clock.advance(7 * DAY)
    assert table.vacuum().data_files == ()
    clock.advance(1)
    report = table.vacuum()
    assert len(report.data_files) == 3
    assert (report.oldest_version, report.orphans, report.log_files) == (4, (), ())
    assert report.bytes_freed > 0
    assert readable(table) == [4, 5]
    assert values(table) == [0, 1, 2]
    judges_agree(table, [4, 5])
    assert table.vacuum().data_files == ()


def test_without_retention_everything_replaced_goes_at_once(table: Table, clock: ManualClock) -> None:
    history(table, clock, 3)
    table.optimize()
    report = table.vacuum(timedelta(0))
    assert len(report.data_files) == 3
    assert readable(table) == [4, 5]


def test_a_dry_run_tells_and_deletes_nothing(table: Table, clock: ManualClock, store: CountingStore) -> None:
    history(table, clock, 3)
    table.optimize()
    before = [info.key for info in store.list("")]
    told = table.vacuum(timedelta(0), dry_run=True)
    assert told.dry_run
    assert [info.key for info in store.list("")] == before
    assert readable(table) == [0, 1, 2, 3, 4]
    done = table.vacuum(timedelta(0))
    assert (done.data_files, done.oldest_version, done.bytes_freed) == (
        told.data_files,
        told.oldest_version,
        told.bytes_freed,
    )


def test_only_versions_that_need_a_deleted_file_expire(lake: Lake, clock: ManualClock) -> None:
    schema = pa.schema([("x", pa.int64()), ("c", pa.string())])
    table = lake.create_table("t", schema, partition_by=["c"])
    for number in range(2):
        table.append([{"x": number, "c": "old"}, {"x": number, "c": "new"}])
    old = [file for file in table.snapshot().files if file.partition_values["c"] == "old"]
    handle = table._handle
    removes = [file.removed(0, data_change=False) for file in old]
    handle.transaction(handle.newest()).commit(Changes("OPTIMIZE", removes=removes))
    clock.advance(10 * DAY)
    table.append([{"x": 9, "c": "new"}])
    clock.advance(1)
    table.optimize()
    clock.advance(1)
    report = table.vacuum(timedelta(days=5))
    assert (len(report.data_files), report.oldest_version) == (2, 3)
    assert readable(table)[0] == 3
    assert values(table, 3) == [0, 1]


def test_a_file_that_came_back_is_live(table: Table, clock: ManualClock) -> None:
    history(table, clock, 1)
    (file,) = table.snapshot().files
    handle = table._handle
    handle.transaction(handle.newest()).commit(Changes("DELETE", removes=[file.removed(0, data_change=True)]))
    handle.transaction(handle.newest()).commit(Changes("RESTORE", adds=[file]))
    clock.advance(30 * DAY)
    assert table.vacuum(timedelta(0)).data_files == ()
    assert values(table) == [0]


def test_a_young_file_that_nothing_names_stays(table: Table, clock: ManualClock, store: CountingStore) -> None:
    history(table, clock, 1)
    store.put("t/part-orphan.parquet", b"x")
    clock.advance(DAY)
    assert table.vacuum(timedelta(0)).orphans == ()
    clock.advance(1)
    assert table.vacuum(timedelta(days=2)).orphans == ()
    assert table.vacuum(timedelta(0)).orphans == ("part-orphan.parquet",)
    assert store.head("t/part-orphan.parquet") is None
    assert readable(table) == [0, 1, 2]


def test_folders_that_hold_no_data_are_left_alone(table: Table, clock: ManualClock, store: CountingStore) -> None:
    history(table, clock, 2)
    kept = ["t/_delta_log/_last_checkpoint", "t/_delta_log/x.crc", "t/_alluvia/x", "t/_rejects/part-1.parquet",
            "t/.hidden/x", "t2/part-1.parquet", "ta"]  # fmt: skip
    for key in kept:
        store.put(key, b"x")
    clock.advance(100 * DAY)
    table.vacuum(timedelta(0))
    assert all(store.head(key) is not None for key in kept)
    assert values(table) == [0, 1]


@pytest.mark.parametrize("writers", ["alluvia", "any"])
def test_two_vacuums_at_once_both_do_their_work(lake: Lake, clock: ManualClock, writers: str) -> None:
    table = lake.create_table("t", {"x": "long"}, properties={"alluvia.writers": writers})
    for value in range(3):
        table.append([{"x": value}])
    table.optimize(full=True)
    clock.advance(8 * DAY)
    race = Race(lake)
    assert race.table(lambda theirs: theirs.vacuum()).vacuum().oldest_version == 4
    assert sorted(table.scan().read_all()["x"].to_pylist()) == [0, 1, 2]


def test_a_tables_rejects_are_a_table_of_their_own(lake: Lake, clock: ManualClock) -> None:
    table = lake.create_table("t", SCHEMA)
    rejects = create_rejects(lake, "t", SCHEMA)
    for number in range(2):
        table.append([{"x": number}])
        rejects.append([{"x": number}])
    rejects.optimize()
    clock.advance(30 * DAY)
    assert table.vacuum(timedelta(0)).data_files == table.vacuum(timedelta(0)).orphans == ()
    assert values(rejects) == [0, 1]
    assert len(rejects.vacuum(timedelta(0)).data_files) == 2


def test_dropped_tombstones_expire_their_versions_too(table: Table, clock: ManualClock) -> None:
    """A checkpoint leaves out tombstones older than the retention: their files then look like orphans."""
    history(table, clock, 3)
    clock.advance(10)
    table.optimize()
    clock.advance(8 * DAY)
    table.checkpoint()
    fresh = cold(table)
    assert len(fresh.snapshot().state.tombstones) == 0
    report = fresh.vacuum()
    assert (report.data_files, len(report.orphans)) == ((), 3)
    assert report.oldest_version == 4
    assert readable(table)[0] == 4


def test_expired_log_goes_behind_a_checkpoint(table: Table, clock: ManualClock, store: CountingStore) -> None:
    for day in range(40):
        table.append([{"x": day}])
        clock.advance(DAY)
        if day % 10 == 9:
            table.checkpoint()
    report = table.vacuum()
    assert report.oldest_version == 10
    assert {name for name in report.log_files if name.endswith(".json")} == {
        f"_delta_log/{version:020d}.json" for version in range(10)
    }
    left = [info.key for info in store.list(f"t/{LOG_FOLDER}")]
    assert left[0] == f"t/{LOG_FOLDER}{10:020d}.checkpoint.parquet"
    assert readable(table) == list(range(10, 42))
    judges_agree(table, [10, 15, 20, 41])
    fresh = cold(table)
    with pytest.raises(VersionExpired, match="oldest version that can be read is 10"):
        fresh.snapshot(timestamp="2023-11-15")
    assert fresh.snapshot(timestamp=datetime.fromtimestamp(clock.now_us() / 1e6 - 30.5 * DAY, UTC)).version == 10
    with pytest.raises(VersionNotFound):
        fresh.snapshot(version=99)
    assert len(fresh.history()) == 32


def test_the_log_is_kept_longer_than_any_writer_follows_it(lake: Lake, other: Lake, clock: ManualClock) -> None:
    """A handle that followed the log up to some version may write the next: it must not be gone by then."""
    table = lake.create_table("t", SCHEMA, properties={"delta.logRetentionDuration": "1 minute"})
    slow = other.table("t")
    slow.append([{"x": 0}])
    for number in range(3):
        clock.advance(600)
        table.append([{"x": number}])
        table.checkpoint()
    table.vacuum()
    assert slow.append([{"x": 9}]).version == 5
    assert values(table) == [0, 0, 1, 2, 9]


def test_windows_go_with_their_checkpoints(lake: Lake, clock: ManualClock, store: CountingStore) -> None:
    table = lake.create_events("t", partition_by=())
    for number in range(3):
        clock.advance(31 * DAY)
        table.ingest(events(table.snapshot().schema, [f"{number}"]))
        table.checkpoint()
    assert [info.key for info in store.list("t/_alluvia/")] == [f"t/{index_name(version)}" for version in (1, 2, 3)]
    table.vacuum()
    assert [info.key for info in store.list("t/_alluvia/")] == [f"t/{index_name(version)}" for version in (2, 3)]
    assert cold(table).ingest(events(table.snapshot().schema, ["2"])).appended == 0


def test_a_removal_from_before_the_log_that_is_left_changes_nothing(lake: Lake, clock: ManualClock) -> None:
    properties = {"delta.logRetentionDuration": "1 day", "delta.deletedFileRetentionDuration": "30 days"}
    table = lake.create_table("t", SCHEMA, properties=properties)
    history(table, clock, 3)
    table.optimize()
    clock.advance(3 * DAY)
    table.append([{"x": 4}])
    table.checkpoint()
    clock.advance(3 * DAY)
    table.append([{"x": 5}])
    assert table.vacuum().oldest_version == 5
    clock.advance(40 * DAY)
    report = cold(table).vacuum()
    assert len(report.data_files) == 3
    assert report.oldest_version == 5
    assert readable(table)[0] == 5


def test_timestamps_before_the_oldest_readable_version_have_expired(table: Table, clock: ManualClock) -> None:
    history(table, clock, 3, 60)
    first = datetime.fromtimestamp(clock.now_us() / 1e6 - 60, UTC)
    clock.advance(60)
    table.optimize()
    table.vacuum(timedelta(0))
    fresh = cold(table)
    with pytest.raises(VersionExpired, match="oldest version that can be read is 4"):
        fresh.snapshot(timestamp=first)
    assert fresh.snapshot(timestamp=first + timedelta(seconds=120)).version == 4


def test_verify_names_the_oldest_version_that_can_be_read(table: Table, clock: ManualClock) -> None:
    history(table, clock, 3)
    assert table.verify().oldest_version == 0
    table.delete("x = 1")
    clock.advance(1)
    assert table.vacuum(timedelta(0)).oldest_version == table.verify().oldest_version == readable(table)[0] == 4


def test_two_vacuums_do_not_move_the_oldest_version_back(table: Table, other: Lake, clock: ManualClock) -> None:
    history(table, clock, 2)
    table.optimize()
    history(table, clock, 2)
    table.optimize()
    rival = other.table("t")
    table.vacuum(timedelta(0))
    assert rival.vacuum(timedelta(0)).oldest_version == 6
    assert readable(table)[0] == 6


@pytest.mark.parametrize("theirs", ["1", "3"])
def test_a_vacuum_that_loses_to_another_looks_at_its_record_and_goes_on(
    table: Table, other: Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    history(table, clock, 2)
    table.optimize()
    handle = table._handle
    write = handle.log.write

    def overtaken(version: int, data: bytes, txn_id: str) -> Any:
        monkeypatch.setattr(handle.log, "write", write)
        rival = other.table("t")._handle
        change = Changes("VACUUM", domains=[DomainMetadata("alluvia.oldest_readable_version", theirs)])
        rival.transaction(rival.newest()).commit(change)
        return write(version, data, txn_id)

    monkeypatch.setattr(handle.log, "write", overtaken)
    assert len(table.vacuum(timedelta(0)).data_files) == 2
    assert readable(table)[0] == 3
    assert values(table) == [0, 1]


def test_a_negative_retention_is_refused(table: Table) -> None:
    with pytest.raises(Invalid, match="retention"):
        table.vacuum(timedelta(seconds=-1))


def test_a_table_for_any_writer_remembers_the_oldest_version_in_its_properties(lake: Lake, clock: ManualClock) -> None:
    table = lake.create_table("t", SCHEMA, properties={"alluvia.writers": "any"})
    history(table, clock, 3)
    clock.advance(1)
    table.optimize()
    clock.advance(1)
    table.append([{"x": 9}])
    clock.advance(1)
    report = table.vacuum(timedelta(0))
    assert len(report.data_files) == 3
    assert report.oldest_version == 5
    assert readable(table) == [5, 6]
    judges_agree(table, [5, 6])


@pytest.mark.parametrize("writers", ["alluvia", "any"])
def test_history_marks_the_versions_that_can_be_read(lake: Lake, clock: ManualClock, writers: str) -> None:
    table = lake.create_table("t", SCHEMA, properties={"alluvia.writers": writers})
    history(table, clock, 3)
    clock.advance(1)
    table.optimize()
    assert all(entry.readable for entry in table.history())
    clock.advance(1)
    table.vacuum(timedelta(0))
    entries = cold(table).history()
    assert [entry.version for entry in entries] == [5, 4, 3, 2, 1, 0]
    assert sorted(entry.version for entry in entries if entry.readable) == readable(table)


def test_versions_before_the_log_that_is_left_are_not_readable(
    table: Table, clock: ManualClock, store: CountingStore
) -> None:
    history(table, clock, 4)
    table.checkpoint()
    history(table, clock, 1)
    store.delete([f"t/{LOG_FOLDER}{0:020d}.json"])
    assert [(entry.version, entry.readable) for entry in cold(table).history()] == [
        (5, True), (4, True), (3, False), (2, False), (1, False),
    ]  # fmt: skip
