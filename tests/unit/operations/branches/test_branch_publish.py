"""Publishing a branch: what the lake holds afterwards, which rule stands in the way, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.api.lake_branch import Branch
from alluvia.clock import ManualClock
from alluvia.errors import (
    AlluviaError,
    ConcurrentAppend,
    Conflict,
    Invalid,
    MetadataChanged,
    TableNotFound,
    Unavailable,
)
from alluvia.store import CountingStore, MemoryStore, Wrapper
from tests.rejects import create_rejects


@pytest.fixture
def lake(clock: ManualClock) -> Lake:
    lake = Lake(MemoryStore("publishing", clock), clock)
    orders = lake.create_table("orders", {"id": "long", "v": "string"})
    orders.append([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    lake.create_table("others", {"id": "long"}).append([{"id": 5}])
    clock.advance(1)
    return lake


def ids(lake: Lake, table: str = "orders") -> list[Any]:
    return sorted(row["id"] for row in lake[table].to_arrow().to_pylist())


def test_all_kinds_of_changes_in_one_transaction(lake: Lake, fix: Branch) -> None:
    lake.create_table("gone", {"id": "long"})
    fix["orders"].append([{"id": 10, "v": "x"}])
    fix["orders"].delete("id = 1")
    fix["orders"].evolve(add={"w": "long"})
    fix.drop_table("others")
    fix.create_table("made", {"id": "long"}).append([{"id": 7}])
    planned = fix.publish(dry_run=True)
    assert [(each.name, each.kind, each.how) for each in planned.tables] == [
        ("made", "created", "fast-forward"),
        ("orders", "changed", "fast-forward"),
        ("others", "dropped", "fast-forward"),
    ]
    assert ids(lake) == [1, 2]
    report = fix.publish()
    assert [each.version for each in report.tables] == [1, 3, 3]
    assert (ids(lake), ids(lake, "made")) == ([2, 10], [7])
    assert lake.tables() == ["gone", "made", "orders"]
    assert lake["orders"].schema.names == ["id", "v", "w"]
    history = lake["orders"].history()
    assert (history[0].operation, history[0].parameters) == ("PUBLISH", {"branch": "fix"})
    assert len({entry.transaction for name in ("made", "orders") for entry in lake[name].history()[:1]}) == 1
    fix.drop()
    for name in lake.tables():
        assert lake[name].verify(full=True).ok
        assert all(not file.path.startswith("/") and "://" not in file.path for file in lake[name].files)


def test_a_table_that_was_dropped_and_created_again(lake: Lake, fix: Branch) -> None:
    fix.drop_table("orders")
    fix.create_table("orders", {"id": "long"}).append([{"id": 9}])
    assert [each.kind for each in fix.diff()] == ["replaced"]
    fix.publish()
    assert (ids(lake), lake["orders"].schema.names) == ([9], ["id"])
    assert sorted(row["id"] for row in lake["orders"].to_arrow(version=1).to_pylist()) == [1, 2]


def test_appends_go_over_what_others_did(lake: Lake, fix: Branch) -> None:
    fix["orders"].append([{"id": 10, "v": "x"}])
    lake["orders"].append([{"id": 3, "v": "c"}])
    lake["orders"].delete("id = 1")
    lake["orders"].optimize(full=True)
    assert [each.how for each in fix.publish().tables] == ["rebased"]
    assert ids(lake) == [2, 3, 10]


def test_compactions_of_the_branch_are_no_change_of_rows(lake: Lake, fix: Branch) -> None:
    fix["orders"].append([{"id": 10, "v": "x"}])
    fix.publish()
    other = lake.branch("other")
    lake.clock.sleep(1)
    other["orders"].optimize(full=True)
    lake["orders"].append([{"id": 3, "v": "c"}])
    assert [(each.rows_added, each.rows_removed) for each in other.diff()] == [(0, 0)]
    assert [each.how for each in other.publish().tables] == ["rebased"]
    assert ids(lake) == [1, 2, 3, 10]
    assert [*lake["orders"].changes(lake["orders"].version)] == []


CONFLICTS: list[tuple[Callable[[Lake], Any], Callable[[Lake], Any], type[Conflict], str]] = [
    (lambda on: on["orders"].delete("id = 1"), lambda on: on["orders"].append([{"id": 1, "v": "c"}]),
     ConcurrentAppend, r"^table orders: version 2 added .* \(ConcurrentAppend\)$"),
    (lambda on: on["orders"].upsert([{"id": 9}], on=["id"]), lambda on: on["orders"].append([{"id": 9, "v": "c"}]),
     ConcurrentAppend, r"^table orders: .* \(ConcurrentAppend\)$"),
    (lambda on: on["orders"].delete("id = 1"), lambda on: on["orders"].delete("id = 2"),
     Conflict, r"^table orders: .* \(Concurrent"),
    (lambda on: on["orders"].evolve(add={"w": "long"}), lambda on: on["orders"].evolve(add={"w": "string"}),
     MetadataChanged, r"^table orders: .* \(MetadataChanged\)$"),
    (lambda on: on["orders"].append([{"id": 9, "v": "c"}]), lambda on: on.drop_table("orders"),
     Conflict, r"^table orders: version 2 dropped the table \(TableDropped\)$"),
    (lambda on: on.drop_table("orders"), lambda on: on["orders"].append([{"id": 3, "v": "c"}]),
     ConcurrentAppend, r"^table orders: .* \(ConcurrentAppend\)$"),
    (lambda on: on.create_table("made", {"id": "long"}), lambda on: on.create_table("made", {"id": "string"}),
     Conflict, r"^table made: it was created on the branch and.* \(TableExists\)$"),
    (lambda on: on["orders"].restore(0), lambda on: on["orders"].append([{"id": 3, "v": "c"}]),
     ConcurrentAppend, r"^table orders: .* \(ConcurrentAppend\)$"),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "kind", "message"), CONFLICTS)
def test_a_conflict_names_the_table_and_the_rule(
    lake: Lake,
    fix: Branch,
    ours: Callable[[Lake], Any],
    theirs: Callable[[Lake], Any],
    kind: type[Conflict],
    message: str,
) -> None:
    ours(fix)
    fix["others"].append([{"id": 6}])
    theirs(lake)
    before = {info.key: info.etag for info in lake.store.list("o") if "/_delta_log/" in info.key}
    planned = {each.name: each.how for each in fix.publish(dry_run=True).tables}
    assert planned["others"] == "fast-forward"
    assert "conflict" in planned.values()
    with pytest.raises(kind, match=message):
        fix.publish()
    assert {info.key: info.etag for info in lake.store.list("o") if "/_delta_log/" in info.key} == before
    assert ids(lake, "others") == [5]


def test_rows_that_others_add_may_be_left_out_of_account(lake: Lake, fix: Branch) -> None:
    fix["orders"].delete("id = 1")
    lake["orders"].append([{"id": 1, "v": "c"}])
    with pytest.raises(Invalid, match="isolation"):
        fix.publish(isolation="none")
    fix.publish(isolation="snapshot")
    assert ids(lake) == [1, 2]


def test_it_is_published_once(lake: Lake, fix: Branch) -> None:
    fix["orders"].append([{"id": 10, "v": "x"}])
    other = Lake(lake.store, lake.clock).on_branch("fix")
    fix.publish()
    assert other.publish().tables == ()
    assert ids(lake) == [1, 2, 10]
    fix["orders"].append([{"id": 11, "v": "x"}])
    with pytest.raises(Conflict, match="published before orders changed"):
        fix.publish()
    assert ids(lake) == [1, 2, 10]
    assert ids(fix) == [1, 2, 10, 11]


def test_two_branches_go_into_the_lake_one_after_the_other(lake: Lake, fix: Branch) -> None:
    other = lake.branch("other")
    fix["orders"].append([{"id": 10, "v": "x"}])
    other["orders"].append([{"id": 11, "v": "x"}])
    fix.publish()
    other.publish()
    assert ids(lake) == [1, 2, 10, 11]


def test_events_that_a_restore_brings_back_may_have_come_again(lake: Lake, clock: ManualClock) -> None:
    events = lake.create_events("events")

    def ingest() -> int:
        now = clock.now_us()
        rows = pa.Table.from_pylist([{"event_id": "a", "ts": now, "received_at": now}], events.schema)
        return events.ingest(rows).appended

    assert ingest() == 1
    events.restore(version=0)
    clock.advance(1)
    fix = lake.branch("fix")
    clock.advance(1)
    fix["events"].restore(version=1)
    assert ingest() == 1
    with pytest.raises(ConcurrentAppend):
        fix.publish(isolation="snapshot")
    assert events.count() == 1


def test_events_go_along(lake: Lake, clock: ManualClock) -> None:
    lake.create_events("events")
    clock.advance(1)
    fix, other = lake.branch("fix"), lake.branch("other")
    clock.advance(1)

    def rows(*names: str) -> pa.Table:
        now = clock.now_us()
        found = [{"event_id": name, "ts": now, "received_at": now} for name in names]
        return pa.Table.from_pylist(found, lake["events"].schema)

    fix["events"].ingest(rows("a", "b"))
    other["events"].ingest(rows("b", "c"))
    fix.publish()
    assert lake["events"].ingest(rows("a", "b", "d")).duplicates == 2
    clock.advance(100 * 24 * 3600)  # the window of the lake has long forgotten them
    lake["events"].ingest(rows("e"))
    with pytest.raises(ConcurrentAppend, match="table events: 1 events that the branch ingested are on"):
        other.publish()
    assert sorted(lake["events"].to_arrow()["event_id"].to_pylist()) == ["a", "b", "d", "e"]


def test_deletion_vectors_and_rejects_go_along(lake: Lake, clock: ManualClock) -> None:
    marked = lake.create_table("marked", {"id": "long"}, properties={"delta.enableDeletionVectors": "true"})
    marked.append([{"id": number} for number in range(100)])
    clock.advance(1)
    fix = lake.branch("fix")
    clock.advance(1)
    fix["marked"].delete("id % 2 = 1")
    create_rejects(fix, "marked", {"id": "long"}).append([{"id": 1}])
    fix.publish()
    fix.drop()
    assert ids(lake, "marked") == list(range(0, 100, 2))
    assert ids(lake, "marked/_rejects") == [1]
    assert lake["marked"].verify(full=True).ok


def test_the_diff_tells_rows_columns_and_properties(lake: Lake, fix: Branch) -> None:
    fix["orders"].update({"v": "'z'"}, "id = 1")
    fix["orders"].delete("id = 2")
    fix["orders"].append([{"id": 10, "v": "x"}, {"id": 11, "v": "y"}])
    fix["orders"].evolve(add={"w": "long"}, properties={"alluvia.ttl": None, "delta.logRetentionDuration": "2 days"})
    fix["others"].append([{"id": 6}])
    lake["orders"].append([{"id": 3, "v": "c"}])
    orders, others = fix.diff(key=["id"])
    assert (orders.rows_added, orders.rows_removed, orders.rows_changed) == (2, 1, 1)
    assert (others.rows_added, others.rows_removed, others.rows_changed) == (1, 0, 0)
    assert (orders.columns_added, orders.columns_removed, orders.columns_changed) == ({"w": "long"}, {}, {})
    assert orders.properties == {"delta.logRetentionDuration": (None, "2 days")}
    (without,) = fix.diff("orders")
    assert (without.rows_added, without.rows_removed, without.rows_changed) == (3, 2, None)
    rows = fix.diff_rows("orders", key=["id"]).read_all().to_pylist()
    assert sorted((row["_change_type"], row["id"], row["v"]) for row in rows) == [
        ("delete", 2, "b"),
        ("insert", 10, "x"),
        ("insert", 11, "y"),
        ("update_postimage", 1, "z"),
        ("update_preimage", 1, "a"),
    ]
    with pytest.raises(Invalid, match="key: 'none' is not a column of orders"):
        fix.diff("orders", key=["none"])
    with pytest.raises(Invalid, match="there are no rows to show"):
        fix.diff_rows("none")


class DyingStore(Wrapper):
    """Lets so many requests that write through, and no more."""

    left = -1

    def request(self, kind: str, key: str, send: Callable[[], Any]) -> Any:
        if kind.startswith(("put", "copy", "delete")):
            if self.left == 0:
                raise Unavailable("the process died")
            self.left -= 1
        return send()


def test_a_publish_that_dies_is_whole_or_nothing_and_can_be_tried_again(clock: ManualClock) -> None:
    writes, outcomes = 0, set()
    while True:
        memory = MemoryStore(f"dying-{writes}", clock)
        lake = Lake(memory, clock)
        for name in ("one", "two"):
            lake.create_table(name, {"id": "long"}).append([{"id": 1}])
        clock.advance(1)
        fix = lake.branch("fix")
        clock.advance(1)
        fix["one"].append([{"id": 2}])
        fix["two"].delete("id = 1")
        fix.create_table("three", {"id": "long"}).append([{"id": 3}])
        store = DyingStore(memory)
        store.left = writes
        try:
            Lake(store, clock).on_branch("fix").publish()
            died = False
        except AlluviaError:
            died = True
        clock.advance(60)
        fresh = Lake(memory, clock)
        held = (ids(fresh, "one"), ids(fresh, "two"), "three" in fresh)
        assert held in (([1], [1], False), ([1, 2], [], True))
        outcomes.add(held[2])
        fresh.on_branch("fix").publish()
        assert (ids(fresh, "one"), ids(fresh, "two"), ids(fresh, "three")) == ([1, 2], [], [3])
        for name in ("one", "two", "three"):
            assert fresh[name].verify(full=True).ok
        if not died:
            break
        writes += 1
    assert outcomes == {True, False}
    assert writes > 8


def test_the_cost_does_not_depend_on_tables_that_were_not_touched(clock: ManualClock) -> None:
    costs = []
    for tables in (10, 1000):
        lake = Lake(CountingStore(MemoryStore(f"many-{tables}", clock)), clock)
        for number in range(tables):
            lake.create_table(f"t{number:04}", {"id": "long"})
        clock.advance(1)
        store = lake.store
        assert isinstance(store, CountingStore)
        fresh = Lake(store, clock)
        store.reset()
        fix = fresh.branch("fix")
        clock.advance(1)
        assert store.requests.total() == 4
        for number in (3, 5, 7):
            fix[f"t{number:04}"].append([{"id": number}])
        assert [each.rows_added for each in fix.diff()] == [1, 1, 1]
        assert len(fix.publish().tables) == 3
        fix.drop()
        costs.append(dict(store.requests))
        assert [fresh[f"t{number:04}"].count() for number in (3, 4, 5, 7)] == [1, 0, 1, 1]
    assert costs[0] == costs[1]


def test_a_branch_of_a_dropped_table_finds_none(lake: Lake, clock: ManualClock) -> None:
    lake.drop_table("orders")
    clock.advance(1)
    fix = lake.branch("fix")
    clock.advance(1)
    with pytest.raises(TableNotFound):
        fix["orders"].to_arrow()
    fix.create_table("orders", {"id": "long"}).append([{"id": 4}])
    fix.publish()
    assert ids(lake) == [4]


def test_schemas_of_new_tables_are_published(lake: Lake, fix: Branch) -> None:
    fix.create_schema("empty")
    for name in ("gold", "silver"):
        fix.create_schema(name)
        fix.create_table(f"{name}.g", {"id": "long"}).append([{"id": 7}])
    lake.create_schema("silver")
    assert [each.how for each in fix.publish(dry_run=True).tables] == ["fast-forward", "fast-forward"]
    assert lake.schemas() == ["main", "silver"]
    fix.publish()
    assert (lake.schemas(), ids(lake, "gold.g"), ids(lake, "silver.g")) == (["main", "gold", "silver"], [7], [7])
    lake.create_table("gold.more", {"id": "long"})


def test_a_branch_with_the_name_of_a_new_schema_is_a_conflict(lake: Lake, fix: Branch) -> None:
    fix.create_schema("gold")
    fix.create_table("gold.g", {"id": "long"})
    fix["orders"].append([{"id": 10, "v": "x"}])
    lake.branch("gold")
    assert [each.how for each in fix.publish(dry_run=True).tables] == ["conflict", "fast-forward"]
    with pytest.raises(Conflict, match=r"table gold\.g: there is a branch 'gold'"):
        fix.publish()
    assert (lake.schemas(), ids(lake)) == (["main"], [1, 2])
    lake.drop_branch("gold")
    fix.publish()
    assert lake.tables() == ["orders", "others", "gold.g"]
