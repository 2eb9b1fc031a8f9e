"""Processes that sleep between two requests, for longer than anything is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.changes import Changes
from alluvia.errors import CommitUnknown, Invalid, TransactionExpired, Unavailable, VersionExpired
from alluvia.operations.append.append import append
from alluvia.operations.retention.vacuum import vacuum
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia.store import MemoryStore, Store, Wrapper, open_reaching_store

T = TypeVar("T")
DAY = 24 * 3600
SCHEMA = pa.schema([pa.field("x", pa.int64())])
PROPERTIES = {
    "delta.logRetentionDuration": "interval 1 day",
    "delta.deletedFileRetentionDuration": "interval 1 hour",
}


class SleepingStore(Wrapper):
    """A store whose user falls asleep once, before or after a request that a test names."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.before: dict[str, Callable[[], None]] = {}

    def _sleep(self, call: str) -> None:
        meanwhile = self.before.pop(call, None)
        if meanwhile is not None:
            meanwhile()

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        self._sleep(f"{kind} {key}")
        if kind in ("put_if_absent", "list"):
            self._sleep("commit" if kind == "put_if_absent" else kind)
        if kind == "put_if_absent" and key.startswith("t/_delta_log/"):
            self._sleep("lake's commit")
        if kind == "put_new" and ".checkpoint." in key:
            self._sleep("checkpoint")
        result = send()
        if kind in ("get", "get_file"):
            self._sleep(f"after {key}")
        elif kind == "put_if_absent":
            self._sleep("after commit")
        elif kind == "copy":
            self._sleep("copy")
        elif kind == "put_new_file" or (kind == "put_new" and key.endswith(".parquet")):
            self._sleep("data file")
        return result


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    store = MemoryStore("awake", clock)
    Lake(store, clock).create_table("t", SCHEMA, properties=PROPERTIES).append([{"x": 1}])
    return store


def changes(table: Table, value: int) -> Changes:
    """Write a data file and return the commit that names it."""
    adds = table._handle.writer(table.snapshot()).write(pa.table({"x": [value]}, schema=SCHEMA))
    return Changes("WRITE", {"mode": "Append"}, adds=adds)


def days_pass(store: MemoryStore, clock: ManualClock) -> None:
    """Let others write 2 to 5 and clean up the log, up to the version of 5."""
    awake = Lake(store, clock).table("t")
    for value in (2, 3, 4):
        awake.append([{"x": value}])
    awake.checkpoint()
    clock.advance(3 * DAY)
    awake.append([{"x": 5}])
    assert awake.vacuum().log_files


def values(store: MemoryStore, clock: ManualClock) -> list[int]:
    found: list[int] = Lake(store, clock).table("t").scan().read_all()["x"].to_pylist()
    return sorted(found)


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
