"""Writers and readers that sleep between two requests, for longer than anything is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.changes import Changes
from alluvia.errors import CommitUnknown, Invalid, TransactionExpired, VersionExpired
from alluvia.operations.append.append import append
from alluvia.operations.retention.vacuum import vacuum
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia.store import MemoryStore, Store, open_reaching_store
from tests.faults.sleeping import DAY, SCHEMA, SleepingStore, changes, values
from tests.faults.sleeping import clock as clock  # noqa: PLC0414 - a fixture
from tests.faults.sleeping import store as store  # noqa: PLC0414 - a fixture


def days_pass(store: MemoryStore, clock: ManualClock) -> None:
    """Let others write 2 to 5 and clean up the log, up to the version of 5."""
    awake = Lake(store, clock).table("t")
    for value in (2, 3, 4):
        awake.append([{"x": value}])
    awake.checkpoint()
    clock.advance(3 * DAY)
    awake.append([{"x": 5}])
    assert awake.vacuum().log_files


def test_a_writer_that_slept_past_the_log_is_not_acknowledged(store: MemoryStore, clock: ManualClock) -> None:
    asleep = SleepingStore(store)
    table = Lake(asleep, clock).table("t")
    asleep.before["commit"] = lambda: days_pass(store, clock)
    snapshot = table.snapshot()
    with pytest.raises(TransactionExpired):
        table._handle.transaction(snapshot).commit(changes(table, 99))
    assert values(store, clock) == [1, 2, 3, 4, 5]
    table.append([{"x": 6}])
    assert values(store, clock) == [1, 2, 3, 4, 5, 6]


def test_a_transaction_on_a_snapshot_of_long_ago_writes_no_version_that_has_gone(
    store: MemoryStore, clock: ManualClock
) -> None:
    handle = Lake(store, clock).table("t")._handle
    snapshot = handle.newest()
    days_pass(store, clock)
    adds = handle.writer(snapshot).write(pa.table({"x": [99]}, schema=SCHEMA))
    kept = {info.key for info in store.list("t/_delta_log/")}
    with pytest.raises(TransactionExpired):
        handle.transaction(snapshot).commit(Changes("WRITE", {"mode": "Append"}, adds=adds))
    assert {info.key for info in store.list("t/_delta_log/")} == kept
    assert values(store, clock) == [1, 2, 3, 4, 5]


def test_what_was_read_before_a_long_sleep_is_old(store: MemoryStore, clock: ManualClock) -> None:
    asleep = SleepingStore(store)
    asleep.before["after t/_delta_log/00000000000000000001.json"] = lambda: days_pass(store, clock)
    Lake(asleep, clock).table("t").append([{"x": 6}])
    assert asleep.before == {}
    assert values(store, clock) == [1, 2, 3, 4, 5, 6]


def test_a_slow_answer_is_no_failure(store: MemoryStore, clock: ManualClock) -> None:
    asleep = SleepingStore(store)
    table = Lake(asleep, clock).table("t")
    snapshot = table.snapshot()
    asleep.before["commit"] = lambda: clock.advance(2 * 3600)
    commit = table._handle.transaction(snapshot).commit(changes(table, 2))
    assert commit is not None
    assert commit.version == 2
    assert values(store, clock) == [1, 2]


def test_a_writer_whose_commit_an_erasure_wrote_again_meanwhile_does_not_take_it_for_lost(
    store: MemoryStore, clock: ManualClock
) -> None:
    """Then it would commit its file once more, which the erasure has deleted."""
    sleeping = SleepingStore(store)
    table = Lake(sleeping, clock).table("t")

    def erased() -> None:
        others = Lake(store, clock).table("t")
        others.append([{"x": 3}])
        clock.advance(2 * 3600)
        others.erase("x = 2")

    sleeping.before["after commit"] = erased
    with pytest.raises(CommitUnknown, match="it is unknown whether version 2 was written"):
        table.append([{"x": 2}])
    assert sorted(Lake(store, clock).table("t").to_arrow()["x"].to_pylist()) == [1, 3]


def test_a_file_that_vacuum_took_for_an_orphan_is_not_committed(store: MemoryStore, clock: ManualClock) -> None:
    """Without another writer: vacuum's own commit is what the sleeper loses to."""
    asleep = SleepingStore(store)
    table = Lake(asleep, clock).table("t")
    snapshot = table.snapshot()

    def meanwhile() -> None:
        clock.advance(2 * DAY)
        assert len(Lake(store, clock).table("t").vacuum().orphans) == 1

    asleep.before["commit"] = meanwhile
    with pytest.raises(TransactionExpired):
        table._handle.transaction(snapshot).commit(changes(table, 2))
    assert values(store, clock) == [1]


