"""Publishing changes to files that the lake has compacted since the branch was cut: the compactions are undone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.api.lake_branch import Branch
from alluvia.clock import ManualClock
from alluvia.errors import Conflict, FilesCompacted
from alluvia.operations.compaction.revert_compaction import UNDO
from alluvia.store import MemoryStore
from tests.transactions import HookedStore

Rows = list[tuple[int, str]]
VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture(params=[{}, VECTORS], ids=["plain", "deletion vectors"])
def lake(request: pytest.FixtureRequest, clock: ManualClock) -> Lake:
    lake = Lake(MemoryStore("compacted", clock), clock)
    orders = lake.create_table("orders", {"id": "long", "v": "string"}, sort_by=["id"], properties=request.param)
    for start in (10, 20, 30):
        orders.append([{"id": start + at, "v": "a"} for at in range(3)])
    clock.advance(1)
    return lake


@pytest.fixture
def fix(lake: Lake, clock: ManualClock) -> Branch:
    """Return a branch that has deleted a row and changed another, while the lake got rows that neither looked for."""
    fix = lake.branch("fix")
    clock.advance(1)
    fix["orders"].delete("id = 11")
    fix["orders"].update({"v": "'z'"}, where="id = 21")
    lake["orders"].append([{"id": 70, "v": "n"}])
    return fix


def rows(table: Table) -> Rows:
    return sorted((row["id"], row["v"]) for row in table.to_arrow().to_pylist())


def wanted(*more: int) -> Rows:
    """Return what the lake holds once the branch was published, with other rows that were appended there."""
    kept = [(start + at, "a") for start in (10, 20, 30) for at in range(3) if start + at not in (11, 21)]
    return sorted([*kept, (21, "z"), *((each, "n") for each in (70, *more))])


def test_what_the_branch_has_changed_is_published(lake: Lake, fix: Branch) -> None:
    orders = lake["orders"]
    orders.optimize(full=True)
    orders.append([{"id": 80, "v": "n"}])
    assert orders.optimize(full=True).files_after == 1
    before = orders.version
    [planned] = fix.publish(dry_run=True).tables
    assert (planned.how, orders.version) == ("rebased", before)
    [done] = fix.publish().tables
    assert (done.how, done.version) == ("rebased", before + 2)
    assert rows(orders) == wanted(80)
    undone = orders.history()[1]
    assert (undone.operation, undone.parameters) == (UNDO, {"versions": f"{before - 2}, {before}"})
    assert orders.verify(full=True).ok
    fix.drop()
    orders.optimize(full=True)
    orders.vacuum(timedelta(0))
    assert rows(orders) == wanted(80)


def test_compactions_on_both_sides_do_not_conflict(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("compacting")
    clock.advance(1)
    fix["orders"].append([{"id": 50, "v": "n"}])
    fix["orders"].optimize(full=True)
    lake["orders"].append([{"id": 70, "v": "n"}])
    lake["orders"].optimize(full=True)
    [done] = fix.publish().tables
    assert done.how == "rebased"
    assert [row[0] for row in rows(lake["orders"])] == [10, 11, 12, 20, 21, 22, 30, 31, 32, 50, 70]


def test_a_branch_that_only_compacts_does_not_conflict(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("compacting")
    clock.advance(1)
    fix["orders"].optimize(full=True)
    lake["orders"].append([{"id": 70, "v": "n"}])
    lake["orders"].optimize(full=True)
    [done] = fix.publish().tables
    assert done.how == "rebased"
    assert len(lake["orders"].files) == 2
    assert [row[0] for row in rows(lake["orders"])] == [10, 11, 12, 20, 21, 22, 30, 31, 32, 70]


def test_nothing_is_undone_where_rows_changed_in_what_a_compaction_wrote(lake: Lake, fix: Branch) -> None:
    orders = lake["orders"]
    orders.optimize(full=True)
    orders.delete("id = 30")
    before = orders.version
    [planned] = fix.publish(dry_run=True).tables
    assert planned.how == "conflict"
    with pytest.raises(FilesCompacted, match=r"^table orders: version 5 moved the rows of .* \(FilesCompacted\)$"):
        fix.publish()
    assert orders.version == before


def test_nothing_is_undone_where_vacuum_has_taken_what_a_compaction_read(
    lake: Lake, fix: Branch, clock: ManualClock
) -> None:
    orders = lake["orders"]
    orders.optimize(full=True)
    clock.advance(60)
    orders.vacuum(timedelta(0))
    before = orders.version
    with pytest.raises(FilesCompacted):
        fix.publish()
    assert orders.version == before


def test_a_compaction_that_comes_between_is_undone_as_well(lake: Lake, fix: Branch) -> None:
    lake["orders"].optimize(full=True)
    times = [0, 1]

    def compact(kind: str, _: str) -> None:
        if times and kind == "put_if_absent" and lake["orders"].history()[0].operation == UNDO:
            times.pop()
            lake["orders"].optimize(full=True)

    Lake(HookedStore(lake.store, compact), lake.clock).on_branch("fix").publish()
    assert [each.operation for each in lake["orders"].history()[:6]] == ["PUBLISH", UNDO, *(("OPTIMIZE", UNDO) * 2)]
    assert rows(lake["orders"]) == wanted()


def between_compactions(lake: Lake, clock: ManualClock) -> tuple[Branch, Branch]:
    """Return branches that were cut before and after a compaction; after it, a row came, and all was compacted."""
    first = lake.branch("first")
    clock.advance(1)
    lake["orders"].optimize(full=True)
    clock.advance(1)
    second = lake.branch("second")
    clock.advance(1)
    lake["orders"].append([{"id": 70, "v": "n"}])
    lake["orders"].optimize(full=True)
    return first, second


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
@pytest.mark.parametrize("change", ["id < 40", "id = 12"])
def test_what_another_branch_has_changed_is_not_brought_back(
    lake: Lake, clock: ManualClock, isolation: str, change: str
) -> None:
    first, second = between_compactions(lake, clock)
    first["orders"].update({"v": "'z'"}, where="id = 10")
    second["orders"].delete(change)
    second.publish(isolation=isolation)
    before = rows(lake["orders"])
    assert (12, "a") not in before
    with pytest.raises(Conflict):
        first.publish(isolation=isolation)
    assert rows(lake["orders"]) == before


def test_rows_survive_several_undone_compactions(lake: Lake, clock: ManualClock) -> None:
    first, second = between_compactions(lake, clock)
    first["orders"].optimize(full=True)
    second["orders"].update({"v": "'y'"}, where="id = 12")
    wanted = [(id_, "y" if id_ == 12 else v) for id_, v in rows(lake["orders"])]
    first.publish()
    lake["orders"].append([{"id": 80, "v": "n"}])
    lake["orders"].optimize(full=True)
    second.publish()
    assert rows(lake["orders"]) == [*wanted, (80, "n")]
    assert lake["orders"].verify(full=True).ok
