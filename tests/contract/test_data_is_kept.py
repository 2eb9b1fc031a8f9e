"""What a table is made of is never written over, whatever goes wrong in the process that writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import KeyTaken, Unavailable
from alluvia.store import CountingStore, MemoryStore, Store, Wrapper, open_store
from tests.s3server import S3Server

T = TypeVar("T")
SCHEMA = {"x": "long"}
UPKEEP = ("_delta_log/_last_checkpoint", "/_alluvia/")


class Repeating(ManualClock):
    """Gives out one id again and again, as a fork of a process with a seed of its own random numbers could."""

    repeats = False

    def new_id(self) -> str:
        return "00000000-0000-4000-8000-000000000000" if self.repeats else super().new_id()


class Blind(CountingStore):
    """Notes the keys that are written with no condition."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.blind: list[str] = []

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if kind in ("put", "put_parts"):
            self.blind.append(key)
        return super().request(kind, key, send)


class Contended(Wrapper):
    """Writes a checkpoint after each look at it, as many processes at once."""

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        found = super().request(kind, key, send)
        if kind == "get_tagged" and ".checkpoint." in key:
            self.inner.put(key, found[0] + b"x")  # type: ignore[index]
        return found


@pytest.fixture(params=["memory", "directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        server.inject()
        return open_store(f"s3://{server.new_bucket()}/lake", ManualClock(), **server.options)
    return open_store(str(tmp_path / "lake"), ManualClock()) if request.param == "directory" else MemoryStore("m")


def rows(table: Table) -> list[int]:
    return sorted(table.to_arrow()["x"].to_pylist())


@pytest.mark.parametrize("change", ["append", "delete", "optimize"])
def test_a_name_that_comes_again_is_an_error_and_the_first_rows_stay(store: Store, change: str) -> None:
    clock = Repeating()
    table = Lake(store, clock).create_table("t", SCHEMA)
    clock.repeats = True
    table.append([{"x": 1}, {"x": 2}])
    clock.repeats = False
    table.append([{"x": 3}])
    clock.repeats = True
    changes: dict[str, Callable[[], object]] = {
        "append": lambda: table.append([{"x": 4}]),
        "delete": lambda: table.delete("x = 1"),
        "optimize": table.optimize,
    }
    with pytest.raises(KeyTaken, match=r"part-00000000-0000-4000-8000-000000000000\.parquet exists already"):
        changes[change]()
    assert rows(Lake(store, ManualClock()).table("t")) == [1, 2, 3]


def test_no_operation_writes_data_without_a_condition(store: Store) -> None:
    blind = Blind(store)
    clock = ManualClock()
    lake = Lake(blind, clock)
    properties = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    lake.create_table("t", SCHEMA, properties=properties)
    v2 = lake.create_table("v2", SCHEMA, properties={**properties, "delta.checkpointPolicy": "v2"})
    for table in (lake.table("t"), v2):
        for number in range(3):
            table.append([{"x": 3 * number + each} for each in range(3)])
        table.delete("x = 1")
        table.update({"x": "x + 10"}, "x = 2")
        table.upsert([{"x": 3}], ["x"])
        table.checkpoint()
        table.optimize()
        table.tag("kept")
        clock.advance(40 * 24 * 3600)
        table.vacuum()
    lake.clone("t", "shallow")
    lake.clone("t", "copied", deep=True)
    branch = lake.branch("fix")
    branch.table("t").append([{"x": 100}])
    branch.table("t").checkpoint()
    branch.publish()
    lake.drop_table("v2")
    assert rows(lake.table("t"))[-1] == 100
    assert {key for key in blind.blind if not any(each in f"/{key}" for each in UPKEEP)} == set()
    assert any(key.endswith("_last_checkpoint") for key in blind.blind)


def test_of_two_checkpoints_of_a_version_the_second_replaces_what_it_has_seen(store: Store) -> None:
    Lake(store, ManualClock()).create_table("t", SCHEMA).append([{"x": 1}])
    first, second = (Lake(Blind(store), ManualClock()).table("t") for _ in range(2))
    for table in (first, second):
        table.snapshot()
    first.checkpoint()
    key = "t/_delta_log/00000000000000000001.checkpoint.parquet"
    store.put(key, b"damaged")
    second.checkpoint()
    seen = second.lake.store
    assert isinstance(seen, Blind)
    assert seen.blind == ["t/_delta_log/_last_checkpoint"]
    assert rows(Lake(store, ManualClock()).table("t")) == [1]


def test_a_checkpoint_that_others_write_all_the_time_is_left_to_them() -> None:
    store = MemoryStore("m")
    table = Lake(Contended(store), ManualClock()).create_table("t", SCHEMA)
    table.append([{"x": 1}])
    store.put("t/_delta_log/00000000000000000001.checkpoint.parquet", b"")
    with pytest.raises(Unavailable, match="written by others again and again"):
        table.checkpoint()