def test_a_reader_that_slept_sees_what_came(store: MemoryStore, clock: ManualClock) -> None:
    table = Lake(store, clock).table("t")
    table.snapshot()
    awake = Lake(store, clock).table("t")
    for value in (2, 3):
        awake.append([{"x": value}])
    awake.checkpoint()
    clock.advance(3 * DAY)
    awake.append([{"x": 4}])
    awake.vacuum()
    assert table.snapshot().version == awake.snapshot().version
    assert values(store, clock) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda table: table.delete("x = 5"), [*range(5), *range(6, 10)]),
        (lambda table: table.update({"x": "50"}, where="x = 5"), [*range(5), *range(6, 10), 50]),
        (lambda table: table.upsert([{"x": 5}, {"x": 11}], on=["x"]), [*range(10), 11]),
        (lambda table: table.append([{"x": 11, "y": 1}], evolve=True), [*range(10), 11]),
    ],
    ids=["delete", "update", "upsert", "append"],
)
def test_files_that_vacuum_took_during_a_long_sleep_are_written_again(
    store: MemoryStore, clock: ManualClock, act: Callable[[Table], object], expected: list[int]
) -> None:
    Lake(store, clock).table("t").append([{"x": value} for value in (0, *range(2, 10))])
    asleep = SleepingStore(store)
    taken: list[str] = []

    def meanwhile() -> None:
        clock.advance(30 * 3600)
        taken.extend(Lake(store, clock).table("t").vacuum(timedelta(0)).orphans)

    asleep.before["data file"] = meanwhile
    act(Lake(asleep, clock).table("t"))
    assert len(taken) == 1
    assert values(store, clock) == expected


def test_rows_of_a_reader_cannot_be_written_again(store: MemoryStore, clock: ManualClock) -> None:
    asleep = SleepingStore(store)
    rows = pa.table({"x": [11], "y": [1]})

    def meanwhile() -> None:
        clock.advance(30 * 3600)
        Lake(store, clock).table("t").vacuum(timedelta(0))

    asleep.before["data file"] = meanwhile
    reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())
    with pytest.raises(Invalid, match="files grew too old in the meantime: append again"):
        Lake(asleep, clock).table("t").append(reader, evolve=True)
    assert values(store, clock) == [1]


def lose_files(store: Store, clock: ManualClock, name: str = "t") -> None:
    """Let more than a day pass, and vacuum take the one file that no commit names."""
    clock.advance(30 * 3600)
    assert len(vacuum(Lake(store, clock).catalog.handle(name), timedelta(0)).orphans) == 1


def test_files_that_were_written_long_ago_are_not_committed(store: MemoryStore, clock: ManualClock) -> None:
    """Not at once, and not after a race that was lost while they grew old."""
    table = Lake(store, clock).table("t")
    adds = changes(table, 2).adds
    clock.advance(11 * 3600)
    asleep = SleepingStore(store)
    late = Lake(asleep, clock).table("t")
    asleep.before["commit"] = lambda: lose_files(store, clock)
    with pytest.raises(TransactionExpired, match="too old to be committed: append again"):
        late.commit_files(adds, age=timedelta(days=7))
    with pytest.raises(TransactionExpired, match="too old to be committed: append again"):
        Lake(store, clock).table("t").commit_files(adds)
    assert values(store, clock) == [1]
    clock.advance(1)
    assert table.commit_files(changes(table, 2).adds).files == 1
    assert values(store, clock) == [1, 2]


def test_a_transaction_that_has_moved_to_newer_versions_knows_how_old_its_files_are(
    store: MemoryStore, clock: ManualClock
) -> None:
    """One that commits to a single table, and uses another only after the sleep."""
    lake = Lake(store, clock)
    lake.create_table("u", SCHEMA)
    tables = StagedTables(lake.catalog, ["t"])
    append(tables.handle("t"), [{"x": 2}])
    lose_files(store, clock)
    tables.use(["u"])
    with pytest.raises(TransactionExpired, match="older than 60 minutes"):
        tables.commit()
    assert values(store, clock) == [1]


