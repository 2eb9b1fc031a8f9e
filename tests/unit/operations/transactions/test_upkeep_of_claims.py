"""Vacuum, checkpoints, restores and readers of tables in which transactions have claims."""

from __future__ import annotations

from datetime import timedelta

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Invalid, Unavailable, Unsupported
from tests.transactions import (
    APPLY_OF_A,
    APPLY_OF_B,
    DECISION,
    NAMES,
    HookedStore,
    again,
    amounts,
    append_both,
    stopped,
    transfer,
    two_tables,
)
from tests.unit.operations.transactions.hooks import Change, ids


def test_vacuum_carries_out_what_was_decided_and_deletes_no_file_of_it() -> None:
    clock = ManualClock()
    lake = two_tables(clock)
    stopped(lake, APPLY_OF_A)
    clock.advance(30 * 24 * 3600)
    for name in NAMES:
        again(lake).table(name).vacuum(timedelta(0))
    assert amounts(again(lake)) == (190, 210)


def test_a_dead_claim_does_not_keep_files_for_ever() -> None:
    clock = ManualClock()
    lake = two_tables(clock)
    stopped(lake, DECISION)
    clock.advance(30 * 24 * 3600)
    removed = [len(again(lake).table(name).vacuum(timedelta(0)).orphans) for name in NAMES]
    assert removed == [1, 1]
    assert amounts(again(lake)) == (200, 200)
    transfer(again(lake))
    assert amounts(again(lake)) == (190, 210)


@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize("before", [DECISION, APPLY_OF_A, APPLY_OF_B])
def test_claims_are_kept_by_checkpoints_and_by_clean_up_of_the_log(policy: str, before: int) -> None:
    clock = ManualClock()
    lake = two_tables(clock, {"delta.checkpointPolicy": policy, "delta.logRetentionDuration": "interval 1 day"})
    stopped(lake, before)
    for name in NAMES:
        again(lake).table(name).checkpoint()
    clock.advance(2 * 24 * 3600)
    for name in NAMES:
        names = [info.key for info in lake.store.list(f"{name}/_delta_log/") if info.key.endswith(".json")]
        lake.store.delete([key for key in names if "_last" not in key and "checkpoint" not in key][:-1])
    wanted = (200, 200) if before == DECISION else (190, 210)
    assert amounts(again(lake)) == wanted
    for name in NAMES:
        again(lake).table(name).update({"amount": "amount + 1"}, "id = 'y'")
    assert amounts(again(lake)) == (wanted[0] + 1, wanted[1] + 1)


def test_older_versions_and_the_change_feed_show_what_the_log_holds() -> None:
    lake = two_tables(None, {"delta.enableChangeDataFeed": "true"})
    transfer(lake)
    table = lake.table("a")
    claim, last = 2, 3
    assert [entry.operation for entry in table.history()][:2] == ["UPDATE", "CLAIM"]
    assert sum(table.to_arrow(version=claim)["amount"].to_pylist()) == 200
    assert sum(table.to_arrow(version=last)["amount"].to_pylist()) == 190
    assert len(table.changes(claim, claim).read_all()) == 0
    changed = table.changes(claim).read_all().to_pylist()
    assert sorted((row["_change_type"], row["id"], row["amount"]) for row in changed) == [
        ("update_postimage", "x", 90),
        ("update_preimage", "x", 100),
    ]
    stamp = table.history()[0].timestamp
    assert sum(table.to_arrow(timestamp=stamp)["amount"].to_pylist()) == 190


def test_a_restore_to_a_claim_brings_no_claim_back() -> None:
    lake = two_tables()
    stopped(lake, APPLY_OF_A)
    lake = again(lake)
    lake.table("a").restore(version=2)
    lake.table("b").delete("id = 'y'")
    assert amounts(lake) == (200, 110)
    transfer(lake)
    assert amounts(again(lake)) == (190, 120)


@pytest.mark.parametrize("before", [DECISION, APPLY_OF_A])
def test_a_table_with_a_claim_can_be_dropped_and_brought_back(before: int) -> None:
    lake = two_tables()
    stopped(lake, before)
    lake = again(lake)
    lake.drop_table("a")
    moved = 10 * (before > DECISION)
    assert sum(lake.table("b").to_arrow()["amount"].to_pylist()) == 200 + moved
    lake.undrop("a")
    assert amounts(again(lake)) == (200 - moved, 200 + moved)
    lake.drop_table("a")
    lake.create_table("a", {"id": "string", "amount": "long"})
    append_both(again(lake))
    assert ids(again(lake), "a") == ["new"]


