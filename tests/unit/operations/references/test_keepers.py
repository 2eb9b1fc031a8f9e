"""Keepers: what vacuum and log clean-up leave for tags, clones and branches, and what happens when they go."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.delta.refs import (
    BRANCH,
    CLONE,
    KEPT,
    TAG,
    Keeper,
    find_keeper,
    keeper_key,
    list_keepers,
    put_keeper,
    release,
)
from alluvia.errors import Invalid, TableNotFound, VersionExpired
from alluvia.operations.checkpointing import checkpoint
from alluvia.operations.reading.scan import scan
from alluvia.operations.references.pinned_versions import keep_moment, keep_version
from alluvia.store import CountingStore
from tests.judges import judges_agree
from tests.transactions import kept_snapshot
from tests.unit.operations.vacuuming import DAY, SCHEMA, cold, history, values

NONE = timedelta(0)
T = TypeVar("T")


@pytest.fixture
def table(lake: Lake, clock: ManualClock) -> Table:
    """Versions 1 to 3 add a row each, in files of their own; version 4 has them in one. 2 and 4 have checkpoints."""
    table = lake.create_table("t", SCHEMA, properties={"delta.checkpointInterval": "1"})
    history(table, clock, 2)
    checkpoint(table._handle)
    table.append([{"x": 2}])
    table.optimize()
    return table


def keep(table: Table, version: int | None = None, name: str = "x", kind: str = TAG) -> Keeper:
    return keep_version(table._handle, kind, name, version)[0]


def kept(table: Table, keeper: Keeper) -> list[int]:
    fresh = cold(table)
    snapshot = kept_snapshot(fresh._handle, keeper)
    return sorted(scan(snapshot, fresh.lake.store).read_all()["x"].to_pylist())


def readable(table: Table) -> list[int]:
    fresh, found = cold(table), []
    for version in range(fresh.version + 1):
        try:
            values(fresh, version)
            found.append(version)
        except VersionExpired:
            pass
    assert [entry.version for entry in fresh.history() if entry.readable] == found[::-1]
    return found


def age(table: Table, clock: ManualClock, days: int = 60) -> None:
    """Let the log of what is there expire, behind a checkpoint."""
    clock.advance(days * DAY)
    table.append([{"x": 100}])
    table.lake.table("t").optimize()


def test_a_kept_version_is_read_after_vacuum_has_taken_the_others(table: Table, clock: ManualClock) -> None:
    keep(table, 2)
    report = table.vacuum(NONE)
    assert len(report.data_files) == 1
    assert readable(table) == [2, 4, 5]
    assert values(table, 2) == [0, 1]
    assert report.oldest_version == 4
    assert {each.reason: each.objects for each in report.kept}["keepers"] == 2


def test_what_was_kept_goes_with_the_keeper(table: Table, store: CountingStore) -> None:
    keeper = keep(table, 2)
    table.vacuum(NONE)
    release(store, keeper)
    assert len(table.vacuum(NONE).data_files) == 2
    with pytest.raises(VersionExpired, match="version 2 of t has expired; the oldest version that can be read is 4"):
        values(cold(table), 2)
    assert not list(store.list(KEPT))


def test_a_vacuum_that_finds_nothing_to_take_commits_nothing(table: Table) -> None:
    keep(table, 2)
    table.vacuum(NONE)
    version = table.version
    for _ in range(2):
        assert table.vacuum(NONE).data_files == ()
    assert table.version == version


@pytest.mark.parametrize("version", [2, 3])
def test_the_log_of_a_kept_version_stays_until_the_keeper_goes(table: Table, clock: ManualClock, version: int) -> None:
    keeper = keep(table, version)
    age(table, clock)
    table.vacuum(NONE)
    listing = table._handle.log.listing()
    assert [each for each in sorted(listing.commits) if each < 4] == list(range(2, version + 1))
    assert sorted(listing.checkpoints)[0] == 2
    assert values(cold(table), version) == list(range(version))
    judges_agree(table, [version, table.version])
    assert table.verify(full=True).findings == ()
    clock.advance(2 * DAY)
    release(table.lake.store, keeper)
    table.vacuum(NONE)
    assert min(table._handle.log.listing().commits) >= 4


def test_orphans_by_the_newest_checkpoint_are_kept_too(table: Table, clock: ManualClock) -> None:
    """Tombstones leave checkpoints after a week: then only the keeper says whose the files are."""
    keep(table, 2)
    table.vacuum(NONE)
    age(table, clock)
    cold(table).vacuum(NONE)
    assert values(cold(table), 2) == [0, 1]


def test_a_keeper_of_the_lake_keeps_each_table_as_it_was(lake: Lake, clock: ManualClock) -> None:
    for name in ("a", "b"):
        lake.create_table(name, SCHEMA, properties={"delta.checkpointInterval": "1"}).append([{"x": 1}])
    clock.advance(1)
    keeper = keep_moment(lake.catalog, BRANCH, "fix")
    clock.advance(1)
    for name in ("a", "b"):
        lake.table(name).delete("true")
    lake.create_table("later", SCHEMA)
    for days in (0, 60, 60):
        clock.advance(days * DAY)
        lake.table("a").append([{"x": 7}])
        lake.table("a").optimize()
        lake.table("a").vacuum(NONE)
        found = find_keeper(lake.store, None, BRANCH, "fix")
        assert found is not None
        assert kept(lake.table("a"), found) == [1]
        assert kept(lake.table("b"), found) == [1]
        assert kept_snapshot(lake.catalog.handle("a"), keeper).version == 1
    with pytest.raises(TableNotFound, match="there was no table 'later' yet at the moment of branch fix"):
        kept_snapshot(lake.catalog.handle("later"), keeper)
    release(lake.store, keeper)
    lake.table("a").append([{"x": 8}])
    lake.table("a").delete("x = 8")
    lake.table("a").vacuum(NONE)
    assert not list(lake.store.list(KEPT)), "its pins go with it"


def test_a_moment_of_now_costs_one_request(table: Table, store: CountingStore) -> None:
    store.reset()
    keep_moment(table.lake.catalog, BRANCH, "fix")
    assert dict(store.requests) == {"put": 1}


def test_a_vacuum_that_deletes_nothing_asks_no_keeper(table: Table, store: CountingStore) -> None:
    table.vacuum(NONE)
    store.reset()
    table.vacuum(NONE)
    assert not [key for _, key in store.keys if key.startswith(KEPT)]


def test_a_version_that_has_expired_is_not_kept(table: Table, store: CountingStore) -> None:
    table.vacuum(NONE)
    with pytest.raises(VersionExpired, match="version 1 of t has expired; the oldest version that can be read is 4"):
        keep(table, 1)
    assert not list(store.list(KEPT))


def test_a_moment_of_which_a_table_has_expired_is_not_kept(table: Table, clock: ManualClock) -> None:
    moment = clock.now_ms() - 500
    clock.advance(1)
    table.delete("true")
    table.lake.create_table("other", SCHEMA).append([{"x": 1}])
    keep_moment(table.lake.catalog, TAG, "early", moment)
    release(table.lake.store, Keeper(TAG, "early"))
    table.vacuum(NONE)
    with pytest.raises(VersionExpired, match="of t has expired"):
        keep_moment(table.lake.catalog, TAG, "late", moment)
    assert not list_keepers(table.lake.store, None, TAG)


def test_a_moment_after_which_the_log_has_a_gap_means_no_older_version(table: Table, clock: ManualClock) -> None:
    keep(table, 1)
    clock.advance(DAY)
    table.append([{"x": 5}])
    moment = clock.now_ms()
    clock.advance(1)
    table.append([{"x": 6}])
    checkpoint(table._handle)
    age(table, clock)
    table.vacuum(NONE)
    stored = cold(table)._handle.log.stored_ms()
    assert 1 in stored, "the tag keeps it"
    assert 5 not in stored, "which is what the moment means"
    for lake in (table.lake, cold(table).lake):
        with pytest.raises(VersionExpired, match="its version at the moment of tag late has expired"):
            keep_moment(lake.catalog, TAG, "late", moment)
    assert [each.name for each in list_keepers(table.lake.store, None, TAG)] == []


def test_a_version_from_before_a_branch_expires_with_the_log_of_the_lake(table: Table, clock: ManualClock) -> None:
    keep(table, 1)
    clock.advance(1)
    branch = table.lake.branch("fix")
    age(table, clock)
    table.vacuum(NONE)
    shown = branch.table("t")
    assert (values(shown, 1), values(shown)) == ([0], [0, 1, 2])
    with pytest.raises(VersionExpired, match="version 3 of t has expired on the lake"):
        values(shown, 3)
    with pytest.raises(VersionExpired, match="version 3 of t has expired on the lake"):
        shown.restore(3)


def test_another_keeper_of_an_expired_version_can_be_made_while_one_is_there(table: Table) -> None:
    first = keep(table, 2)
    table.vacuum(NONE)
    second = keep(table, 2, "y", CLONE)
    release(table.lake.store, first)
    table.vacuum(NONE)
    assert kept(table, second) == [0, 1]


def test_a_name_is_taken_once_unless_it_is_replaced(table: Table) -> None:
    keep(table, 2)
    with pytest.raises(Invalid, match="there is a tag x of t already: delete it first, or replace it"):
        keep(table, 3)
    keep_version(table._handle, TAG, "x", 3, replaces=True)
    assert [each.version for each in list_keepers(table.lake.store, "t", TAG)] == [3]
    assert not [info for info in table.lake.store.list(KEPT) if "_pending" in info.key]


def test_an_expired_keeper_keeps_nothing_and_goes(table: Table, clock: ManualClock, store: CountingStore) -> None:
    keep_version(table._handle, TAG, "x", 2, expires_ms=clock.now_ms() + DAY * 1000)
    table.vacuum(NONE)
    assert values(cold(table), 2) == [0, 1]
    clock.advance(DAY)
    assert len(table.vacuum(NONE).data_files) == 2
    with pytest.raises(VersionExpired):
        values(cold(table), 2)
    clock.advance(2 * DAY)
    history(table, clock, 2)
    table.optimize()
    table.vacuum(NONE)
    assert not list(store.list(KEPT))


def test_what_a_process_that_died_has_put_holds_for_an_hour(table: Table, clock: ManualClock) -> None:
    snapshot = table.snapshot(2)
    left = Keeper(TAG, "x", "t", "1", snapshot.state.metadata.id, 2, created_ms=clock.now_ms(), pending=True)
    assert put_keeper(table.lake.store, clock, left)
    assert list_keepers(table.lake.store, "t", TAG) == []
    assert len(table.vacuum(NONE).data_files) == 1
    with pytest.raises(VersionExpired):
        values(cold(table), 2)
    clock.advance(3601)
    history(table, clock, 2)
    table.optimize()
    table.vacuum(NONE)
    assert not list(table.lake.store.list(KEPT))


class Between(CountingStore):
    """Calls `then` before the first request for which `when` holds."""

    when: Callable[[str, str], bool] | None = None
    then: Callable[[], object]
    called = False

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if self.when is not None and not self.called and self.when(kind, key):
            self.called = True
            self.then()
        return super().request(kind, key, send)


@pytest.mark.parametrize("step", ["keepers", "commit", "delete"])
def test_a_keeper_that_comes_during_a_vacuum_is_seen_or_refused(
    lake: Lake, store: CountingStore, clock: ManualClock, step: str
) -> None:
    between = Between(store.inner)
    racing = Lake(between, clock)
    table = racing.create_table("t", SCHEMA)
    history(table, clock, 3)
    table.optimize()
    steps = {
        "keepers": lambda kind, key: kind == "list" and key.startswith(KEPT),
        "commit": lambda kind, key: kind == "put_if_absent" and "_delta_log" in key,
        "delete": lambda kind, key: kind == "delete" and key.startswith("t/"),
    }
    refused = []

    def come() -> None:
        try:
            keep(Lake(store.inner, clock).table("t"), 2)
        except VersionExpired:
            refused.append(step)

    between.when, between.then = steps[step], come
    table.vacuum(NONE)
    assert between.called
    if step == "delete":
        assert refused
        assert not list_keepers(store, "t", TAG)
    else:
        assert not refused
        assert values(cold(table), 2) == [0, 1]


def test_a_vacuum_that_comes_before_the_keeper_is_there_is_seen(
    lake: Lake, store: CountingStore, clock: ManualClock
) -> None:
    between = Between(store.inner)
    table = Lake(between, clock).create_table("t", SCHEMA)
    history(table, clock, 3)
    table.optimize()
    between.when = lambda kind, key: kind == "put_if_absent" and "/_pending/" in key
    between.then = lambda: lake.table("t").vacuum(NONE)
    with pytest.raises(VersionExpired, match="version 2 of t has expired"):
        keep(table, 2)
    assert not list(store.list(KEPT))


def test_a_moment_ends_with_the_second_of_a_store_that_tells_seconds(lake: Lake, clock: ManualClock) -> None:
    lake.store.parallel = True
    began_ms = clock.now_ms()
    keep_moment(lake.catalog, TAG, "x")
    assert clock.now_ms() - began_ms >= 1000


def test_what_is_decided_after_a_moment_is_not_in(lake: Lake, store: CountingStore, clock: ManualClock) -> None:
    between = Between(store.inner)
    racing = Lake(between, clock)
    for name in ("a", "b"):
        racing.create_table(name, SCHEMA).append([{"x": 1}])
    between.when = lambda kind, key: kind == "put_if_absent" and "/transactions/" in key
    between.then = lambda: keep_moment(lake.catalog, TAG, "undecided")
    with racing.transaction() as tx:
        for name in ("a", "b"):
            tx.table(name).append([{"x": 2}])
    moment = find_keeper(store, None, TAG, "undecided")
    assert moment is not None
    assert [kept(lake.table(name), moment) for name in ("a", "b")] == [[1], [1]]


def test_a_version_that_is_kept_can_be_restored(table: Table) -> None:
    keep(table, 2)
    table.vacuum(NONE)
    table.restore(2)
    assert values(cold(table)) == [0, 1]


def test_a_restore_of_what_is_released_meanwhile_is_refused_or_whole(
    lake: Lake, store: CountingStore, clock: ManualClock
) -> None:
    between = Between(store.inner)
    table = Lake(between, clock).create_table("t", SCHEMA)
    history(table, clock, 3)
    table.optimize()
    keeper = keep(table, 2)
    table.vacuum(NONE)

    def vanish() -> None:
        other = Lake(store.inner, clock).table("t")
        release(store.inner, keeper)
        other.vacuum(NONE)

    between.when = lambda kind, key: kind == "put_if_absent" and "_delta_log" in key
    between.then = vanish
    with pytest.raises(VersionExpired):
        table.restore(2)
    assert values(cold(table)) == [0, 1, 2]


def test_a_dropped_table_keeps_what_keepers_need(table: Table, clock: ManualClock) -> None:
    keeper = keep(table, 2)
    clock.advance(1)
    moment = keep_moment(table.lake.catalog, BRANCH, "fix")
    clock.advance(1)
    table.lake.drop_table("t")
    clock.advance(60 * DAY)
    table.vacuum(NONE)
    table.lake.create_table("t", SCHEMA).append([{"x": 9}])
    table.vacuum(NONE)
    assert kept(table, keeper) == [0, 1]
    assert kept(table, moment) == [0, 1, 2]
    assert values(cold(table)) == [9]


def test_a_moment_holds_all_of_a_transaction_or_nothing(lake: Lake, clock: ManualClock, store: CountingStore) -> None:
    """Its writer dies before it has carried out what was decided in the second table."""
    between = Between(store.inner)
    racing = Lake(between, clock)
    for name in ("a", "b"):
        racing.create_table(name, SCHEMA).append([{"x": 1}])
    commits: list[str] = []

    class Dead(BaseException):
        pass

    def carried_out(kind: str, key: str) -> bool:
        if kind == "put_if_absent" and "_delta_log" in key:
            commits.append(key)
        return len(commits) == 4

    def die() -> None:
        raise Dead

    clock.advance(1)
    between.when, between.then = carried_out, die
    tx = racing.transaction()
    for name in ("a", "b"):
        tx.table(name).append([{"x": 2}])
    with pytest.raises(Dead):
        tx.commit()
    clock.advance(1)
    moment = keep_moment(lake.catalog, TAG, "both")
    before = keep_moment(lake.catalog, TAG, "none", clock.now_ms() - 1500)
    clock.advance(5 * DAY)
    for name in ("b", "a"):
        lake.table(name).append([{"x": 3}])
        lake.table(name).delete("true")
        lake.table(name).vacuum(NONE)
    for name in ("a", "b"):
        assert kept(lake.table(name), moment) == [1, 2]
        assert kept(lake.table(name), before) == [1]


def test_verify_finds_what_is_missing_of_a_kept_version(table: Table, clock: ManualClock, store: CountingStore) -> None:
    files = [file.path for file in table.snapshot(2).files]
    keep(table, 2)
    age(table, clock)
    table.vacuum(NONE)
    assert cold(table).verify(full=True).findings == ()
    store.delete([f"t/{files[0]}"])
    (finding,) = cold(table).verify().findings
    assert (finding.kind, finding.version, finding.file) == ("kept-file-damaged", 2, files[0])
    store.delete(["t/_delta_log/00000000000000000002.checkpoint.parquet"])
    assert "kept-version-unreadable" in cold(table).verify().found


def test_times_of_the_store_are_never_asked_of_a_plain_read(table: Table, store: CountingStore) -> None:
    keep(table, 2)
    fresh = cold(table)
    store.reset()
    values(fresh)
    assert not [key for _, key in store.keys if key.startswith(KEPT)]


def test_a_process_reads_a_keeper_once_for_all_tables(lake: Lake, clock: ManualClock, store: CountingStore) -> None:
    for name in ("a", "b"):
        lake.create_table(name, SCHEMA).append([{"x": 1}])
    clock.advance(1)
    keep_moment(lake.catalog, TAG, "x")
    clock.advance(1)
    for name in ("a", "b"):
        lake.table(name).delete("true")
    store.reset()
    for name in ("a", "b"):
        lake.table(name).vacuum(NONE)
    assert store.keys.count(("get", keeper_key(None, TAG, "x"))) == 1
    keep_moment(lake.catalog, TAG, "x", replaces=True)
    assert [each.name for each in list_keepers(store, None, TAG)] == ["x"]
