"""Operations on a table that a transaction over several tables claims whose process has died.

The transaction has happened where its decision was put (`APPLY_OF_A`), and not where it was not (`DECISION`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from tests.transactions import APPLY_OF_A, DECISION, append_both, filled, stopped, transfer
from tests.unit.verify.damages import events

STAGES = pytest.mark.parametrize("before", [DECISION, APPLY_OF_A], ids=["undecided", "happened"])
VECTORS = {"delta.enableDeletionVectors": "true"}


def amounts(table: Table) -> list[int]:
    found: list[int] = table.to_arrow(["amount"])["amount"].to_pylist()
    return sorted(found)


def cold(table: Table) -> Table:
    return Lake(table.lake.store, table.lake.clock).table(table.name)


@STAGES
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["rewritten", "vectors"])
@pytest.mark.parametrize("act", [transfer, append_both])
def test_counts_are_those_of_the_rows(
    lake: Lake, before: int, properties: dict[str, str], act: Callable[[Lake], None]
) -> None:
    filled(lake, properties)
    stopped(lake, before, act)
    for name in ("a", "b"):
        table = lake.table(name)
        rows = table.to_arrow()
        assert table.count() == len(rows)
        query = f"SELECT count(*) AS n, min(amount) AS low, max(amount) AS high, sum(amount) AS total FROM {name}"
        low, high = pc.min_max(rows["amount"]).as_py().values()
        assert lake.sql(query).to_pylist() == [
            {"n": len(rows), "low": low, "high": high, "total": sum(rows["amount"].to_pylist())}
        ]


@STAGES
def test_a_version_is_what_its_log_says(lake: Lake, clock: ManualClock, before: int) -> None:
    table = filled(lake).table("a")
    clock.advance(1)
    stopped(lake, before)
    assert amounts(table) == ([90, 100] if before == APPLY_OF_A else [100, 100])
    for version in (1, 2):
        found: list[int] = table.to_arrow(version=version)["amount"].to_pylist()
        assert found == [100, 100]
    clock.advance(1)
    moment = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    clock.advance(1)
    lake.table("a").append([{"id": "z", "amount": 7}])
    assert sorted(table.to_arrow(timestamp=moment)["amount"].to_pylist()) == [100, 100]


@STAGES
def test_history_tells_claims_and_what_came_of_them(lake: Lake, before: int) -> None:
    table = filled(lake).table("a")
    stopped(lake, before)
    [claim, *_] = table.history()
    assert (claim.operation, claim.readable, claim.files_added, claim.files_removed) == ("CLAIM", True, 0, 0)
    assert claim.transaction is not None
    table.update({"amount": "0"}, "id = 'y'")
    newest, *others = table.history(limit=3)
    assert (newest.operation, newest.transaction) == ("UPDATE", None)
    made = [(each.operation, each.transaction) for each in others]
    if before == APPLY_OF_A:
        assert made == [("UPDATE", claim.transaction), ("CLAIM", claim.transaction)]
    else:
        assert made == [("CLAIM", claim.transaction), ("WRITE", None)]


@STAGES
@pytest.mark.parametrize("feed", ["true", "false"])
def test_changes_are_those_of_the_rows(lake: Lake, before: int, feed: str) -> None:
    table = filled(lake, {"delta.enableChangeDataFeed": feed}).table("a")
    stopped(lake, before)
    first = sorted(row["amount"] for row in table.changes(2).read_all().to_pylist())
    assert first == ([90, 100] if before == APPLY_OF_A else [])
    table.append([{"id": "z", "amount": 7}])
    found = [(row["_change_type"], row["amount"]) for row in table.changes(2).read_all().to_pylist()]
    assert ("insert", 7) in found
    others = sorted(amount for _, amount in found if amount != 7)
    assert others == ([90, 100] if before == APPLY_OF_A else [])


@STAGES
def test_a_rollup_takes_a_transaction_over_once(disk: Lake, before: int) -> None:
    filled(disk)
    rollup = disk.create_rollup("r", "SELECT id, sum(amount) AS total FROM a GROUP BY id")

    def totals() -> dict[str, int]:
        return {row["id"]: row["total"] for row in rollup.to_arrow().to_pylist()}

    assert totals() == {"x": 100, "y": 100}
    stopped(disk, before)
    first = rollup.refresh()
    assert first.mode == ("recomputed" if before == APPLY_OF_A else "nothing")
    assert totals() == ({"x": 90, "y": 100} if before == APPLY_OF_A else {"x": 100, "y": 100})
    disk.table("a").append([{"id": "y", "amount": 5}])
    second = rollup.refresh()
    assert (second.mode, second.reason) == ("folded", None)
    assert totals() == ({"x": 90, "y": 105} if before == APPLY_OF_A else {"x": 100, "y": 105})
    append_both(disk, "y")
    assert rollup.refresh().mode == "folded"
    assert totals()["y"] == 106


@STAGES
def test_optimize_merges_what_a_transaction_leaves(lake: Lake, before: int) -> None:
    table = filled(lake).table("a")
    table.append([{"id": "z", "amount": 7}])
    stopped(lake, before)
    report = table.optimize(full=True)
    assert report.files_after == 1
    assert amounts(table) == amounts(cold(table)) == ([7, 90, 100] if before == APPLY_OF_A else [7, 100, 100])
    assert table.verify(full=True).ok


@STAGES
@pytest.mark.parametrize(
    ("change", "undecided", "happened"),
    [
        (lambda table: table.delete("amount < 100"), [100, 100], [100]),
        (lambda table: table.upsert([{"id": "x", "amount": 1}], on=["id"]), [1, 100], [1, 100]),
        (lambda table: table.restore(version=1), [100, 100], [100, 100]),
        (lambda table: table.evolve({"more": "long"}), [100, 100], [90, 100]),
        (lambda table: table.append([{"id": "z", "amount": 7}], txn=("loader", 1)), [7, 100, 100], [7, 90, 100]),
        (lambda table: table.vacuum(timedelta(0)), [100, 100], [90, 100]),
        (lambda table: table.checkpoint(), [100, 100], [90, 100]),
    ],
    ids=["delete", "upsert", "restore", "evolve", "append", "vacuum", "checkpoint"],
)
def test_changes_come_after_what_has_happened(
    lake: Lake, before: int, change: Callable[[Table], Any], undecided: list[int], happened: list[int]
) -> None:
    table = filled(lake).table("a")
    stopped(lake, before)
    change(table)
    wanted = happened if before == APPLY_OF_A else undecided
    assert amounts(table) == amounts(cold(table)) == wanted
    table.append([{"id": "last", "amount": 1000}])
    assert amounts(cold(table)) == [*wanted, 1000]
    assert table.verify(full=True).ok


@STAGES
def test_old_rows_of_a_transaction_expire(lake: Lake, before: int) -> None:
    for name in ("a", "b"):
        columns = {"ts": "timestamp", "n": "long"}
        lake.create_table(name, columns, partition_by=["day(ts)"], properties={"alluvia.ttl": "1 day"})

    def append_old(lake: Lake) -> None:
        with lake.transaction(("a", "b")) as tx:
            for name in ("a", "b"):
                tx.table(name).append([{"ts": datetime(1969, 1, 1, tzinfo=UTC), "n": 1}])

    stopped(lake, before, append_old)
    table = lake.table("a")
    assert table.expire().rows == int(before == APPLY_OF_A)
    assert table.count() == 0


@STAGES
def test_an_event_of_a_transaction_is_stored_once(disk: Lake, before: int) -> None:
    for name in ("a", "b"):
        disk.create_events(name, pa.schema([("n", pa.int64()), ("price", pa.float64())]))

    def ingest(lake: Lake) -> None:
        with lake.transaction(("a", "b")) as tx:
            for name in ("a", "b"):
                tx.table(name).ingest(events(1))

    stopped(disk, before, ingest)
    table = cold(disk.table("a"))
    assert table.ingest(events(1, 2)).duplicates == int(before == APPLY_OF_A)
    assert table.ingest(events(1)).duplicates == 1
    assert cold(table).ingest(events(1)).duplicates == 1
    table.checkpoint()
    assert cold(table).ingest(events(1)).duplicates == 1
    assert table.count() == 2
    assert table.verify(full=True).ok


@STAGES
def test_a_batch_of_a_transaction_is_stored_once(lake: Lake, before: int) -> None:
    filled(lake)

    def load(lake: Lake) -> None:
        with lake.transaction(("a", "b")) as tx:
            for name in ("a", "b"):
                tx.table(name).append([{"id": "batch", "amount": 7}], txn=("loader", 5))

    stopped(lake, before, load)
    table = cold(lake.table("a"))
    table.append([{"id": "batch", "amount": 7}], txn=("loader", 5))
    assert amounts(table) == [7, 100, 100]


@STAGES
def test_clean_up_keeps_what_a_claim_needs(lake: Lake, clock: ManualClock, before: int) -> None:
    table = filled(lake, {"delta.logRetentionDuration": "interval 1 day"}).table("a")
    stopped(lake, before, append_both)
    for _ in range(3):
        clock.advance(30 * 3600)
        table.append([{"id": "z", "amount": 7}])
        table.checkpoint()
    before_vacuum = amounts(table)
    table.vacuum()
    assert amounts(table) == amounts(cold(table)) == before_vacuum
    assert (1 in before_vacuum) == (before == APPLY_OF_A)
    assert amounts(lake.table("b")) == ([1, 100, 100] if before == APPLY_OF_A else [100, 100])
    assert table.verify(full=True).ok
