from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.clock import ManualClock
from alluvia.errors import Corrupt, Invalid
from alluvia.lake import Lake, Table
from alluvia.log.actions import AddFile
from alluvia.operations.optimize_plan import plan_optimize
from alluvia.store import CountingStore
from alluvia.table.snapshot import Snapshot
from tests.judges import judges_agree

NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)


def add(size: int, name: str = "", partition: str = "p", tag: str = "") -> AddFile:
    tags = {"alluvia.partition": tag} if tag else {}
    return AddFile(name or f"{size}", {"c": partition}, size, 1, data_change=True, tags=tags)


def sizes(files: list[AddFile], target: int, *, full: bool = False) -> list[list[int]]:
    return [[file.size for file in group.files] for group in plan_optimize(files, target, full=full)]


def test_small_files_go_together_up_to_the_target() -> None:
    assert sizes([add(size) for size in (10, 30, 20)], 1000) == [[10, 20, 30]]
    assert sizes([add(40, str(at)) for at in range(5)], 100) == [[40, 40], [40, 40]]
    assert sizes([add(10)], 100) == []
    assert sizes([], 100) == []


def test_big_files_are_left_alone() -> None:
    assert sizes([add(75, "a"), add(75, "b"), add(10, "c"), add(10, "d")], 100) == [[10, 10]]
    assert sizes([add(74, "a"), add(20, "b")], 100) == [[20, 74]]


def test_a_big_file_is_not_written_again_for_a_few_small_ones_unless_all_is_asked_for() -> None:
    files = [add(1, "a"), add(1, "b"), add(500, "c")]
    assert sizes(files, 1000) == [[1, 1]]
    assert sizes(files, 1000, full=True) == [[1, 1, 500]]
    assert sizes([add(size) for size in (1, 8, 60, 400)], 1000) == [[1, 8, 60, 400]]


def test_partitions_do_not_mix() -> None:
    files = [add(1, "a", "p"), add(1, "b", "q"), add(1, "c", "p"), add(1, "d", "q", "x"), add(1, "e", "q", "y")]
    assert [[file.path for file in group.files] for group in plan_optimize(files, 100)] == [["a", "c"]]


def test_repeated_merging_writes_each_row_a_few_times() -> None:
    written, files = 0, []
    for number in range(512):
        files.append(add(1, str(number)))
        for group in plan_optimize(files, 10_000):
            written += group.size
            gone = {file.path for file in group.files}
            files = [file for file in files if file.path not in gone] + [add(group.size, f"m{written}")]
    assert written <= 512 * 80
    assert len(files) <= 20


