from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.action_rows import ActionRows, FileRows
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.partitioning.spec import parse_spec
from alluvia.delta.partitioning.transforms import Span
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Corrupt, Invalid
from alluvia.operations.compaction import optimize_write
from alluvia.operations.compaction.optimize_files import Candidate, candidates
from alluvia.operations.compaction.optimize_plan import FULL_SHARE, FileGroup, plan_optimize
from alluvia.store import CountingStore
from tests.judges import judges_agree
from tests.unit.operations.compaction.merges import NOON, add, days_of, noise, table_of

DAILY = parse_spec(["c", "day(ts)"], pa.schema({"c": pa.string(), "ts": pa.timestamp("us", tz="UTC"), "x": pa.int64()}))


def plan(files: list[AddFile], target: int, *, full: bool = False) -> list[FileGroup]:
    found = candidates(
        ActionSet(AddFile.from_json).changed((file.key, file) for file in files),
        DAILY,
        int(target * FULL_SHARE),
        full=full,
    )
    return plan_optimize(found, target, full=full)


def sizes(files: list[AddFile], target: int, *, full: bool = False) -> list[list[int]]:
    return [[each.file.size for each in group.files] for group in plan(files, target, full=full)]


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
    assert [[each.file.path for each in group.files] for group in plan(files, 100)] == [["a", "c"]]


def test_repeated_merging_writes_each_row_a_few_times() -> None:
    written, files = 0, []
    for number in range(512):
        files.append(add(1, str(number)))
        for group in plan(files, 10_000):
            written += group.size
            gone = {each.file.path for each in group.files}
            files = [file for file in files if file.path not in gone] + [add(group.size, f"m{written}")]
    assert written <= 512 * 80
    assert len(files) <= 20


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
    assert not commit.changes_rows
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


@pytest.mark.parametrize("rows", [300, 1500, 2000, 6000])
def test_files_are_within_a_quarter_of_the_target(lake: Lake, rows: int) -> None:
    table = table_of(lake, sort_by=["x"], properties={"alluvia.target_file_size": "64 KB"})
    for number in range(12_000 // rows):
        table.append(noise(rows, number))
    table.optimize()
    sizes = sorted(file.size for file in table.snapshot().files)
    assert len(sizes) > 3
    assert all(0.75 <= size / (64 << 10) <= 1.25 for size in sizes[1:])  # one of them waits for more rows
    assert table.optimize().files_removed == 0


def test_files_that_compress_well_together_still_become_full_files(lake: Lake) -> None:
    table = table_of(lake, sort_by=["c"], properties={"alluvia.target_file_size": "64 KB"})
    kinds = [each["c"] for each in noise(500, 1)]
    for number in range(40):  # each file has all the kinds: merged, they are there once
        table.append([{"x": number, "c": c} for c in kinds])
    table.append(noise(3000, 2))
    report = table.optimize()
    assert report.files_after <= 3
    assert table.optimize().files_removed == 0


def test_a_table_with_nothing_to_do_needs_no_object_of_its_files(
    lake: Lake, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(lake, partition_by=["c", "day(ts)"])
    days = [f"2024-01-{day:02}" for day in range(1, 11)]
    full = [add(200_000_000, f"full{at}", tag=days[at % 10]) for at in range(50)]
    lone = [add(10, f"lone{at}", partition=str(at), tag=days[at % 10]) for at in range(2000)]
    now_ms = lake.clock.now_ms()
    table.commit_files([replace(file, stats='{"numRecords":1}', modification_time=now_ms) for file in (*full, *lone)])
    table.checkpoint()
    for rows in (FileRows, ActionRows):
        monkeypatch.setattr(rows, "actions", lambda *_: pytest.fail("an object was made of a file"))
    reopened = other.table("t")
    assert reopened.optimize().files_before == 2050
    assert table.optimize(dry_run=True).plan == []


def test_rows_sorted_from_a_file_come_out_as_those_from_arrow(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: dict[str, pa.DataType] = {
        "ts": pa.timestamp("us", tz="UTC"), "local": pa.timestamp("us"), "day": pa.date32(), "n": pa.int8(),
        "price": pa.decimal128(38, 10), "f": pa.float32(), "ok": pa.bool_(), "data": pa.binary(), "c": pa.string(),
        "list": pa.list_(pa.struct({"a": pa.int64()})), "map": pa.map_(pa.string(), pa.int32()),
    }  # fmt: skip
    names = ("arrow", "file")
    tables = [lake.create_table(name, pa.schema(kinds), partition_by=["day(ts)"], sort_by=["n"]) for name in names]
    for batch in range(3):
        rows = [
            {
                "ts": NOON + timedelta(days=at), "local": datetime(1960, 1, 1, at % 24), "day": date(1960, 1, 1),
                "n": batch - at, "price": Decimal(f"{at}.0000000001"), "f": float("inf") if at % 3 else at / 4,
                "ok": bool(at % 2), "data": bytes([at, 0]), "c": "é" * at, "list": [{"a": at}, None],
                "map": [("k", at)],
            }
            if at % 10
            else dict.fromkeys(kinds) | {"n": batch}
            for at in range(120)
        ]  # fmt: skip
        for table in tables:
            table.append(pa.Table.from_pylist(rows, schema=pa.schema(kinds)))
    before = sorted(tables[0].to_arrow().to_pylist(), key=repr)
    for table, rows_max in zip(tables, (360, 0), strict=True):
        monkeypatch.setattr(optimize_write, "ARROW_ROWS_MAX", rows_max)
        assert table.optimize(memory_mb=512).files_removed > 0
        assert not table.verify(full=True).findings
    assert tables[1].to_arrow().to_pylist() == tables[0].to_arrow().to_pylist()
    assert sorted(tables[1].to_arrow().to_pylist(), key=repr) == before


def test_limits_and_order(lake: Lake, clock: ManualClock) -> None:
    table = table_of(lake, partition_by=["c"])
    for c in "abc":
        clock.advance(1000)
        for _ in range(4):
            table.append([{"x": 1, "c": c}])
    newest = table.optimize(order="newest", dry_run=True).plan
    assert [group.partition["c"] for group in newest] == ["c", "b", "a"]
    assert [group.partition["c"] for group in table.optimize(order="oldest", dry_run=True).plan] == ["a", "b", "c"]
    report = table.optimize(order="newest", max_files=6)
    assert (report.files_removed, report.files_added, report.files_after) == (6, 2, 8)
    size = next(iter(table.snapshot().files)).size
    assert table.optimize(order="oldest", max_bytes=2 * size).files_removed == 2
    with pytest.raises(Invalid, match="order: expected smallest, oldest or newest"):
        table.optimize(order="biggest")


def test_a_dry_run_writes_nothing(lake: Lake, store: CountingStore) -> None:
    table = days_of(lake)
    table.snapshot()
    before = Counter(store.requests)
    report = table.optimize(dry_run=True)
    assert [(group.files, group.into_files) for group in report.plan] == [(3, 1)] * 4
    assert (report.files_removed, report.version, report.checkpoint_version) == (0, 6, None)
    assert Counter(store.requests) - before == {"get": 1}


def test_a_group_reads_no_more_than_memory_can_hold_however_well_its_rows_pack() -> None:
    """Rows that repeat are expected to take next to nothing, so that a thousand files would become one."""
    files = [Candidate(add(80, f"f{at}"), Span((), ()), weight=1) for at in range(100)]
    groups = plan_optimize(files, 100)
    assert max(group.size for group in groups) == 800
    assert sum(len(group.files) for group in groups) == 100
