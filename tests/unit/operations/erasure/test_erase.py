"""Erasure among other writers and readers, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.changes import Changes
from alluvia.errors import Invalid, NotDeleted, VersionExpired
from alluvia.store import CountingStore, Store, Wrapper
from tests.erased import traces
from tests.unit.operations.races import Race

VICTIM = "mallory@example.org"
WHERE = f"u = '{VICTIM}'"
T = TypeVar("T")
DAY = 24 * 3600
COLUMNS = {"u": "string", "n": "long"}


def row(user: str, number: int = 0) -> dict[str, Any]:
    return {"u": user, "n": number}


def made(lake: Lake, **properties: str) -> Table:
    """Return a table with a file for `alice` and one for the victim, which a merge has put into one."""
    table = lake.create_table("t", COLUMNS, sort_by=["u"], properties=properties)
    table.append([row("alice")])
    table.append([row(VICTIM)])
    table.optimize(full=True)
    return table


def users(table: Table) -> list[str]:
    found: list[str] = table.to_arrow(["u"])["u"].to_pylist()
    return sorted(found)


def test_where_nothing_matches_nothing_is_written(lake: Lake, store: CountingStore) -> None:
    table = made(lake)
    store.reset()
    report = table.erase("u = 'nobody'", prove=True)
    assert (report.rows, report.rounds, report.ok) == (0, 1, True)
    assert store.requests["put"] == store.requests["delete"] == 0
    assert users(Lake(lake.store, lake.clock).table("t")) == ["alice", VICTIM]
    assert table.to_arrow(version=1).num_rows == 1


def test_rows_that_were_deleted_before_are_erased_from_what_is_left_of_them(lake: Lake) -> None:
    table = made(lake)
    table.delete(WHERE)
    assert traces(lake.store, VICTIM)
    report = table.erase(WHERE, prove=True)
    assert (report.rows, report.ok) == (0, True)
    assert traces(lake.store, VICTIM) == []
    assert report.removed == {"data files": 2}
    # A file without such rows stays for those who are reading it.
    assert len(list(lake.store.list("t/part"))) == 2


def test_bounds_of_files_that_vacuum_has_deleted_go_from_commits_and_checkpoints(lake: Lake) -> None:
    table = made(lake)
    table.checkpoint()
    table.delete(WHERE)
    table.vacuum(timedelta(0))
    left = traces(lake.store, VICTIM)
    assert {key.split("/")[1] for key in left} == {"_delta_log"}
    assert any(key.endswith(".parquet") for key in left)
    report = table.erase(WHERE, prove=True)
    assert report.ok
    assert report.removed == {"checkpoints": 1}
    assert report.commits_redacted == 2
    assert traces(lake.store, VICTIM) == []


def test_a_commit_that_repeats_a_condition_says_it_no_more(lake: Lake) -> None:
    table = made(lake, **{"alluvia.writers": "any"})
    handle = table._handle
    said = {"predicate": f"(u = '{VICTIM}')", "version": "7"}
    handle.transaction(handle.newest()).commit(Changes("DELETE", said))
    report = table.erase(WHERE, prove=True)
    assert report.ok
    assert next(e.parameters for e in table.history() if e.operation == "DELETE") == {"predicate": "?", "version": "7"}


def test_readers_and_writers_of_older_versions_go_on(lake: Lake, other: Lake) -> None:
    """Commits stay in place: a writer that knows an older version loses the race, and follows the log from there."""
    table = made(lake)
    slow = other.table("t")
    slow.snapshot(version=1)
    handle = slow._handle
    snapshot = handle.newest()
    adds = handle.writer(snapshot).write(pa.table({"u": ["bob"], "n": [1]}))
    table.erase(WHERE)
    commit = handle.transaction(snapshot).commit(Changes("WRITE", {"mode": "Append"}, adds=adds))
    assert commit is not None
    assert commit.version == table.version
    assert users(table) == users(slow) == ["alice", "bob"]
    assert table.verify(full=True).ok


def test_a_restore_that_lost_the_race_does_not_bring_rows_back(lake: Lake) -> None:
    made(lake)
    race = Race(lake)
    table = race.table(lambda theirs: theirs.erase(WHERE))
    with pytest.raises(VersionExpired):
        table.restore(version=2)
    assert users(race.theirs.table("t")) == ["alice"]
    assert traces(lake.store, VICTIM) == []


def test_rows_that_arrive_meanwhile_are_erased_in_another_round(lake: Lake) -> None:
    made(lake)
    race = Race(lake)
    table = race.table(lambda _: None, lambda theirs: theirs.append([row(VICTIM, 1), row("carol")]))
    report = table.erase(WHERE, prove=True)
    assert (report.rows, report.rows_arrived, report.ok) == (2, 1, True)
    assert users(race.theirs.table("t")) == ["alice", "carol"]
    assert traces(lake.store, VICTIM) == []


def test_a_file_that_a_transaction_may_be_about_to_commit_waits(lake: Lake, clock: ManualClock) -> None:
    table = made(lake)
    handle = table._handle
    snapshot = handle.newest()
    [add] = handle.writer(snapshot).write(pa.table({"u": [VICTIM], "n": [1]}))
    report = table.erase(WHERE, prove=True)
    assert not report.ok
    assert report.proof is not None
    [trace] = report.proof.found
    assert (trace.key, trace.removable) == (f"t/{add.path}", False)
    assert trace.until is not None
    assert trace.until.timestamp() == clock.now_us() / 1e6 + DAY
    assert handle.transaction(handle.newest()).commit(Changes("WRITE", adds=[add])) is not None
    assert table.erase(WHERE, prove=True).ok
    assert users(table) == ["alice"]


def test_what_a_writer_left_that_died_goes_a_day_later(lake: Lake, clock: ManualClock) -> None:
    table = made(lake)
    table._handle.writer(table.snapshot()).write(pa.table({"u": [VICTIM], "n": [1]}))
    table.erase(WHERE)
    clock.advance(DAY + 1)
    report = table.erase(WHERE, prove=True)
    assert (report.ok, report.removed) == (True, {"data files": 1})
    assert traces(lake.store, VICTIM) == []


def test_paths_that_name_a_value_are_reported_until_the_log_forgets_them(lake: Lake, clock: ManualClock) -> None:
    table = lake.create_table("t", COLUMNS, partition_by=["u"])
    table.append([row("alice"), row(VICTIM)])
    report = table.erase(WHERE, prove=True)
    assert report.rows == 1
    assert report.proof is not None
    assert {trace.why for trace in report.proof.found} == {"the path of a file that was removed shows a value"}
    assert {key.split("/")[1] for key in traces(lake.store, VICTIM)} == {"_delta_log"}
    clock.advance(40 * DAY)
    table.append([row("alice")])
    table.checkpoint()
    clock.advance(40 * DAY)
    table.append([row("alice")])
    table.vacuum()
    assert table.erase(WHERE, prove=True).ok
    assert traces(lake.store, VICTIM) == []


def test_conditions_are_not_widened(lake: Lake) -> None:
    table = lake.create_table("t", COLUMNS)
    table.append([row(VICTIM, 1)])
    table.append([row(VICTIM, 2)])
    report = table.erase(f"{WHERE} AND n = 1", prove=True)
    assert (report.rows, report.ok) == (1, True)
    table.optimize(full=True)
    table.append([row("z", 9)])
    assert [each["n"] for each in table.to_arrow().to_pylist() if each["u"] == VICTIM] == [2]
    assert table.erase(f"{WHERE} AND n = 1", prove=True).ok


def test_an_append_only_table_is_refused(lake: Lake) -> None:
    table = made(lake, **{"delta.appendOnly": "true"})
    with pytest.raises(Invalid, match=r"erase: table t is append-only; set delta\.appendOnly"):
        table.erase(WHERE)


@pytest.mark.parametrize("where", ["none = 1", "u =", "count(*) > 1"])
def test_a_bad_condition_is_refused(lake: Lake, where: str) -> None:
    table = made(lake)
    with pytest.raises(Invalid):
        table.erase(where)
    assert table.version == 3


def test_a_rollup_is_refreshed_and_erased(disk: Lake) -> None:
    made(disk)
    disk.create_rollup("totals", "SELECT u, count(*) AS hits FROM t GROUP BY u")
    totals = disk.table("totals")
    disk.table("t").erase(WHERE)
    assert traces(disk.store, VICTIM, "totals/")
    report = totals.erase(WHERE, prove=True)
    assert report.ok
    assert users(totals) == ["alice"]
    assert traces(disk.store, VICTIM) == []


def test_a_rollup_with_such_rows_is_refused(disk: Lake) -> None:
    made(disk)
    totals = disk.create_rollup("totals", "SELECT u, count(*) AS hits FROM t GROUP BY u")
    with pytest.raises(Invalid, match="the rollup totals has such rows"):
        totals.erase(WHERE)


class Refusing(Wrapper):
    """A store that deletes no data files."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)

    def delete(self, keys: Any) -> None:
        wanted = list(keys)
        kept = [key for key in wanted if "/part-" in key]
        self.inner.delete([key for key in wanted if key not in kept])
        if kept:
            raise NotDeleted(kept, "AccessDenied")