@pytest.mark.parametrize("at", ["commit", "after copying"])
def test_a_publish_that_slept_copies_the_branch_again(store: MemoryStore, clock: ManualClock, at: str) -> None:
    asleep = SleepingStore(store)
    clock.advance(1)
    branch = Lake(asleep, clock).branch("b")
    clock.advance(1)
    branch["t"].append([{"x": 2}])
    clock.advance(1)
    asleep.before["copy" if at == "after copying" else "lake's commit"] = lambda: lose_files(store, clock)
    branch.publish()
    assert asleep.before == {}
    assert values(store, clock) == [1, 2]


@pytest.mark.parametrize("is_later", [False, True])
def test_a_clone_in_the_place_of_a_dropped_table_names_no_copy_that_vacuum_took(
    store: MemoryStore, clock: ManualClock, *, is_later: bool
) -> None:
    lake = Lake(store, clock)
    lake.create_table("c", SCHEMA)
    lake.drop_table("c")
    clock.advance(1)
    asleep = SleepingStore(store)
    look = f"get c/_delta_log/{2:020d}.json"
    asleep.before["copy"] = lambda: lose_files(store, clock, "c")
    if is_later:
        asleep.before["copy"] = lambda: asleep.before.update({look: lambda: lose_files(store, clock, "c")})
    with pytest.raises(TransactionExpired, match="vacuum may have deleted some of its files: try again"):
        Lake(asleep, clock).clone("t", "c", deep=True)
    assert asleep.before == {}
    assert lake.tables() == ["t"]
    assert lake.clone("t", "c", deep=True).count() == 1


@pytest.mark.parametrize(
    ("key", "is_dropped", "error"),
    [
        (f"c/_delta_log/{0:020d}.json", False, VersionExpired),
        (f"c/_delta_log/{2:020d}.json", True, VersionExpired),
        ("c/_delta_log/", False, TransactionExpired),
    ],
)
def test_a_shallow_clone_that_slept_shares_no_file_that_nothing_keeps(
    store: MemoryStore, clock: ManualClock, key: str, *, is_dropped: bool, error: type[Exception]
) -> None:
    lake = Lake(store, clock)
    if is_dropped:
        lake.create_table("c", SCHEMA)
        lake.drop_table("c")
        clock.advance(1)
    asleep = SleepingStore(store)

    def meanwhile() -> None:
        """Vacuum takes the clone for one that never comes, and then its files."""
        for _ in range(2):
            clock.advance(30 * 3600)
            lake.table("t").delete("true")
            lake.table("t").append([{"x": 2}])
            lake.table("t").vacuum()

    if key.endswith("/"):  # the second listing is the one right before the commit
        asleep.before[f"list {key}"] = lambda: asleep.before.update({f"list {key}": meanwhile})
    else:
        asleep.before[f"put_if_absent {key}"] = meanwhile
    with pytest.raises(error, match="try again"):
        Lake(asleep, clock).clone("t", "c")
    assert asleep.before == {}
    assert lake.tables() == ["t"]
    lake.clone("t", "c")
    assert lake.table("c").to_arrow().to_pylist() == [{"x": 2}]


def test_the_files_of_an_external_table_are_looked_up_again_after_a_long_sleep(tmp_path: Path) -> None:
    clock = ManualClock(time.time_ns() // 1000)
    store = open_reaching_store(str(tmp_path / "lake"), clock, None)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "a.csv").write_text("x\n1\n")
    Lake(store, clock).create_external("e", [str(theirs / "*.csv")])
    (theirs / "b.csv").write_text("x\n2\n")
    asleep = SleepingStore(store)
    asleep.before["data file"] = lambda: lose_files(store, clock, "e")
    with pytest.raises(TransactionExpired):
        Lake(asleep, clock).refresh_external("e")
    assert Lake(store, clock).table("e").to_arrow()["x"].to_pylist() == [1]
    Lake(store, clock).refresh_external("e")
    assert sorted(Lake(store, clock).table("e").to_arrow()["x"].to_pylist()) == [1, 2]
