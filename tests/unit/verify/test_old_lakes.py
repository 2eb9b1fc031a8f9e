"""`verify` is green where clean-up, tags and erasures have done what they do, and still sees what is lost."""

from __future__ import annotations

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.commit.commit_records import DECISIONS
from alluvia.delta.log.paths import commit_name

DAY = 24 * 3600


def together(lake: Lake) -> None:
    with lake.transaction(["a", "b"]) as tx:
        for name in ("a", "b"):
            tx.table(name).append([{"n": 1}])


def test_a_transaction_whose_commits_clean_up_has_taken_is_not_lost(lake: Lake, clock: ManualClock) -> None:
    for name in ("a", "b"):
        lake.create_table(name, {"n": "long"})
    together(lake)
    lake.table("b").tag("first", version=2)
    clock.advance(DAY)
    together(lake)
    lake.table("b").checkpoint()
    clock.advance(40 * DAY)
    lake.table("b").append([{"n": 2}])
    lake.table("b").checkpoint()
    clock.advance(40 * DAY)
    lake.table("b").append([{"n": 3}])
    lake.table("b").vacuum()
    left = {info.key for info in lake.store.list("b/_delta_log/")}
    assert f"b/{commit_name(2)}" in left
    assert f"b/{commit_name(3)}" not in left
    assert list(lake.store.list(f"a/{DECISIONS}"))
    assert [finding.kind for finding in lake.table("a").verify().findings] == []
    assert lake.table("b").verify(full=True).ok


def test_a_transaction_that_a_table_has_lost_is_seen(lake: Lake) -> None:
    for name in ("a", "b"):
        lake.create_table(name, {"n": "long"})
    lake.table("b").tag("first", version=0)
    together(lake)
    lake.store.delete([f"b/{commit_name(2)}", f"b/{commit_name(1)}"])
    kept = Lake(lake.store, lake.clock)
    kept.table("b").append([{"n": 2}])
    kept.table("b").append([{"n": 2}])
    assert "transaction-incomplete" in {finding.kind for finding in kept.table("a").verify().findings}


def test_checkpoints_that_an_erasure_writes_for_tags_need_no_tombstones(lake: Lake, clock: ManualClock) -> None:
    table = lake.create_table("t", {"u": "string"})
    for number in range(4):
        clock.advance(60)
        table.append([{"u": f"u{number}"}])
    table.delete("u = 'u0'")
    clock.advance(60)
    table.tag("kept")
    table.append([{"u": "mallory"}, {"u": "bob"}])
    table.delete("u = 'u1'")
    assert table.erase("u = 'mallory'", prove=True).ok
    assert f"t/{commit_name(5).replace('.json', '.checkpoint.parquet')}" in {
        info.key for info in lake.store.list("t/_delta_log/")
    }
    assert table.verify(full=True).findings == ()
    table.tag("again")
    table.append([{"u": "mallory"}])
    assert table.erase("u = 'mallory'", prove=True).ok
    assert table.verify(full=True).findings == ()
