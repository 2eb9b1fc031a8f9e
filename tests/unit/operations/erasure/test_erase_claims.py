"""Erasure from tables that transactions over several tables claim, or have claimed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.changes import Changes
from alluvia.commit.commit_records import DECISIONS
from alluvia.commit.intents import pending
from alluvia.errors import Conflict, Invalid
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia.store import CountingStore
from tests.erased import traces
from tests.transactions import APPLY_OF_A, CLAIM_OF_A, DECISION, HookedStore, stopped

VICTIM = "mallory@example.org"
WHERE = f"u = '{VICTIM}'"
NAMES = ("s", "t")


def rows(*users: str) -> list[dict[str, Any]]:
    return [{"u": user, "n": 1} for user in users]


def made(lake: Lake, **properties: str) -> Table:
    """Create `s` and `t`, with rows of others; return `t`."""
    tables = [lake.create_table(name, {"u": "string", "n": "long"}, properties=properties) for name in NAMES]
    for table in tables:
        table.append(rows("alice"))
    return tables[1]


def users(table: Table) -> list[str]:
    found: list[str] = table.to_arrow(["u"])["u"].to_pylist()
    return sorted(found)


def adding(*names: str) -> Callable[[Lake], None]:
    """Return what appends rows to both tables."""

    def add(lake: Lake) -> None:
        with lake.transaction(NAMES) as tx:
            for name in NAMES:
                tx.table(name).append(rows(*names))

    return add


def standing(table: Table) -> int:
    return len(pending(table.snapshot().state.domains))


@pytest.mark.parametrize("decided", [True, False])
def test_what_claims_the_table_is_settled_and_shows_nothing(lake: Lake, *, decided: bool) -> None:
    table = made(lake)
    stopped(lake, APPLY_OF_A if decided else DECISION, adding(VICTIM, "bob"))
    table.checkpoint()
    assert traces(lake.store, VICTIM, "t/_delta_log")
    report = table.erase(WHERE, prove=True)
    assert report.ok
    assert report.rows == int(decided)
    assert report.removed == {"checkpoints": 1, "data files": 1}
    assert standing(table) == 0
    assert users(table) == (["alice", "bob"] if decided else ["alice"])
    assert traces(lake.store, VICTIM, "t/") == []
    assert lake.table("s").erase(WHERE, prove=True).ok
    assert traces(lake.store, VICTIM) == []
    for name in NAMES:
        assert lake.table(name).verify(full=True).ok


def test_a_branch_that_keeps_a_claim_with_such_rows_must_go_first(lake: Lake, clock: ManualClock) -> None:
    table = made(lake)
    stopped(lake, DECISION, adding(VICTIM))
    clock.advance(1)
    fix = lake.branch("fix")
    clock.advance(1)
    with pytest.raises(Invalid, match=r"versions of t that are kept hold such rows, by branch fix: discard the branch"):
        table.erase(WHERE)
    fix.drop()
    assert table.erase(WHERE, prove=True).ok
    assert traces(lake.store, VICTIM, "t/") == []


def test_a_clone_that_reads_what_a_claim_has_added_must_go_first(lake: Lake, clock: ManualClock) -> None:
    table = made(lake)
    stopped(lake, APPLY_OF_A, adding(VICTIM))
    clock.advance(1)
    lake.tag("before")
    clock.advance(1)
    lake.clone("t", "copy", tag="before")
    lake.drop_tag("before")
    clock.advance(10)
    with pytest.raises(Invalid, match="by clone copy of t: erase in the clones first, or drop them"):
        table.erase(WHERE)
    assert users(lake["copy"]) == ["alice", VICTIM]


def checkpoints(lake: Lake) -> list[str]:
    return [info.key for info in lake.store.list("t/_delta_log/") if ".checkpoint." in info.key]


def as_manifest(lake: Lake, key: str) -> None:
    """Replace a v2 checkpoint by one in JSON, as other writers make them."""
    table = pq.read_table(pa.BufferReader(lake.store.get(key)))
    actions = [
        {kind: body for kind, body in row.items() if body is not None}
        for row in table.to_pylist(maps_as_pydicts="strict")
    ]
    lake.store.put(key.replace(".parquet", ".json"), b"\n".join(map(orjson.dumps, actions)))
    lake.store.delete([key])


def as_parts(lake: Lake, key: str) -> None:
    """Replace a checkpoint by one of two parts."""
    table = pq.read_table(pa.BufferReader(lake.store.get(key)))
    for part, part_rows in enumerate((table.slice(0, 2), table.slice(2)), 1):
        data = pa.BufferOutputStream()
        pq.write_table(part_rows, data)
        lake.store.put(key.replace(".parquet", f".{part:010d}.{2:010d}.parquet"), data.getvalue().to_pybytes())
    lake.store.delete([key])


@pytest.mark.parametrize(
    ("policy", "change"),
    [("classic", None), ("v2", None), ("v2", as_manifest), ("classic", as_parts)],
)
def test_conditions_go_from_claims_in_commits_and_checkpoints(
    lake: Lake, policy: str, change: Callable[[Lake, str], None] | None
) -> None:
    table = made(lake, **{"delta.checkpointPolicy": policy})

    def say(lake: Lake) -> None:
        staged = StagedTables(lake.catalog, NAMES)
        for name in NAMES:
            staged.handle(name).stage(Changes("DELETE", {"predicate": f"({WHERE})", "version": "7"}))
        staged.commit()

    stopped(lake, APPLY_OF_A, say)
    table.checkpoint()
    if change is not None:
        [key] = checkpoints(lake)
        change(lake, key)
    [shown] = set(checkpoints(lake)) & set(traces(lake.store, VICTIM, "t/"))
    report = table.erase(WHERE, prove=True)
    assert (report.ok, report.rows, report.removed) == (True, 0, {"checkpoints": 1})
    assert shown not in checkpoints(lake)
    assert traces(lake.store, VICTIM, "t/") == []
    assert users(table) == users(Lake(lake.store, lake.clock).table("t")) == ["alice"]
    [entry] = [each for each in table.history() if each.operation == "DELETE"]
    assert entry.parameters == {"predicate": "?", "version": "7"}


def test_a_claim_that_was_carried_out_says_the_same_but_for_values(lake: Lake) -> None:
    table = made(lake)
    adding(VICTIM, "bob")(lake)
    handle = table._handle
    version = next(entry.version for entry in table.history() if entry.operation == "CLAIM")

    def claim() -> Any:
        commit = handle.log.read_commit(version)
        assert commit is not None
        [found] = pending({domain.domain: domain for domain in commit.domains})
        return found

    before = claim()
    table.erase(WHERE)
    after = claim()
    assert (after.tables, after.started_ms, after.domain) == (before.tables, before.started_ms, before.domain)
    [old], [new] = before.intended(version).adds, after.intended(version).adds
    assert (new.path, new.size, new.num_records) == (old.path, old.size, old.num_records)
    assert VICTIM in before.commit
    assert VICTIM not in after.commit
    assert users(table) == ["alice", "bob"]


def test_a_number_in_a_condition_is_not_looked_for_in_decisions(lake: Lake) -> None:
    made(lake)
    first = lake.table("s")
    with lake.transaction(NAMES) as tx:
        for name in NAMES:
            tx.table(name).append([{"u": "bob", "n": 2}])
    assert first.erase("n = 2", prove=True).ok


def before_listing(lake: Lake, number: int, act: Callable[[], object]) -> Lake:
    """Return a lake whose process is interrupted before its n-th listing of a table."""
    left = [number]

    def hook(kind: str, key: str) -> None:
        left[0] -= kind == "list" and key == "t/"
        if left[0] == 0:
            left[0] = -1
            act()

    return Lake(HookedStore(lake.store, hook), lake.clock)


@pytest.mark.parametrize("listing", [1, 2])
def test_rows_that_arrive_right_before_a_listing_stay(lake: Lake, other: Lake, listing: int) -> None:
    """Their commit and their file are in the listing, but not in the version that it is compared with."""
    made(lake).append(rows(VICTIM))
    ours = before_listing(lake, listing, lambda: other.table("t").append(rows(VICTIM, "bob")))
    ours.table("t").erase(WHERE)
    table = other.table("t")
    assert "bob" in users(table)
    table.erase(WHERE)
    assert users(table) == ["alice", "bob"]
    assert traces(lake.store, VICTIM) == []


@pytest.mark.parametrize("listing", [1, 2])
def test_a_claim_that_arrives_right_before_a_listing_can_be_carried_out(lake: Lake, other: Lake, listing: int) -> None:
    made(lake).append(rows(VICTIM))
    ours = before_listing(lake, listing, lambda: stopped(other, APPLY_OF_A, adding(VICTIM, "bob")))
    ours.table("t").erase(WHERE)
    table = other.table("t")
    assert "bob" in users(table)
    assert table.erase(WHERE, prove=True).ok
    assert users(table) == ["alice", "bob"]
    assert traces(lake.store, VICTIM, "t/") == []
    assert table.verify(full=True).ok


def test_what_was_written_for_a_transaction_that_claimed_nothing_waits(lake: Lake, clock: ManualClock) -> None:
    table = made(lake)
    stopped(lake, CLAIM_OF_A, adding(VICTIM))
    report = table.erase(WHERE, prove=True)
    assert report.proof is not None
    [trace] = report.proof.found
    assert "a transaction may be about to commit it" in trace.why
    clock.advance(24 * 3600 + 1)
    assert table.erase(WHERE, prove=True).ok
    assert traces(lake.store, VICTIM, "t/") == []


def test_a_transaction_that_an_erasure_aborted_has_failed(lake: Lake, other: Lake) -> None:
    table = made(lake)

    def erase(_: str, key: str) -> None:
        if DECISIONS in key:
            table.erase(WHERE)

    with pytest.raises(Conflict, match="took too long"):
        adding(VICTIM)(Lake(HookedStore(other.store, erase), other.clock))
    assert users(table) == ["alice"]
    assert traces(lake.store, VICTIM, "t/") == []


def test_change_files_of_a_transaction_go(lake: Lake) -> None:
    table = made(lake, **{"delta.enableChangeDataFeed": "true"})
    for name in NAMES:
        lake.table(name).append(rows("bob", VICTIM))
    with lake.transaction(NAMES) as tx:
        for name in NAMES:
            tx.table(name).delete(WHERE)
    assert any("_change_data" in key for key in traces(lake.store, VICTIM, "t/"))
    report = table.erase(WHERE, prove=True)
    assert (report.ok, report.removed["change files"]) == (True, 1)
    assert traces(lake.store, VICTIM, "t/") == []
    assert users(table) == ["alice", "bob"]


def test_a_dry_vacuum_says_what_is_claimed_and_a_vacuum_carries_it_out(
    lake: Lake, other: Lake, clock: ManualClock, store: CountingStore
) -> None:
    table = made(lake, **{"delta.enableDeletionVectors": "true"})
    table.append(rows("bob", VICTIM))

    def change(lake: Lake) -> None:
        with lake.transaction(NAMES) as tx:
            for name in NAMES:
                tx.table(name).append(rows("carol"))
                tx.table(name).delete(WHERE)

    stopped(other, APPLY_OF_A, change)
    clock.advance(10 * 24 * 3600)
    store.reset()
    dry = table.vacuum(dry_run=True)
    assert store.requests["put"] == 0
    kept = {each.reason: each.objects for each in dry.kept}
    assert (kept["claimed"], dry.orphans) == (2, ())
    done = table.vacuum()
    assert (done.orphans, standing(table)) == ((), 0)
    assert users(table) == ["alice", "bob", "carol"]
    assert [pq.read_table(pa.BufferReader(lake.store.get(info.key))).num_rows for info in lake.store.list("t/part-")]
    assert table.verify(full=True).ok
