"""What keeps versions costs an erasure and a vacuum one pass over the log, and an error names ten keepers at most."""

from __future__ import annotations

from typing import Any

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.commit.commit_records import DECISIONS
from alluvia.errors import Invalid
from alluvia.operations import checkpointing
from alluvia.store import CountingStore
from tests.inline_pool import InlinePool
from tests.transactions import APPLY_OF_A, stopped

DAY = 24 * 3600


def tagged(lake: Lake, clock: ManualClock, tags: int) -> None:
    """Make a table with so many tags, each on a version of its own, that all hold nobody's rows."""
    table = lake.create_table("t", {"u": "string"})
    for number in range(tags):
        clock.advance(60)
        table.append([{"u": "alice"}])
        table.tag(f"v{number:02}")
    clock.advance(60)
    table.append([{"u": "mallory"}, {"u": "alice"}])


def gets(lake: Lake, store: CountingStore) -> int:
    fresh = Lake(lake.store, lake.clock)
    store.reset()
    assert fresh.table("t").erase("u = 'mallory'", prove=True).ok
    return store.requests["get"]


def test_an_erasure_reads_the_log_once_for_all_tags(lake: Lake, store: CountingStore, clock: ManualClock) -> None:
    tagged(lake, clock, 5)
    few = gets(lake, store)
    lake.store.delete([info.key for info in lake.store.list("")])
    tagged(Lake(lake.store, clock), clock, 35)
    many = gets(lake, store)
    assert (many - few) / 30 <= 15  # its commit, checkpoint, file and keeper, each searched twice


def test_a_refusal_names_ten_keepers_and_counts_the_others(lake: Lake, clock: ManualClock) -> None:
    tagged(lake, clock, 0)
    for number in range(13):
        lake.table("t").tag(f"v{number:02}")
    with pytest.raises(Invalid) as refused:
        lake.table("t").erase("u = 'mallory'")
    assert "tag v09 of t and 3 more: delete the tags" in str(refused.value)
    assert "v10" not in str(refused.value)


def append_to_both(lake: Lake) -> None:
    with lake.transaction(["a", "b"]) as tx:
        for name in ("a", "b"):
            tx.table(name).append([{"n": 1}])


def decisions(lake: Lake) -> int:
    return len(list(lake.store.list(f"a/{DECISIONS}")))


def test_decisions_go_though_a_newer_tag_is_there(lake: Lake, clock: ManualClock) -> None:
    for name in ("a", "b"):
        lake.create_table(name, {"n": "long"})
    append_to_both(lake)
    clock.advance(1)
    lake.tag("later")
    clock.advance(3 * DAY)
    append_to_both(lake)
    lake.table("a").vacuum()
    assert decisions(lake) == 1
    assert lake.table("b").to_arrow(tag="later").num_rows == 1


def test_a_decision_stays_by_which_a_tag_understands_a_claim(lake: Lake, clock: ManualClock) -> None:
    for name in ("a", "b"):
        lake.create_table(name, {"n": "long"})
    stopped(lake, APPLY_OF_A, append_to_both)
    clock.advance(1)
    lake.tag("between")
    clock.advance(3 * DAY)
    lake.table("a").vacuum()
    assert decisions(lake) == 1
    for name in ("a", "b"):
        assert Lake(lake.store, clock).table(name).to_arrow(tag="between").num_rows == 1
    lake.drop_tag("between")
    clock.advance(3 * DAY)
    lake.table("a").vacuum()
    assert decisions(lake) == 0


def test_streams_and_tables_of_transactions_alone_get_checkpoints(lake: Lake, clock: ManualClock) -> None:
    for name in ("a", "b", "source"):
        lake.create_table(name, {"n": "long"})
    lake.create_stream("new", "source")
    for number in range(105):
        lake.table("source").append([{"n": number}])
        with lake.transaction() as tx:
            row: Any = [{"n": tx.stream("new").to_arrow().num_rows}]
            tx.table("a").append(row)
            tx.table("b").append(row)
    for root in ("a", "b", "_alluvia/streams/new"):
        assert any(".checkpoint." in info.key for info in lake.store.list(f"{root}/_delta_log/")), root


def test_an_erasure_does_not_make_the_log_young(lake: Lake, clock: ManualClock) -> None:
    """An erasure writes old commits again. They are as old as before: clean-up goes by what follows them."""
    table = lake.create_table("t", {"u": "string"})
    table.append([{"u": "mallory"}])
    table.delete("u = 'mallory'")
    for _ in range(12):
        clock.advance(7 * DAY)
        table.append([{"u": "bob"}])
        table.optimize(full=True)
        table.checkpoint()
    assert table.erase("u = 'mallory'", prove=True).commits_redacted
    clock.advance(DAY)
    table.vacuum()
    commits = [info for info in lake.store.list("t/_delta_log/") if info.key.endswith(".json")]
    assert len(commits) < 15  # of the last thirty days, and since the checkpoint before
    assert len(list(lake.store.list("t/part-"))) <= 3
    assert table.verify(full=True).findings == ()


@pytest.mark.parametrize("shift", [0, 1])
def test_upkeep_that_a_transaction_begins_does_not_abort_it(
    lake: Lake, clock: ManualClock, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clean-up of a stream waits for transactions that claim it: it must not begin between claim and decision."""
    monkeypatch.setattr(checkpointing, "ThreadPoolExecutor", InlinePool)
    for name in ("a", "source"):
        lake.create_table(name, {"n": "long"})
    lake.create_stream("new", "source")
    for _ in range(shift):
        lake.move_stream("new", version=0)
    for number in range(110):
        lake.table("source").append([{"n": number}])
        with lake.transaction() as tx:
            tx.table("a").append([{"n": tx.stream("new").to_arrow().num_rows}])
    assert lake.table("a").count() == 110
    for root in ("a", "_alluvia/streams/new"):
        assert any(".checkpoint." in info.key for info in lake.store.list(f"{root}/_delta_log/")), root
