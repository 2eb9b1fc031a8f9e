"""A newest checkpoint that cannot be read: the one before it and the commits after that make the same table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Corrupt
from alluvia.store import CountingStore, MemoryStore

DAY = 24 * 3600
BREAKS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "its end alone is lost": lambda data: data[:-8],
    "zeros": lambda data: bytes(len(data)),
    "another file": lambda data: b"{}\n",
}


@pytest.fixture
def lake(clock: ManualClock) -> Lake:
    lake = Lake(CountingStore(MemoryStore("broken-checkpoints", clock)), clock)
    table = lake.create_table("t", pa.schema([("n", pa.int64())]), properties={"delta.checkpointInterval": "1000"})
    for number in range(1, 7):
        table.append([{"n": number}])
        if number in (2, 4):
            table.checkpoint()
    return lake


def break_checkpoint(lake: Lake, version: int, how: Callable[[bytes], bytes]) -> None:
    (key,) = [info.key for info in lake.store.list(f"t/_delta_log/{version:020d}.checkpoint")]
    lake.store.put(key, how(lake.store.get(key)))


@pytest.mark.parametrize("how", BREAKS.values(), ids=BREAKS)
@pytest.mark.parametrize("hint", [True, False])
def test_a_broken_checkpoint_is_passed_over(lake: Lake, how: Callable[[bytes], bytes], hint: bool) -> None:
    break_checkpoint(lake, 4, how)
    if not hint:
        lake.store.delete(["t/_delta_log/_last_checkpoint"])
    fresh = Lake(lake.store, lake.clock)["t"]
    assert sorted(fresh.to_arrow()["n"].to_pylist()) == [1, 2, 3, 4, 5, 6]
    for version in (4, 5):
        assert fresh.count(version=version) == version
    fresh.append([{"n": 7}])
    break_checkpoint(lake, 2, how)
    again = Lake(lake.store, lake.clock)["t"]
    assert again.count() == 7
    report = again.verify()
    assert not report.ok
    assert "checkpoint-unreadable" in report.found
    again.checkpoint()
    assert Lake(lake.store, lake.clock)["t"].count() == 7


@pytest.mark.parametrize("how", BREAKS.values(), ids=BREAKS)
def test_what_the_log_lacks_is_named(lake: Lake, how: Callable[[bytes], bytes]) -> None:
    break_checkpoint(lake, 4, how)
    lake.store.delete([f"t/_delta_log/{3:020d}.json"])
    with pytest.raises(Corrupt, match=f"{4:020d}.checkpoint.parquet"):
        Lake(lake.store, lake.clock)["t"].count()


def test_clean_up_keeps_what_a_broken_checkpoint_cannot_replace(lake: Lake, clock: ManualClock) -> None:
    warm = Lake(lake.store, clock)["t"]
    assert warm.count() == 6
    break_checkpoint(lake, 4, BREAKS["empty"])
    for table in (warm, Lake(lake.store, clock)["t"]):
        clock.advance(60 * DAY)
        table.append([{"n": 7}])
        table.vacuum(timedelta(days=7))
        assert sorted({*Lake(lake.store, clock)["t"].to_arrow()["n"].to_pylist()}) == [1, 2, 3, 4, 5, 6, 7]
    versions = {info.key.rpartition("/")[2][:20] for info in lake.store.list("t/_delta_log/0")}
    assert f"{0:020d}" not in versions, "the checkpoint of version 2 can be read, and replaces what came before it"


def test_a_sound_log_costs_what_it_did(lake: Lake) -> None:
    store = lake.store
    assert isinstance(store, CountingStore)
    fresh = Lake(store, lake.clock)["t"]
    store.reset()
    assert fresh.version == 6
    assert store.requests == {"get": 5, "list": 1}
