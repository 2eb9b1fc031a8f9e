"""What the lake must not lose by a branch, nor a branch by the lake: older versions, events, and what expires."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, connect
from alluvia.api.lake_branch import Branch
from alluvia.clock import ManualClock
from alluvia.errors import BranchGone, Conflict, Invalid, ObjectNotFound, ReadOnly
from alluvia.operations.references.branch_store import BRANCHES
from alluvia.operations.retention.vacuum import vacuum
from alluvia.store import MemoryStore, Wrapper
from tests.rejects import create_rejects

NOW = timedelta(0)


@pytest.fixture
def lake(clock: ManualClock) -> Lake:
    lake = Lake(MemoryStore("safety", clock), clock)
    lake.create_table("orders", {"id": "long"}).append([{"id": 1}, {"id": 2}])
    lake.create_table("others", {"id": "long"}).append([{"id": 5}])
    clock.advance(1)
    return lake


@pytest.fixture
def fix(lake: Lake, clock: ManualClock) -> Branch:
    """A branch that was cut after all rows of `orders` had been deleted."""
    lake["orders"].delete("id > 0")
    clock.advance(1)
    fix = lake.branch("fix")
    clock.advance(1)
    return fix


def ids(lake: Lake, table: str = "orders") -> list[Any]:
    return sorted(row["id"] for row in lake[table].to_arrow().to_pylist())


def before(fix: Branch) -> datetime:
    """Return a moment at which the rows of `orders` were there."""
    return datetime.fromtimestamp(fix["orders"].snapshot(1).timestamp_ms / 1000 + 0.1, UTC)


def _restored(fix: Branch) -> None:
    fix["orders"].restore(1)


def _restored_lake(fix: Branch) -> None:
    fix.restore(timestamp=before(fix))


@pytest.mark.parametrize("restore", [_restored, _restored_lake])
def test_what_a_branch_restores_is_its_own(lake: Lake, fix: Branch, restore: Callable[[Branch], None]) -> None:
    restore(fix)
    assert len(lake["orders"].vacuum(NOW).data_files) == 1
    assert ids(fix) == [1, 2]
    fix.publish()
    fix.drop()
    assert ids(lake) == [1, 2]
    assert lake["orders"].verify(full=True).ok


def test_what_a_branch_undrops_is_its_own(lake: Lake, clock: ManualClock) -> None:
    lake.drop_table("orders")
    clock.advance(1)
    fix = lake.branch("fix")
    clock.advance(1)
    fix.undrop("orders")
    assert len(vacuum(lake.catalog.handle("orders"), NOW).data_files) == 1
    fix.publish()
    assert ids(lake) == ids(fix) == [1, 2]


def test_a_restore_to_the_beginning_of_the_branch_copies_nothing(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("fix")
    clock.advance(1)
    fix["orders"].delete("id > 0")
    fix["orders"].restore(1)
    assert fix.diff() == []


def test_shallow_clones_and_tags_of_older_versions_are_refused(lake: Lake, fix: Branch) -> None:
    with pytest.raises(Invalid, match="make a deep one"):
        fix.clone("orders", "copy")
    with pytest.raises(Invalid, match=r"older than the branch.*tag it on the lake"):
        fix["orders"].tag("old", version=1)
    with pytest.raises(Invalid, match="older than the branch"):
        fix.tag("old", before(fix))
    fix["orders"].tag("begin")
    fix.clone("others", "copy", deep=True)
    fix.publish()
    fix.drop()
    assert ids(lake, "copy") == [5]
    assert lake.tables() == ["copy", "orders", "others"]


def test_tables_of_a_branch_are_read_only_from_elsewhere(lake: Lake, clock: ManualClock) -> None:
    lake["others"].tag("kept")
    lake["others"].delete("id = 5")
    clock.advance(1)
    fix = lake.branch("fix")
    clock.advance(1)
    fix["orders"].append([{"id": 3}])
    tries: list[Callable[[], object]] = [
        lambda: fix["lake:others"].vacuum(NOW),
        lambda: fix["lake:orders"].delete("id = 1"),
        lambda: lake["fix:orders"].append([{"id": 4}]),
        lambda: lake.drop_table("fix:orders"),
        lambda: lake.clone("fix:orders", "copy"),
        lambda: lake["fix:orders"].tag("x"),
    ]
    for each in tries:
        with pytest.raises(ReadOnly, match=r"can only be read from here: .* works on (branch fix|the lake) itself"):
            each()
    with pytest.raises(Invalid, match="create it on the branch"):
        lake.create_stream("new", "fix:orders")
    assert (ids(lake, "fix:orders"), ids(lake)) == ([1, 2, 3], [1, 2])
    assert lake["others"].to_arrow(tag="kept").num_rows == 1


def test_a_table_written_after_the_branch_was_published_conflicts(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("fix")
    clock.advance(1)
    fix["orders"].append([{"id": 3}])
    fix.publish()
    fix["others"].append([{"id": 6}])
    with pytest.raises(Conflict, match="published before others changed on it"):
        fix.publish()


def test_events_that_a_restore_on_the_branch_has_left_are_known(lake: Lake, clock: ManualClock) -> None:
    lake.create_events("events")
    clock.advance(1)
    fix = lake.branch("fix")
    clock.advance(1)

    def rows(*names: str) -> pa.Table:
        now = clock.now_us()
        found = [{"event_id": name, "ts": now, "received_at": now} for name in names]
        return pa.Table.from_pylist(found, lake["events"].schema)

    fix["events"].ingest(rows("a"))
    version = fix["events"].version
    fix["events"].ingest(rows("b"))
    fix["events"].restore(version)
    fix.publish()
    assert lake["events"].ingest(rows("a")).duplicates == 1
    assert lake["events"].ingest(rows("b")).appended == 1
    assert sorted(lake["events"].to_arrow()["event_id"].to_pylist()) == ["a", "b"]


def test_rejects_of_a_table_that_a_branch_drops_come_back_with_it(lake: Lake, clock: ManualClock) -> None:
    create_rejects(lake, "orders", {"id": "long"}).append([{"id": 9}])
    clock.advance(1)
    fix = lake.branch("fix")
    clock.advance(1)
    fix.drop_table("orders")
    fix.publish()
    assert lake.undrop("orders").rejects_version is not None
    assert ids(lake, "orders/_rejects") == [9]


def test_a_published_table_says_that_its_files_have_deletion_vectors(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("fix")
    clock.advance(1)
    made = fix.create_table("made", {"id": "long"}, properties={"delta.enableDeletionVectors": "true"})
    made.append([{"id": number} for number in range(10)])
    made.delete("id = 1")
    fix.sql("ALTER TABLE made SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    fix.publish()
    protocol = lake["made"].snapshot().protocol
    assert "deletionVectors" in (protocol.reader_features or ())
    assert "deletionVectors" in (protocol.writer_features or ())


def _of_branches(lake: Lake) -> list[str]:
    return [info.key for info in lake.store.list(BRANCHES)]


def test_an_expired_branch_is_deleted_by_vacuum(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("fix", expires=timedelta(hours=1))
    clock.advance(1)
    fix["orders"].append([{"id": 3}])
    clock.advance(2 * 3600)
    with pytest.raises(Invalid, match="has expired"):
        fix.publish()
    lake["others"].delete("id = 5")
    lake["others"].vacuum(NOW)
    assert _of_branches(lake)
    clock.advance(24 * 3600)
    lake["others"].append([{"id": 6}])
    lake["others"].delete("id = 6")
    lake["others"].vacuum(NOW)
    assert _of_branches(lake) == []
    assert lake.branches() == []


def test_a_branch_in_the_place_of_an_expired_one_leaves_nothing_of_it(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("fix", expires=timedelta(hours=1))
    clock.advance(1)
    fix["orders"].append([{"id": 3}])
    clock.advance(2 * 3600)
    assert ids(lake.branch("fix")) == [1, 2]
    assert _of_branches(lake) == []


class _Dying(Wrapper):
    """A store whose process dies at a request that deletes."""

    left = 1 << 20

    def request(self, kind: str, key: str, send: Callable[[], Any]) -> Any:
        if kind == "delete":
            self.left -= 1
            if self.left < 0:
                raise ObjectNotFound("it died")
        return super().request(kind, key, send)


@pytest.mark.parametrize("dies_at", [0, 1])
def test_a_discard_that_dies_is_done_again(clock: ManualClock, dies_at: int) -> None:
    store = _Dying(MemoryStore("dying", clock))
    lake = Lake(store, clock)
    lake.create_table("orders", {"id": "long"}).append([{"id": 1}])
    clock.advance(1)
    fix = lake.branch("fix")
    clock.advance(1)
    fix["orders"].append([{"id": 3}])
    store.left = dies_at
    with pytest.raises(ObjectNotFound):
        fix.drop()
    store.left = 1 << 20
    with pytest.raises(Invalid, match="is being discarded"):
        fix.publish()
    Lake(store, clock).drop_branch("fix")
    assert _of_branches(lake) == []
    assert lake.branches() == []


@pytest.mark.parametrize("then", ["discard", "erase"])
def test_what_is_written_on_a_branch_that_is_gone_does_not_stay(lake: Lake, clock: ManualClock, then: str) -> None:
    fix, other = lake.branch("fix"), lake.branch("other")
    clock.advance(1)
    late = Lake(lake.store, clock).on_branch("fix")
    other["others"].append([{"id": 6}])
    fix.drop()
    with pytest.raises(BranchGone, match="branch 'fix' was discarded meanwhile, and what"):
        late["orders"].append([{"id": 3}])
    assert len(_of_branches(lake)) == 4
    if then == "erase":
        lake["orders"].erase("id = 3")
    else:
        lake.branch("third").drop()
    assert len(_of_branches(lake)) == 2
    assert ids(other, "others") == [5, 6]


def test_rows_expire_on_the_lake_alone(fix: Branch) -> None:
    with pytest.raises(Invalid, match="expire concerns the lake"):
        fix["orders"].expire()


def test_an_external_table_is_dropped_on_the_lake_alone(tmp_path: Path) -> None:
    lake = connect(tmp_path / "lake")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "x.csv").write_text("a,b\n1,2\n")
    lake.create_external("ext", tmp_path / "files" / "x.csv")
    fix = lake.branch("fix")
    with pytest.raises(Invalid, match="dropping an external table concerns the lake"):
        fix.drop_table("ext")
    assert fix["ext"].to_arrow().to_pylist() == [{"a": 1, "b": 2}]
