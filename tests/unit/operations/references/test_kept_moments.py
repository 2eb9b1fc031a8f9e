"""Keepers of a moment keep each table of the lake as it was then."""

from __future__ import annotations

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.delta.refs import BRANCH, KEPT, TAG, Keeper, find_keeper, list_keepers, release
from alluvia.errors import TableNotFound, VersionExpired
from alluvia.operations.checkpointing import checkpoint
from alluvia.operations.references.pinned_versions import keep_moment
from alluvia.store import CountingStore
from tests.transactions import kept_snapshot
from tests.unit.operations.references.kept import NONE, Between, age, keep, kept, with_history
from tests.unit.operations.vacuuming import DAY, SCHEMA, cold, values


@pytest.fixture
def table(lake: Lake, clock: ManualClock) -> Table:
    return with_history(lake, clock)


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