def test_what_the_store_refuses_to_delete_is_named(lake: Lake) -> None:
    made(lake)
    report = Lake(Refusing(lake.store), lake.clock).table("t").erase(WHERE, prove=True)
    assert not report.ok
    assert len(set(report.not_deleted)) == 2
    assert lake.table("t").erase(WHERE, prove=True).ok
    assert traces(lake.store, VICTIM) == []


class Meanwhile(Wrapper):
    """A store before whose next read of an object something happens."""

    def __init__(self, inner: Store, wanted: str, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._wanted = wanted
        self._act: Callable[[], object] | None = act

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if key.endswith(self._wanted) and self._act is not None:
            act, self._act = self._act, None
            act()
        return send()


def test_a_table_that_is_opened_meanwhile_opens(lake: Lake, clock: ManualClock) -> None:
    made(lake).checkpoint()
    store = Meanwhile(lake.store, "3.checkpoint.parquet", lambda: lake.table("t").erase(WHERE))
    assert users(Lake(store, clock).table("t")) == ["alice"]
    assert traces(lake.store, VICTIM) == []


@pytest.mark.parametrize("change", ["delete", "update", "optimize"])
def test_a_change_that_reads_an_erased_file_is_planned_again(lake: Lake, clock: ManualClock, change: str) -> None:
    table = made(lake)
    table.append([row("bob", 1)])
    [file] = [file for file in table.files if file.num_records == 2]
    theirs = Lake(lake.store, clock).table("t")
    store = Meanwhile(lake.store, file.path, lambda: theirs.erase(WHERE))
    ours = Lake(store, clock).table("t")
    acts: dict[str, Callable[[], object]] = {
        "delete": lambda: ours.delete("n = 1 OR u = 'bb'"),
        "update": lambda: ours.update({"n": "n + 1"}),
        "optimize": lambda: ours.optimize(full=True),
    }
    acts[change]()
    assert users(theirs) == (["alice"] if change == "delete" else ["alice", "bob"])
    assert traces(lake.store, VICTIM) == []
    assert theirs.verify(full=True).ok


class CleanedUp(Wrapper):
    """A store in which another clean-up deletes a commit between the look at it and the write."""

    def get_tagged(self, key: str) -> tuple[bytes, str]:
        found = super().get_tagged(key)
        self.inner.delete([key])
        return found


def test_a_commit_that_clean_up_deletes_meanwhile_does_not_come_back(lake: Lake, clock: ManualClock) -> None:
    made(lake)
    assert Lake(CleanedUp(lake.store), clock).table("t").erase(WHERE).commits_redacted == 0
    assert lake.store.head("t/_delta_log/00000000000000000002.json") is None
    assert traces(lake.store, VICTIM) == []
    assert users(Lake(lake.store, clock).table("t")) == ["alice"]


@pytest.mark.parametrize("deleted_before", [True, False])
def test_files_are_rewritten_where_rows_are_deleted_by_vectors(lake: Lake, *, deleted_before: bool) -> None:
    table = lake.create_table("t", COLUMNS, properties={"delta.enableDeletionVectors": "true"})
    table.append([row("alice"), row(VICTIM), row("zoe")])
    if deleted_before:
        table.delete(WHERE)
        assert [file for file in table.files if file.deletion_vector]
    report = table.erase(WHERE, prove=True)
    assert (report.rows, report.ok) == (0 if deleted_before else 1, True)
    assert [file.deletion_vector for file in table.files] == [None]
    assert users(table) == ["alice", "zoe"]
    assert traces(lake.store, VICTIM) == []