@pytest.mark.parametrize("change", ["delete", "update", "upsert"])
def test_a_change_sees_what_has_happened_before_it_says_that_there_is_nothing_to_do(change: str) -> None:
    lake = two_tables()
    stopped(lake, APPLY_OF_A, append_both)
    table = again(lake).table("a")
    if change == "delete":
        assert table.delete("id = 'new'").rows_deleted == 1
    elif change == "update":
        assert table.update({"amount": "7"}, "id = 'new'").rows_updated == 1
    else:
        assert table.upsert([{"id": "new", "amount": 7}], on=["id"], unmatched="ignore").rows_updated == 1


def test_tables_that_others_may_write_take_no_part() -> None:
    """Those writers would not see the claims."""
    lake = two_tables(None, {"alluvia.writers": "any"})
    with pytest.raises(Unsupported, match="create it with the property"):
        append_both(lake)
    assert amounts(again(lake)) == (200, 200)
    with lake.transaction(["a"]) as tx:
        tx.table("a").delete("true")
    assert lake.table("a").count() == 0


@pytest.mark.parametrize("act", [transfer, append_both])
def test_changes_and_live_rollups_show_what_has_happened_but_is_not_in_the_log(act: Change) -> None:
    lake = two_tables()
    lake.create_rollup("totals", "SELECT id, sum(amount) AS amount, count(*) AS n FROM a GROUP BY id")
    stopped(lake, APPLY_OF_A, act)
    query = "SELECT id, sum(amount) AS amount, count(*) AS n FROM a GROUP BY id ORDER BY id"
    reader = again(lake)
    live = reader.sql("SELECT * FROM totals_live ORDER BY id").to_pylist()
    assert live == reader.sql(query).to_pylist() != lake.sql("SELECT * FROM totals ORDER BY id").to_pylist()
    assert reader.sql("SELECT * FROM totals_live ORDER BY id").to_pylist() == live
    assert reader.table("a").version == 2, "queries write nothing"
    changed = reader.table("a").changes(3).read_all().select(["id", "amount", "_change_type"]).to_pylist()
    expected = {
        transfer: [("x", 100, "delete"), ("x", 90, "insert")],
        append_both: [("new", 1, "insert")],
    }[act]
    assert [tuple(row.values()) for row in changed] == expected
    assert reader.sql("SELECT * FROM totals_live ORDER BY id").to_pylist() == live
    assert reader.table("totals").refresh().source_version == 3
    assert reader.sql("SELECT * FROM totals ORDER BY id").to_pylist() == live


def test_who_may_not_write_reads_the_changes_that_are_in_the_log() -> None:
    lake = two_tables()
    stopped(lake, APPLY_OF_A)

    def refuse(kind: str, _: str) -> None:
        if kind == "put_if_absent":
            raise Unavailable("AccessDenied")

    reader = Lake(HookedStore(lake.store, refuse), lake.clock)
    assert reader.table("a").changes(1).read_all()["_commit_version"].to_pylist() == [1, 1]


@pytest.mark.parametrize("before", [APPLY_OF_A, APPLY_OF_B, 5])
def test_verify_finds_a_table_that_lost_its_part_of_a_transaction(before: int) -> None:
    lake = two_tables()
    if before < 5:
        stopped(lake, before)
    else:
        transfer(lake)
        append_both(lake)
    assert again(lake).table("a").verify().ok
    assert not again(lake).table("a").verify().findings
    claim, change = f"b/_delta_log/{2:020}.json", f"b/_delta_log/{3:020}.json"
    lost = [key for key in (claim, change) if key in {info.key for info in lake.store.list("b/_delta_log/")}]
    lake.store.delete(lost if before < 5 else [f"b/_delta_log/{at:020}.json" for at in range(2, 6)])
    found = [(each.kind, "table b" in each.message) for each in again(lake).table("a").verify().findings]
    assert found == [("transaction-incomplete", True)] * (1 if before < 5 else 2)
    lake.store.delete([info.key for info in lake.store.list("b/")])
    assert [each.kind for each in again(lake).table("a").verify().findings] == ["claim-unchecked"]


@pytest.mark.parametrize("refused", [("b/", "get"), ("b/", "list"), ("", "list")])
def test_a_table_that_may_not_be_read_stops_no_transaction_over_others(refused: tuple[str, str]) -> None:
    lake = two_tables()
    prefix, kind = refused

    def refuse(asked: str, key: str) -> None:
        if asked == kind and (key.startswith(prefix) if prefix else not key):
            raise Invalid("AccessDenied")

    with Lake(HookedStore(lake.store, refuse), lake.clock).transaction() as tx:
        tx.table("a").delete("id = 'x'")
        if prefix:
            with pytest.raises(Invalid, match="AccessDenied"):
                tx.table("b")
    assert (ids(lake, "a"), ids(lake, "b")) == (["y"], ["x", "y"])
