"""A lake becomes what it was: all tables in one transaction, with those that came and went since."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from alluvia.access.rights import Grant, Rights
from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Forbidden, Invalid, TableNotFound, VersionExpired, VersionNotFound
from alluvia.operations.transactions import lake_restore
from alluvia.sql.run import execute
from alluvia.store import CountingStore, MemoryStore
from tests.faults.attempts import attempts, tried
from tests.faults.store import MODES
from tests.unit.operations.dropping import reject, send

COLUMNS = {"id": "long"}


@pytest.fixture
def lake(clock: ManualClock) -> Lake:
    """Tables a, b, c and gone, each with the row 1, an hour ago."""
    lake = Lake(MemoryStore("restores", clock), clock)
    fill(lake)
    clock.advance(3600)
    return lake


def fill(lake: Lake) -> None:
    for name in ("a", "b", "c", "gone"):
        lake.create_table(name, COLUMNS).append([{"id": 1}])


def ids(lake: Lake, name: str) -> list[int]:
    return sorted(lake.table(name).to_arrow()["id"].to_pylist())


def steps(report: lake_restore.LakeRestore) -> list[tuple[str, str, int | None]]:
    return [(step.name, step.action, step.version) for step in report.steps]


def break_it(lake: Lake) -> None:
    """Change a and b, drop gone, create new."""
    with lake.transaction(["a", "b"]) as tx:
        tx.table("a").delete("true")
        tx.table("b").append([{"id": 2}])
    lake.table("a").append([{"id": 3}])
    lake.drop_table("gone")
    lake.create_table("new", COLUMNS).append([{"id": 9}])


def test_everything_is_as_it_was(lake: Lake) -> None:
    break_it(lake)
    wanted = [("a", "restore", 1), ("b", "restore", 1), ("gone", "undrop", 1), ("new", "drop", None)]
    before = {name: lake.table(name).version for name in lake.tables()}
    planned = lake.restore(offset="30 minutes ago", dry_run=True)
    assert (steps(planned), planned.unchanged, planned.versions, planned.dry_run) == (wanted, 1, {}, True)
    assert {name: lake.table(name).version for name in lake.tables()} == before
    done = lake.restore(offset="30 minutes ago")
    assert (steps(done), done.unchanged, done.dry_run) == (wanted, 1, False)
    assert done.versions == {"a": 6, "b": 5, "gone": 4, "new": 3}
    assert lake.tables() == ["a", "b", "c", "gone"]
    assert {name: ids(lake, name) for name in lake.tables()} == {name: [1] for name in lake.tables()}
    assert len({lake.table(name).history(1)[0].transaction for name in ("a", "b", "gone")}) == 1
    lake.undrop("new")
    assert ids(lake, "new") == [9]
    lake.clock.sleep(60)
    again = lake.restore(timestamp=datetime.fromtimestamp(lake.clock.now_ms() / 1000, UTC))
    assert (again.steps, again.versions) == ((), {})


def test_a_table_that_changed_before_it_was_dropped(lake: Lake, clock: ManualClock) -> None:
    lake.table("gone").append([{"id": 2}])
    clock.advance(60)
    lake.drop_table("gone")
    lake.restore(offset="2 minutes ago")
    assert ids(lake, "gone") == [1]
    lake.table("gone").restore(version=2)
    assert ids(lake, "gone") == [1, 2]


def test_rejects_go_and_come_with_their_table(lake: Lake, clock: ManualClock) -> None:
    send(lake, "1", create=True)
    reject(lake, b"no event")
    clock.advance(3600)
    lake.drop_table("t")
    lake.restore(offset="30 minutes ago")
    assert (lake.table("t").count(), lake.table("t/_rejects").count()) == (1, 1)
    lake.restore(offset="90 minutes ago")
    assert "t" not in lake
    with pytest.raises(TableNotFound):
        lake.table("t/_rejects").snapshot()


def test_never_half_of_a_transaction(clock: ManualClock) -> None:
    """At whatever moment: the claims, the decision and what was claimed come one after another."""
    moments: list[int] = []

    class Ticking(MemoryStore):
        def put_if_absent(self, key: str, data: bytes) -> Any:
            clock.advance(1)
            moments.append(clock.now_ms())
            return super().put_if_absent(key, data)

    lake = Lake(Ticking("ticking", clock), clock)
    for name in ("a", "b"):
        lake.create_table(name, COLUMNS).append([{"id": 1}])
    first = len(moments)
    for number in (2, 3):
        with lake.transaction(["a", "b"]) as tx:
            for name in ("a", "b"):
                tx.table(name).append([{"id": number}])
    clock.advance(60)
    seen = set()
    for at in moments[first - 1 :]:
        lake.restore(timestamp=datetime.fromtimestamp(at / 1000, UTC))
        assert ids(lake, "a") == ids(lake, "b"), at
        seen.add(len(ids(lake, "a")))
    assert seen == {1, 2, 3}


def test_statements(lake: Lake) -> None:
    break_it(lake)
    shown = lake.sql("RESTORE LAKE TO OFFSET '30 minutes ago' DRY RUN").to_pylist()
    assert (shown[0]["changed"], shown[0]["steps"]) == (4, "restore a, restore b, undrop gone, drop new")
    rights = Rights((Grant(frozenset({"admin"}), ("a", "b")),))
    admin = Grant(frozenset({"admin", "read"}), ("*",))
    filtered = Rights((admin, Grant(frozenset({"read"}), ("a",), "id = 1")))
    for each in (rights, filtered):
        with pytest.raises(Forbidden, match="needs the scope admin, and all rows and columns, of all that it would"):
            execute(lake, "RESTORE LAKE TO OFFSET '30 minutes ago' DRY RUN", rights=each)
    moment = datetime.fromtimestamp(lake.clock.now_ms() / 1000 - 1800, UTC).isoformat()
    lake.sql(f"RESTORE LAKE TO TIMESTAMP AS OF '{moment}'")
    assert {name: ids(lake, name) for name in lake.tables()} == {name: [1] for name in ("a", "b", "c", "gone")}
    with pytest.raises(Invalid, match="expected TIMESTAMP AS OF, OFFSET or TAG, got VERSION"):
        lake.sql("RESTORE LAKE TO VERSION AS OF 3")
    with pytest.raises(VersionNotFound, match="has no tag 'x'"):
        lake.sql("RESTORE LAKE TO TAG 'x'")


def test_errors_name_no_table_that_a_caller_may_not_read(lake: Lake, clock: ManualClock) -> None:
    text = "RESTORE LAKE TO OFFSET '3 hours ago'"
    clock.advance(3600)
    lake.create_table("secret", COLUMNS).append([{"id": 1}])
    clock.advance(4 * 3600)
    lake.table("secret").update({"id": "2"})
    lake.table("secret").vacuum(timedelta(0))
    with pytest.raises(VersionExpired, match="secret"):
        lake.sql(text)
    admin, reader = Grant(frozenset({"admin"}), ("*",)), Grant(frozenset({"read"}), ("a",))
    with pytest.raises(VersionExpired, match="because of a table that this caller may not read") as found:
        execute(lake, text, rights=Rights((admin, reader)))
    assert "secret" not in str(found.value)
    with pytest.raises(VersionExpired, match="secret"):
        execute(lake, text, rights=Rights((admin, Grant(frozenset({"read"}), ("*",)))))
    with pytest.raises(Invalid, match="is in the future"):
        execute(lake, "RESTORE LAKE TO TIMESTAMP AS OF '2999-01-01'", rights=Rights((admin, reader)))


def test_a_tag_of_the_lake(lake: Lake, clock: ManualClock) -> None:
    lake.tag("release")
    clock.advance(60)
    break_it(lake)
    assert [step.action for step in lake.restore(tag="release").steps] == ["restore", "restore", "undrop", "drop"]
    assert {name: ids(lake, name) for name in lake.tables()} == {name: [1] for name in ("a", "b", "c", "gone")}
    with pytest.raises(VersionNotFound, match="the lake has no tag 'nothing'"):
        lake.restore(tag="nothing")


def test_streams_go_back_with_their_tables(lake: Lake, clock: ManualClock) -> None:
    lake.create_stream("new_rows", "a")
    lake.create_stream("whole", "a", initial_rows=True)
    lake.table("a").append([{"id": 2}])

    def consume(name: str) -> None:
        with lake.transaction(["b"]) as tx:
            tx.table("b").append(tx.stream(name).to_arrow(["id"]))

    consume("new_rows")
    lake.table("a").append([{"id": 3}])
    clock.advance(60)
    lake.table("a").append([{"id": 4}])
    consume("new_rows")
    consume("whole")
    assert ids(lake, "b") == [1, 1, 2, 2, 3, 3, 4, 4]
    report = lake.restore(offset="30 seconds ago")
    assert {(step.name, step.action) for step in report.steps} == {
        ("a", "restore"), ("b", "restore"), ("new_rows", "move"), ("whole", "move"),
    }  # fmt: skip
    assert ids(lake, "b") == [1, 2]
    consume("new_rows")
    assert ids(lake, "b") == [1, 2, 3]  # what was added and taken back since is not given
    consume("whole")
    assert ids(lake, "b") == [1, 1, 2, 2, 3, 3]


def test_a_branch_is_restored_alone(lake: Lake, clock: ManualClock) -> None:
    fix = lake.branch("fix")
    with fix.transaction(["a"]) as tx:
        tx.table("a").append([{"id": 2}])
    assert (
        fix.catalog.handle("a").newest().origin == fix.keeper.id
    )  # by which an erasure knows what a branch has written
    clock.advance(3600)
    break_it(fix)
    fix.restore(offset="30 minutes ago")
    assert {name: ids(fix, name) for name in fix.tables()} == {"a": [1, 2], "b": [1], "c": [1], "gone": [1]}
    assert ids(lake, "a") == [1]


def test_what_cannot_be_restored(lake: Lake, clock: ManualClock) -> None:
    with pytest.raises(Invalid, match="give one of timestamp, offset and tag"):
        lake.restore()
    with pytest.raises(Invalid, match="is in the future"):
        lake.restore("2999-01-01")
    lake.drop_table("gone")
    lake.create_table("gone", COLUMNS)
    with pytest.raises(Invalid, match="table gone was dropped and created again since then"):
        lake.restore(offset="30 minutes ago")
    lake.drop_table("gone")
    lake.table("a").delete("true")
    clock.advance(9 * 24 * 3600)
    lake.table("a").vacuum()
    with pytest.raises(VersionExpired, match=r"^a: "):
        lake.restore(offset="9 days 30 minutes ago")
    assert ids(lake, "b") == [1]


def test_rollups_are_left_to_their_refresh(lake: Lake) -> None:
    lake.create_rollup("counts", "SELECT id, count(*) AS n FROM a GROUP BY id")
    lake.clock.sleep(60)
    lake.table("a").append([{"id": 2}])
    lake.table("counts").refresh()
    assert {(step.name, step.action) for step in lake.restore(offset="30 seconds ago").steps} == {
        ("a", "restore"), ("counts", "refresh"),
    }  # fmt: skip
    lake.table("counts").refresh()
    assert ids(lake, "counts") == [1]


def test_who_comes_in_between_is_not_lost(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.table("a").append([{"id": 2}])
    planned = lake_restore._planned
    left = [1]

    def interfering(name: str, then: Any) -> Any:
        found = planned(name, then)
        if name == "a" and left:
            left.pop()
            Lake(lake.store, lake.clock).table("a").append([{"id": 3}])
        return found

    monkeypatch.setattr(lake_restore, "_planned", interfering)
    lake.restore(offset="30 minutes ago")
    assert ids(lake, "a") == [1]
    assert [entry.operation for entry in lake.table("a").history(2)] == ["RESTORE", "WRITE"]


def made(clock: ManualClock) -> MemoryStore:
    store = MemoryStore("faults", clock)
    lake = Lake(store, clock)
    fill(lake)
    clock.advance(3600)
    break_it(lake)
    return store


@pytest.mark.parametrize("mode", MODES)
def test_a_restore_whose_nth_call_fails(mode: str) -> None:
    for store, clock in attempts(mode, made):
        finished = tried(lambda lake: lake.restore(offset="30 minutes ago"), Lake(store, clock))
        cold = Lake(store.inner, clock)
        found = {name: ids(cold, name) for name in cold.tables()}
        restored = {name: [1] for name in ("a", "b", "c", "gone")}
        broken = {"a": [3], "b": [1, 2], "c": [1], "new": [9]}
        assert found == restored if finished else found in (restored, broken), store.at
        cold.restore(offset="30 minutes ago")
        assert {name: ids(cold, name) for name in cold.tables()} == restored, store.at


def test_of_a_thousand_tables_those_that_changed_cost(clock: ManualClock) -> None:
    store = CountingStore(MemoryStore("thousand", clock))
    lake = Lake(store, clock)
    for number in range(1000):
        lake.create_table(f"t{number}", COLUMNS)
    clock.advance(3600)
    store.reset()
    assert Lake(store, clock).restore(offset="30 minutes ago").steps == ()
    look = store.requests.copy()
    assert (look["get"] + look["list"], look["put"]) < (6 * 1000, 1)  # a process that knows no table opens each
    for number in (3, 500, 997):
        lake.table(f"t{number}").append([{"id": 1}])
    store.reset()
    assert len(Lake(store, clock).restore(offset="30 minutes ago").steps) == 3
    assert store.requests["put"] == 7  # three claims, the decision, and what was claimed
    assert store.requests.total() - look.total() < 100


def test_a_dropped_schema_comes_back_with_its_tables(clock: ManualClock) -> None:
    lake = Lake(MemoryStore("restored schemas", clock), clock)
    lake.create_schema("bronze")
    lake.create_table("bronze.a", COLUMNS).append([{"id": 1}])
    clock.advance(3600)
    lake.drop_schema("bronze", cascade=True)
    assert steps(lake.restore(offset="30 minutes ago", dry_run=True)) == [("bronze.a", "undrop", 1)]
    assert lake.schemas() == ["main"]
    lake.restore(offset="30 minutes ago")
    assert (lake.schemas(), ids(lake, "bronze.a")) == (["main", "bronze"], [1])
    lake.create_table("bronze.b", COLUMNS)
    lake.drop_schema("bronze", cascade=True)
    lake.branch("bronze")
    with pytest.raises(Invalid, match="there is a branch 'bronze'"):
        lake.restore(offset="30 minutes ago", dry_run=True)
