"""Keepers: what vacuum and log clean-up leave for tags, clones and branches, and what happens when they go."""

from __future__ import annotations

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.delta.refs import BRANCH, CLONE, KEPT, TAG, Keeper, keeper_key, list_keepers, put_keeper, release
from alluvia.errors import Invalid, VersionExpired
from alluvia.operations.references.pinned_versions import keep_moment, keep_version
from alluvia.store import CountingStore
from tests.judges import judges_agree
from tests.unit.operations.references.kept import NONE, Between, age, keep, kept, with_history
from tests.unit.operations.vacuuming import DAY, SCHEMA, cold, history, values


@pytest.fixture
def table(lake: Lake, clock: ManualClock) -> Table:
    return with_history(lake, clock)


def readable(table: Table) -> list[int]:
    fresh = cold(table)
    found = sorted(entry.version for entry in fresh.history() if entry.readable)
    for version in range(fresh.version + 1):
        if version in found:
            values(fresh, version)
        else:
            with pytest.raises(VersionExpired):
                values(fresh, version)
    return found


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