def table_of(lake: Lake, **options: Any) -> Table:
    schema = pa.schema([("x", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("c", pa.string())])
    return lake.create_table("t", schema, **options)


def test_a_merge_writes_each_partition_once_sorted_and_changes_no_row(lake: Lake, store: CountingStore) -> None:
    table = table_of(lake, partition_by=["c", "day(ts)"], sort_by=["x"])
    for number in range(6):
        rows = [{"x": 10 - number, "ts": NOON + timedelta(days=day, microseconds=number), "c": c}
                for day in range(2) for c in ("a/b", None)]  # fmt: skip
        table.append(rows)
    before = sorted(table.scan().read_all().to_pylist(), key=repr)
    report = table.optimize()
    snapshot = table.snapshot()
    assert (report.files_before, report.files_removed, report.files_added, report.files_after) == (24, 24, 4, 4)
    assert (report.conflicts, report.version, len(report.versions)) == (0, snapshot.version, 4)
    assert report.bytes_written == sum(file.size for file in snapshot.files)
    assert sorted(table.scan().read_all().to_pylist(), key=repr) == before
    for file in snapshot.files:
        assert file.tags["alluvia.partition"].startswith('{"day(ts)":"2024-05-0')
        assert file.path.rpartition("/")[0] in {
            f"c={c}/ts_day=2024-05-0{day}" for day in (6, 7) for c in ("a%2Fb", "__HIVE_DEFAULT_PARTITION__")
        }
        assert not file.data_change
        stored = pq.ParquetFile(pa.BufferReader(store.get(f"t/{file.path}"))).read()
        assert stored.column_names == ["x", "ts"]
        assert stored["x"].to_pylist() == [5, 6, 7, 8, 9, 10]
        stats = json.loads(file.stats or "")
        assert (stats["numRecords"], stats["minValues"]["x"], stats["maxValues"]["x"]) == (6, 5, 10)
        assert stats["nullCount"] == {"x": 0, "ts": 0}
        assert stats["maxValues"]["ts"].endswith("12:00:00.001Z")
    assert table.optimize().files_removed == 0
    judges_agree(table)


def test_the_merge_commit_changes_no_data(lake: Lake) -> None:
    table = table_of(lake)
    for number in range(2):
        table.append([{"x": number}])
    table.optimize()
    commit = table._handle.log.read_commit(3)
    assert commit is not None
    assert not commit.data_change
    assert commit.info["operation"] == "OPTIMIZE"
    assert commit.info["isBlindAppend"] is False


def test_a_merge_takes_files_of_old_and_new_schemas(lake: Lake) -> None:
    table = table_of(lake)
    table.append([{"x": 1}])
    table.evolve({"y": "string"})
    table.append([{"x": 2, "y": "b"}])
    table.optimize()
    (file,) = table.snapshot().files
    assert json.loads(file.stats or "")["nullCount"]["y"] == 1
    assert sorted(table.scan(["x", "y"]).read_all().to_pylist(), key=repr) == [{"x": 1, "y": None}, {"x": 2, "y": "b"}]
    judges_agree(table)


def test_appends_that_land_meanwhile_stay(lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table, writer = table_of(lake), other.table("t")
    for number in range(3):
        table.append([{"x": number}])
    write = table._handle.log.write
    done: list[int] = []

    def overtaken(version: int, data: bytes, txn_id: str) -> Any:
        if not done:
            done.append(writer.append([{"x": 99}]).version)
        return write(version, data, txn_id)

    monkeypatch.setattr(table._handle.log, "write", overtaken)
    report = table.optimize()
    assert done == [4]
    assert (report.files_removed, report.conflicts, report.version, report.files_after) == (3, 0, 5, 2)
    assert sorted(table.scan(["x"]).read_all()["x"].to_pylist()) == [0, 1, 2, 99]


def test_a_merge_that_loses_its_files_to_another_plans_again(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, rival = table_of(lake), other.table("t")
    for number in range(4):
        table.append([{"x": number}])
    write = table._handle.log.write
    done: list[int] = []

    def overtaken(version: int, data: bytes, txn_id: str) -> Any:
        if not done:
            done.append(rival.optimize().version)
            rival.append([{"x": 99}])
        return write(version, data, txn_id)

    monkeypatch.setattr(table._handle.log, "write", overtaken)
    report = table.optimize()
    assert (report.conflicts, report.files_removed, report.files_after) == (1, 2, 1)
    assert sorted(table.scan(["x"]).read_all()["x"].to_pylist()) == [0, 1, 2, 3, 99]


def test_a_file_that_vacuum_took_meanwhile_is_planned_around(
    lake: Lake, other: Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, rival = table_of(lake), other.table("t")
    for number in range(4):
        table.append([{"x": number}])
    planned = table._handle.newest()
    clock.advance(1)
    rival.optimize()
    clock.advance(1)
    rival.vacuum(timedelta(0))
    newest = table._handle.newest

    def stale(**_: Any) -> Snapshot:
        monkeypatch.setattr(table._handle, "newest", newest)
        return planned

    monkeypatch.setattr(table._handle, "newest", stale)
    report = table.optimize()
    assert (report.conflicts, report.files_removed) == (1, 0)
    assert report.version == rival.snapshot().version
    assert sorted(table.scan(["x"]).read_all()["x"].to_pylist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("damage", [b"", b"garbage", b"PAR1" * 4])
def test_a_damaged_file_is_named(lake: Lake, store: CountingStore, damage: bytes) -> None:
    table = table_of(lake)
    for number in range(2):
        table.append([{"x": number}])
    file = sorted(table.snapshot().files, key=lambda each: each.path)[0]
    store.put(f"t/{file.path}", damage)
    with pytest.raises(Corrupt, match=file.path) as raised:
        table.optimize()
    assert "/tmp" not in str(raised.value)


def test_a_missing_file_is_damage_when_the_log_still_names_it(lake: Lake, store: CountingStore) -> None:
    table = table_of(lake)
    for number in range(2):
        table.append([{"x": number}])
    store.delete([f"t/{next(iter(table.snapshot().files)).path}"])
    with pytest.raises(Corrupt, match="is missing"):
        table.optimize()


def test_rows_that_statistics_promise_must_be_there(lake: Lake, store: CountingStore) -> None:
    table = table_of(lake)
    for number in range(2):
        table.append([{"x": number}])
    one, two = table.snapshot().files
    store.put(f"t/{one.path}", store.get(f"t/{two.path}"))
    assert table.optimize().files_removed == 2
    table.append([{"x": 5}, {"x": 6}])
    first, second = table.snapshot().files
    store.put(f"t/{second.path}", b"")
    table.append([{"x": 7}])
    third = list(table.snapshot().files)[-1]
    store.put(f"t/{second.path}", store.get(f"t/{third.path}"))
    with pytest.raises(Corrupt, match=f"{second.path} holds 1 rows, but its statistics say 2"):
        table.optimize()
    assert first.num_records == 2


def test_a_checkpoint_is_written_when_due(lake: Lake) -> None:
    table = table_of(lake, properties={"delta.checkpointInterval": "4"})
    for number in range(2):
        table.append([{"x": number}])
    assert table.optimize().checkpoint_version is None
    table.append([{"x": 9}])
    assert table.optimize().checkpoint_version == 5
    assert table.optimize().checkpoint_version is None


@pytest.mark.parametrize("size", [0, -5])
def test_a_target_that_is_no_size_is_refused(lake: Lake, size: int) -> None:
    with pytest.raises(Invalid, match="target_size"):
        table_of(lake).optimize(target_size=size)


def test_a_target_bounds_the_files(lake: Lake) -> None:
    table = table_of(lake)
    for number in range(8):
        table.append([{"x": number}])
    size = max(file.size for file in table.snapshot().files)
    report = table.optimize(target_size=4 * size)
    assert (report.files_added, report.files_after) == (2, 2)
