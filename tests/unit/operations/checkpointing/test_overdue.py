"""Checkpoints without merge: the writer that notices that one is overdue has it written."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.commit.warm_table import OVERDUE
from alluvia.errors import ObjectNotFound, Unavailable
from alluvia.operations import checkpointing
from alluvia.operations.checkpointing import checkpoint
from alluvia.store.counting import CountingStore
from alluvia.store.memory import MemoryStore
from tests.inline_pool import InlinePool

INTERVAL = 3
AT = OVERDUE * INTERVAL


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    InlinePool.runs = 0
    monkeypatch.setattr(checkpointing, "ThreadPoolExecutor", InlinePool)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore("overdue"))


def lake(store: CountingStore) -> Lake:
    return Lake(store, ManualClock())


def known_checkpoint(table: Any) -> int | None:
    found: int | None = table._handle.log.checkpoint_version
    return found


def append(table: Any, commits: int) -> None:
    for number in range(commits):
        table.append([{"n": number}])


def test_a_cold_process_never_reads_more_than_the_commits_until_one_is_overdue(store: CountingStore) -> None:
    table = lake(store).create_table("t", {"n": "long"}, properties={"delta.checkpointInterval": str(INTERVAL)})
    append(table, AT - 1)
    assert known_checkpoint(table) is None
    append(table, 1)
    assert known_checkpoint(table) == AT
    append(table, 3 * AT)
    assert InlinePool.runs == 4
    append(table, AT - 1)
    store.reset()
    assert lake(store).table("t").snapshot().version == 5 * AT - 1
    assert store.requests["get"] <= AT + 3  # the hint, the checkpoint, its own commit, and those after it


def test_each_of_several_writers_knows_of_the_others_checkpoint(store: CountingStore) -> None:
    first = lake(store).create_table("t", {"n": "long"}, properties={"delta.checkpointInterval": str(INTERVAL)})
    second = lake(store).table("t")
    second.snapshot()
    for _ in range(2 * AT):
        append(first, 1)
        append(second, 1)
    versions = [int(info.key[13:33]) for info in store.list("t/_delta_log/") if "checkpoint.parquet" in info.key]
    # The other writer finds the new checkpoint at its own next turn, and writes none unless one is due again.
    assert all(later - earlier >= INTERVAL for earlier, later in pairwise(versions))
    assert len(versions) <= 2 * 4
    assert 4 * AT - versions[-1] <= AT


def test_merge_in_time_leaves_nothing_to_do(store: CountingStore) -> None:
    table = lake(store).create_table("t", {"n": "long"}, properties={"delta.checkpointInterval": str(INTERVAL)})
    for _ in range(3):
        append(table, AT - 2)
        table.checkpoint()
    assert InlinePool.runs == 0


def test_a_checkpoint_that_fails_fails_no_commit(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = lake(store).create_table("t", {"n": "long"}, properties={"delta.checkpointInterval": str(INTERVAL)})

    def refuse(*_: Any, **__: Any) -> int:
        raise Unavailable("the store went away")

    monkeypatch.setattr(checkpointing, "checkpoint", refuse)
    with caplog.at_level(logging.WARNING):
        append(table, AT)
    assert table.scan().read_all().num_rows == AT
    assert "table t has no new checkpoint, though one is overdue: the store went away" in caplog.text
    monkeypatch.undo()


def test_the_caller_does_not_wait(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_over: list[Any] = []
    monkeypatch.setattr(InlinePool, "submit", lambda _, work, *args: handed_over.append((work, args)))
    table = lake(store).create_table("t", {"n": "long"}, properties={"delta.checkpointInterval": str(INTERVAL)})
    append(table, AT - 1)
    store.reset()
    append(table, 1)
    assert store.requests == {"put": 2}
    [(work, args)] = handed_over
    work(*args)
    assert known_checkpoint(table) == AT
    append(table, 1)
    assert lake(store).table("t").scan().read_all().num_rows == AT + 1


def test_it_reads_nothing_but_which_checkpoint_is_newest(store: CountingStore) -> None:
    interval = {"delta.checkpointInterval": str(INTERVAL)}
    table = lake(store).create_table("t", {"event_id": "string"}, properties=interval)
    for number in range(AT - 1):
        table.ingest(pa.table({"event_id": [f"{number}"]}))
    store.reset()
    table.ingest(pa.table({"event_id": ["last"]}))
    assert known_checkpoint(table) == AT
    assert store.requests == {"put": 2 + 3, "get": 1}  # the index of event ids, the checkpoint and the hint to it
    with pytest.raises(ObjectNotFound):
        store.get(f"t/_delta_log/{AT + 1:020d}.json")
    cold = lake(store).table("t")
    assert cold.ingest(pa.table({"event_id": ["3", "new"]})).duplicates == 1
    assert table.ingest(pa.table({"event_id": ["5", "new", "last", "newer"]})).duplicates == 3


def test_commits_while_it_is_written_are_kept(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake(store).create_table("t", {"n": "long"}, properties={"delta.checkpointInterval": str(INTERVAL)})

    def slowly(handle: Any) -> int:
        written = checkpoint(handle)
        table.append([{"n": AT}])
        table.delete("n = 0")
        return written

    monkeypatch.setattr(checkpointing, "checkpoint", slowly)
    append(table, AT)
    assert known_checkpoint(table) == AT
    for each in (table, lake(store).table("t")):
        assert sorted(each.to_arrow()["n"].to_pylist()) == list(range(1, AT + 1))
