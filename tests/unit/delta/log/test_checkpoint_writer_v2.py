"""v2 checkpoints: what is written for a change, what a query opens, and what other readers read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.checkpoints import v2 as checkpoint_v2
from alluvia.delta.log.files.sidecars import FACTS_TAG
from alluvia.delta.skipping.predicate import Comparison
from alluvia.errors import Invalid
from alluvia.store import DirectoryStore
from tests.judges import duckdb_rows, on_disk, ours
from tests.unit.delta.log.sidecars import (
    DAY_MS,
    SCHEMA,
    SIDECARS,
    START,
    START_MS,
    V2,
    add,
    cold,
    fill,
    new_table,
    paths,
    replace_file,
    row,
    written,
)
from tests.unit.delta.log.sidecars import small_sidecars as small_sidecars  # noqa: PLC0414 - a fixture


def named(table: Table) -> set[str]:
    return {part.file.name.rpartition("/")[2] for part in table.snapshot().files.parts}  # type: ignore[attr-defined]


def test_the_feature_comes_with_the_property() -> None:
    _, _, table = new_table()
    protocol = table.snapshot().protocol
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert "v2Checkpoint" in (protocol.reader_features or ())
    assert "v2Checkpoint" in (protocol.writer_features or ())
    with pytest.raises(Invalid, match=r"delta.checkpointPolicy: 'v3' is not valid; use 'classic' or 'v2'"):
        new_table({"delta.checkpointPolicy": "v3"})


def test_sidecars_first_then_what_names_them_then_the_hint() -> None:
    _, store, table = new_table()
    fill(table, range(20))
    store.reset()
    table.checkpoint()
    assert written(store) == ["_sidecars/*.parquet"] * 3 + [
        "00000000000000000001.checkpoint.*.parquet",
        "_last_checkpoint",
    ]
    fresh = cold(store, table)
    assert paths(fresh) == paths(table) == [f"f{number:04d}" for number in range(20)]
    assert list(fresh.snapshot().files) == list(table.snapshot().files)


@pytest.mark.parametrize("warm", [True, False])
def test_a_change_of_one_file_rewrites_its_sidecar_alone(warm: bool) -> None:
    _, store, table = new_table()
    fill(table, range(160))
    table.checkpoint()
    before = named(table)
    table = table if warm else cold(store, table)
    replace_file(table, 77, 900)
    store.reset()
    table.checkpoint()
    assert len(before - named(table)) == 1
    assert len(before & named(table)) == 19
    assert written(store).count("_sidecars/*.parquet") == 3  # what is left of the sidecar, the new file, the tombstone
    for number in range(78, 90):
        replace_file(table, number, number + 1000)
    table.checkpoint()
    fresh = cold(store, table)
    expected = {*range(77), *range(90, 160), 900, *range(1078, 1090)}
    assert paths(fresh) == paths(table) == [f"f{number:04d}" for number in sorted(expected)]
    assert sorted(file.path for file in fresh.snapshot().state.tombstones) == [f"f{at:04d}" for at in range(77, 90)]


def test_small_sidecars_do_not_pile_up() -> None:
    _, store, table = new_table()
    for number in range(40):
        fill(table, range(number, number + 1))
        table.checkpoint()
    assert len(named(table)) <= 40 / (checkpoint_v2.SIDECAR_ROWS // 2) + 1
    store.reset()
    table.checkpoint()
    assert not written(store)
    assert paths(cold(store, table)) == [f"f{number:04d}" for number in range(40)]


def test_a_table_that_grows_gets_bigger_sidecars_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_v2, "SIDECARS", 4)
    _, store, table = new_table()
    fill(table, range(32))
    table.checkpoint()
    sizes = [sorted(map(len, cold(store, table).snapshot().files.parts))]
    for numbers in (range(32, 112), range(112, 113), range(113, 114), range(114, 140)):
        fill(table, numbers)
        table.checkpoint()
        sizes.append(sorted(map(len, cold(store, table).snapshot().files.parts)))
    assert sizes[0] == [8] * 4
    assert sizes[1] == [8] * 2 + [16] * 6
    assert sizes[2] == [1] + [16] * 7
    assert sizes[3] == [2] + [16] * 7
    assert sizes[4] == [16] * 5 + [28, 32]
    assert paths(cold(store, table)) == [f"f{number:04d}" for number in range(140)]


def test_a_filtered_scan_opens_the_sidecars_that_can_match_alone() -> None:
    _, store, table = new_table()
    fill(table, range(160))
    table.checkpoint()
    fill(table, range(160, 163))
    fresh = cold(store, table)
    snapshot = fresh.snapshot()
    assert not [key for _, key in store.keys if key.startswith(SIDECARS) and ("get", key) in store.keys]
    for predicate, files, opened in (
        (Comparison(("id",), "=", 33), ["f0033"], 1),
        (Comparison(("s",), "=", "name 0034"), ["f0034"], 0),
        (Comparison(("ts",), "<", row(3)["ts"]), ["f0000", "f0001", "f0002"], 1),
        (Comparison(("id",), ">=", 159), ["f0159", "f0160", "f0161", "f0162"], 1),
        (Comparison(("id",), ">", 5000), [], 0),
    ):
        store.reset()
        assert [file.path for file in Scan(snapshot, predicate).files] == files
        assert store.requests == ({"get": opened} if opened else {})
    store.reset()
    assert snapshot.totals == (163, 1630)
    assert not store.requests
    assert len(snapshot.files) == 163
    assert snapshot.totals == (163, 1630)


def test_totals_need_no_sidecar(tmp_path: Path) -> None:
    _, store, table = new_table()
    fill(table, range(160))
    table.checkpoint()
    replace_file(table, 5, 500)
    replace_file(table, 500, 501)
    replace_file(table, 6, 6)
    snapshot = cold(store, table).snapshot()
    store.reset()
    assert snapshot.totals == (160, 1600)
    assert not store.requests
    assert (len(snapshot.files), snapshot.files.total("size")) == (160, 1600)


def test_counting_opens_a_sidecar_only_for_files_that_may_be_in_it() -> None:
    _, store, table = new_table()
    fill(table, range(160))
    table.checkpoint()
    fill(table, range(160, 163))
    snapshot = cold(store, table).snapshot()
    store.reset()
    assert len(snapshot.files) == 163
    assert not store.requests
    table.commit_files([replace(add(33), modification_time=START_MS + 1)])  # again, as if it had been made later
    replace_file(table, 50, 50)
    snapshot = cold(store, table).snapshot()
    store.reset()
    assert len(snapshot.files) == 163
    assert store.requests == {"get": 2}
    assert len(list(snapshot.files.keys())) == 163


def test_expired_tombstones_go_with_their_sidecars() -> None:
    clock, store, table = new_table({"delta.deletedFileRetentionDuration": "1 day"})
    fill(table, range(40))
    table.checkpoint()
    for number in range(12):
        replace_file(table, number, number + 100)
    table.checkpoint()
    assert len(list(cold(store, table).snapshot().state.tombstones)) == 12
    clock.advance(3 * DAY_MS / 1000)
    fill(table, range(200, 201))
    table.checkpoint()
    assert not list(cold(store, table).snapshot().state.tombstones)
    assert len(paths(cold(store, table))) == 41


def test_a_file_that_comes_back_is_no_tombstone() -> None:
    _, store, table = new_table()
    fill(table, range(40))
    replace_file(table, 7, 70)
    table.checkpoint()
    replace_file(table, 70, 7)
    table.checkpoint()
    state = cold(store, table).snapshot().state
    assert [file.path for file in state.tombstones] == ["f0070"]
    assert sorted(file.path for file in state.files) == [f"f{number:04d}" for number in range(40)]


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_other_readers_read_reused_sidecars_at_every_version(tmp_path: Path, policy: str) -> None:
    store = DirectoryStore(tmp_path)
    table = Lake(store, ManualClock(int(START.timestamp()) * 1_000_000)).create_table(
        "t", SCHEMA, partition_by=["s"], properties={**V2, "delta.checkpointPolicy": policy}
    )
    for number in range(30):
        table.append([{**row(number), "s": f"p{number % 3}"}, {**row(number), "s": "a b/%"}])
        if number % 7 == 6:
            table.delete(f"id = {number - 3}")
            table.checkpoint()
    with on_disk(table) as there:
        for version in (table.snapshot().version, 8, 9, 17):
            assert duckdb_rows(there, version) == ours(there, version)


def facts_of(table: Table) -> Iterator[dict[str, Any]]:
    for part in table.snapshot().files.parts:
        yield orjson.loads(part.file.sidecar.tags[FACTS_TAG])  # type: ignore[attr-defined]


def test_a_sidecar_says_what_it_holds() -> None:
    _, store, table = new_table()
    fill(table, range(10))
    table.checkpoint()
    first, second = facts_of(cold(store, table))
    assert (first["kind"], first["rows"], first["size"], second["rows"]) == ("add", 8, 80, 2)
    assert (first["firstKey"], first["lastKey"]) == ("f0000", "f0007")
    assert orjson.loads(second["statistics"]) == {
        "numRecords": 2,
        "minValues": {"id": 8, "s": "name 0008", "ts": "2024-05-06T08:00:00Z"},
        "maxValues": {"id": 9, "s": "name 0009", "ts": "2024-05-06T09:00:00.001000Z"},
        "nullCount": {"id": 0, "s": 0, "ts": 0},
    }
