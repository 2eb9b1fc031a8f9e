"""A branch of a lake: what it shows, what writing on it does to it and to the lake, and what it leaves behind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Invalid, TableNotFound, VersionNotFound
from alluvia.store import CountingStore, MemoryStore


@pytest.fixture
def lake(clock: ManualClock) -> Lake:
    lake = Lake(CountingStore(MemoryStore("branches", clock)), clock)
    orders = lake.create_table("orders", {"id": "long", "v": "string"})
    orders.append([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    clock.advance(1)
    return lake


def ids(lake: Lake, table: str = "orders") -> list[Any]:
    return sorted(row["id"] for row in lake[table].to_arrow().to_pylist())


def counted(lake: Lake) -> CountingStore:
    assert isinstance(lake.store, CountingStore)
    return lake.store


def test_cutting_a_branch_is_four_requests(lake: Lake) -> None:
    counted(lake).reset()
    lake.branch("fix")
    assert dict(counted(lake).requests) == {"list": 3, "put": 1}


def test_it_shows_the_lake_as_it_was(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("fix")
    clock.advance(1)
    lake["orders"].append([{"id": 3, "v": "c"}])
    lake.create_table("later", {"id": "long"})
    lake.drop_table("orders")
    for branch in (fix, lake.on_branch("fix"), Lake(lake.store, clock).on_branch("fix")):
        assert ids(branch) == [1, 2]
        assert branch.tables() == ["orders"]
        assert "later" not in branch
        with pytest.raises(TableNotFound):
            branch["later"].to_arrow()
        assert branch["orders"].version == 1
        with pytest.raises(VersionNotFound):
            branch["orders"].to_arrow(version=2)
    assert lake.tables() == ["later"]


def test_writing_on_it_leaves_the_lake_alone(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("fix")
    clock.advance(1)
    before = {info.key for info in lake.store.list("orders/")}
    fix["orders"].append([{"id": 10, "v": "x"}])
    fix["orders"].delete("id = 1")
    fix["orders"].update({"v": "'u'"}, "id = 2")
    fix["orders"].upsert([{"id": 11, "v": "y"}], on=["id"])
    fix["orders"].evolve(add={"w": "long"})
    fix.create_table("made", {"id": "long"}).append([{"id": 7}])
    fix.sql("INSERT INTO made VALUES (8)")
    assert ids(fix) == [2, 10, 11]
    assert fix.tables() == ["made", "orders"]
    assert ids(fix, "made") == [7, 8]
    assert {info.key for info in lake.store.list("orders/")} == before
    assert lake.tables() == ["orders"]
    assert lake["orders"].version == 1
    assert [entry.version for entry in fix["orders"].history()] == [6, 5, 4, 3, 2, 1, 0]
    assert sorted(row["id"] for row in fix["orders"].to_arrow(version=1).to_pylist()) == [1, 2]
    again = Lake(lake.store, clock).on_branch("fix")
    assert again["orders"].to_arrow().equals(fix["orders"].to_arrow())


def test_both_sides_go_on_from_the_same_version(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("fix")
    clock.advance(1)
    assert fix["orders"].append([{"id": 10, "v": "x"}]).version == 2
    assert lake["orders"].append([{"id": 20, "v": "y"}]).version == 2
    assert (ids(fix), ids(lake)) == ([1, 2, 10], [1, 2, 20])
    other = lake.branch("other")
    clock.advance(1)
    other["orders"].delete("id = 20")
    assert (ids(fix), ids(lake), ids(other)) == ([1, 2, 10], [1, 2, 20], [1, 2])


def test_a_dropped_table_is_hidden_on_the_branch_alone(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("fix")
    clock.advance(1)
    fix.drop_table("orders")
    assert fix.tables() == []
    with pytest.raises(TableNotFound):
        fix["orders"].to_arrow()
    assert ids(lake) == [1, 2]
    fix.undrop("orders")
    assert ids(fix) == [1, 2]
    fix.drop_table("orders")
    fix.create_table("orders", {"id": "long"}).append([{"id": 5}])
    assert ids(fix) == [5]


def test_a_transaction_over_tables_of_the_branch(lake: Lake, clock: ManualClock) -> None:
    lake.create_table("others", {"id": "long"})
    clock.advance(1)
    fix = lake.branch("fix")
    clock.advance(1)
    with fix.transaction() as tx:
        tx.table("orders").append([{"id": 10, "v": "x"}])
        tx.table("others").append([{"id": 11}])
    assert (ids(fix), ids(fix, "others")) == ([1, 2, 10], [11])
    assert (ids(lake), ids(lake, "others")) == ([1, 2], [])


def test_events_that_the_lake_knew_are_known(lake: Lake, clock: ManualClock) -> None:
    import pyarrow as pa

    def rows(*names: str) -> pa.Table:
        schema = lake["events"].schema
        now = clock.now_us()
        return pa.Table.from_pylist([{"event_id": name, "ts": now, "received_at": now} for name in names], schema)

    lake.create_events("events").ingest(rows("a", "b"))
    lake["events"].checkpoint()
    clock.advance(1)
    fix = lake.branch("fix")
    clock.advance(1)
    lake["events"].ingest(rows("c"))
    assert fix["events"].ingest(rows("b", "c", "d")).duplicates == 1
    assert fix["events"].ingest(rows("c", "d")).duplicates == 2
    assert fix["events"].count() == 4


def test_maintenance_works_on_a_branch(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("fix")
    clock.advance(1)
    fix["orders"].append([{"id": 10, "v": "x"}])
    assert fix["orders"].optimize(full=True).files_after == 1
    fix["orders"].checkpoint()
    clock.advance(10)
    assert len(fix["orders"].vacuum(timedelta(0)).data_files) == 1  # its own; the other is the lake's
    assert fix["orders"].verify(full=True).ok
    assert ids(Lake(lake.store, clock).on_branch("fix")) == [1, 2, 10]
    assert ids(lake) == [1, 2]
    assert lake["orders"].verify(full=True).ok


def test_vacuum_of_the_lake_keeps_what_a_branch_shows(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("fix")
    clock.advance(1)
    lake["orders"].delete("id = 1")
    clock.advance(60 * 24 * 3600)
    lake["orders"].append([{"id": 3, "v": "c"}])
    lake["orders"].checkpoint()
    clock.advance(60 * 24 * 3600)
    lake["orders"].vacuum(timedelta(0))
    assert ids(Lake(lake.store, clock).on_branch("fix")) == [1, 2]
    fix["orders"].append([{"id": 10, "v": "x"}])
    assert ids(Lake(lake.store, clock).on_branch("fix")) == [1, 2, 10]
    fix.drop()
    assert len(lake["orders"].vacuum(timedelta(0)).orphans) == 1


def test_a_branch_of_the_past(lake: Lake, clock: ManualClock) -> None:
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    clock.advance(5)
    lake["orders"].append([{"id": 3, "v": "c"}])
    assert ids(lake.branch("old", at=moment)) == [1, 2]
    assert ids(lake.branch("older", at=moment.isoformat())) == [1, 2]
    with pytest.raises(Invalid, match="future"):
        lake.branch("new", at="2100-01-01")
    with pytest.raises(Invalid, match="neither an ISO 8601 time nor a tag"):
        lake.branch("new", at="release")
    with pytest.raises(Invalid, match="before 1970"):
        lake.branch("new", at="0001-01-01T00:00:00+14:00")
    lake.tag("2026-q1")
    clock.advance(1)
    lake.tag("short", expires=timedelta(seconds=1))
    assert ids(lake.branch("tagged", at="2026-q1")) == [1, 2, 3]
    clock.advance(5)
    with pytest.raises(Invalid, match="neither an ISO 8601 time nor a tag"):
        lake.branch("new", at="short")
    assert [each.name for each in lake.branches()] == ["old", "older", "tagged"]


def test_names(lake: Lake, clock: ManualClock) -> None:
    lake.branch("fix", expires=timedelta(days=1))
    with pytest.raises(Invalid, match="there is a branch fix already"):
        lake.branch("fix")
    for name in ("", "Fix", "a/b", "../x", "lake"):
        with pytest.raises(Invalid, match="branch"):
            lake.branch(name)
    with pytest.raises(Invalid, match="there is no branch 'none'"):
        lake.on_branch("none")
    with pytest.raises(Invalid, match="branch concerns the lake"):
        lake.on_branch("fix").branch("more")
    (info,) = lake.branches()
    assert info.expires_at is not None
    clock.advance(2 * 24 * 3600)
    with pytest.raises(Invalid, match="expired"):
        lake.on_branch("fix")


def test_discarding_leaves_nothing(lake: Lake, clock: ManualClock) -> None:
    before = {info.key for info in lake.store.list("")}
    fix = lake.branch("fix")
    clock.advance(1)
    fix["orders"].append([{"id": 10, "v": "x"}])
    fix.create_table("made", {"id": "long"})
    fix.drop()
    assert {info.key for info in lake.store.list("")} == before
    assert lake.branches() == []
    with pytest.raises(Invalid, match="there is no branch"):
        fix.publish()
    again = lake.branch("fix")
    clock.advance(1)
    assert ids(again) == [1, 2]


def test_queries_join_branches_with_the_lake(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("pr-7")
    clock.advance(1)
    fix["orders"].append([{"id": 10, "v": "x"}])
    fix["orders"].delete("id = 1")
    joined = 'SELECT m.id AS old, b.id AS new FROM orders m FULL JOIN "pr-7".orders b USING (id) ORDER BY 1, 2'
    assert lake.sql(joined).to_pylist() == [
        {"old": 1, "new": None},
        {"old": 2, "new": 2},
        {"old": None, "new": 10},
    ]
    assert lake.sql('SELECT count(*) AS n FROM "pr-7".orders(version => 1)').to_pylist() == [{"n": 2}]
    assert fix.sql("SELECT (SELECT count(*) FROM lake.orders WHERE id = 1) AS m").to_pylist() == [{"m": 1}]
    lake.sql('INSERT INTO orders SELECT * FROM "pr-7".orders WHERE id = 10')
    assert ids(lake) == [1, 2, 10]
    with pytest.raises(TableNotFound):
        lake.sql("SELECT * FROM none.orders")
    with pytest.raises(TableNotFound):
        lake.sql('SELECT * FROM "pr-7".none')


def test_what_concerns_the_whole_lake_is_refused(lake: Lake) -> None:
    fix = lake.branch("fix")
    with pytest.raises(Invalid, match="erase concerns the lake"):
        fix["orders"].erase("id = 1")
    with pytest.raises(Invalid, match="published queries belong to the lake"):
        fix.publish_query("q", "SELECT id FROM orders")


def test_files_of_a_writer_that_does_not_know_the_branch_are_refused(lake: Lake, clock: ManualClock) -> None:
    """Where they lay would not be known, so they are never written."""
    from alluvia.delta.data_files.writer import FileWriter

    fix = lake.branch("fix")
    snapshot = fix["orders"].snapshot()
    writer = FileWriter(fix.store, snapshot.root, snapshot.partition_spec, snapshot.file_form, clock)
    with pytest.raises(Invalid, match="does not know of the branch"):
        writer.write(lake["orders"].to_arrow())


def test_erasing_finds_what_a_branch_shows_or_has_written(lake: Lake, clock: ManualClock) -> None:
    fix, other = lake.branch("fix"), lake.branch("other")
    clock.advance(1)
    other["orders"].append([{"id": 77, "v": "x"}])
    other["orders"].delete("id = 77")
    with pytest.raises(Invalid, match="by branch fix, branch other: discard the branches"):
        lake["orders"].erase("id = 1")
    fix.drop()
    with pytest.raises(Invalid, match="by branch other: discard"):
        lake["orders"].erase("id = 77")
    lake["orders"].erase("id = 99")
    other.drop()
    lake["orders"].erase("id = 1")
    assert ids(lake) == [2]


def test_queries_list_branches(lake: Lake) -> None:
    fix = lake.branch("fix", expires=timedelta(days=1))
    lake.branch("other")
    text = "SELECT name, expires_at IS NULL AS for_good, expired FROM branches() ORDER BY name"
    wanted = [
        {"name": "fix", "for_good": False, "expired": False},
        {"name": "other", "for_good": True, "expired": False},
    ]
    assert lake.sql(text).to_pylist() == fix.sql(text).to_pylist() == wanted


def test_vacuum_deletes_what_an_expired_branch_has_written(lake: Lake, clock: ManualClock) -> None:
    fix, other = lake.branch("fix", expires=timedelta(days=1)), lake.branch("other")
    clock.advance(1)
    for branch in (fix, other):
        branch["orders"].append([{"id": 10, "v": "x"}])
    lake["orders"].delete("id = 1")
    clock.advance(60 * 24 * 3600)
    lake["orders"].optimize(full=True)
    lake["orders"].delete("id = 2")
    clock.advance(24 * 3600)
    lake["orders"].vacuum(timedelta(0))
    assert [each.name for each in lake.branches()] == ["other"]
    folders = list(lake.store.list_folders("_alluvia/branches/"))
    assert folders == [other.keeper.id]
    assert ids(Lake(lake.store, clock).on_branch("other")) == [1, 2, 10]


def test_functions_that_tell_of_a_table_take_one_on_a_branch(lake: Lake) -> None:
    branch = lake.branch("pr-1.2")
    branch["orders"].append([{"id": 3, "v": "c"}])
    told = {
        "SELECT max(version) AS n FROM history('pr-1.2.orders')": 2,
        "SELECT sum(rows) AS n FROM files('PR-1.2.orders')": 3,
        "SELECT sum(id) AS n FROM changes('pr-1.2.orders', 2)": 3,
        "SELECT count(*) AS n FROM files('lake.orders')": 1,
    }
    for text, n in told.items():
        assert lake.sql(text).to_pylist() == [{"n": n}], text
    with pytest.raises(TableNotFound, match=r"none\.orders"):
        lake.sql("FROM files('none.orders')")
