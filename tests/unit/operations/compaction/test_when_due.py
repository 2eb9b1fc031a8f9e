"""Merges after every few commits: when they are due, and their cost in files and bytes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from alluvia.api.lake import Lake
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.partitioning.spec import PartitionSpec
from alluvia.errors import Invalid
from alluvia.operations.compaction.optimize_files import candidates
from alluvia.operations.compaction.optimize_plan import DUE_GROWTH, FULL_SHARE, FileGroup, due, plan_optimize
from alluvia.store import CountingStore
from tests.unit.operations.compaction.merges import NOON, table_of

TARGET = 1 << 27
COMMITS = 3000


def plan(files: list[AddFile], growth: float = DUE_GROWTH) -> list[FileGroup]:
    held = ActionSet(AddFile.from_json).changed((file.key, file) for file in files)
    return plan_optimize(candidates(held, PartitionSpec(), int(TARGET * FULL_SHARE)), TARGET, growth)


def add(size: int, name: str, partition: str = "p") -> AddFile:
    return AddFile(name, {"c": partition}, size, 1, data_change=True)


@pytest.mark.parametrize("size", [900, 1_000_000])
def test_under_many_commits_files_stay_few_and_rows_are_rewritten_a_few_times(size: int) -> None:
    files: list[AddFile] = []
    most = written = 0
    for number in range(COMMITS):
        files.append(add(size, f"a{number}"))
        most = max(most, len([file for file in files if file.size < TARGET * FULL_SHARE]))
        for group in due(plan(files)) if number % 10 == 9 else ():
            gone = {each.file.path for each in group.files}
            files = [file for file in files if file.path not in gone] + [add(group.size, f"m{number}{written}")]
            written += group.size
    assert most <= 30
    assert written <= COMMITS * size * 7


def test_a_merge_is_due_once_it_saves_16_files(lake: Lake, store: CountingStore) -> None:
    table = table_of(lake)
    for number in range(16):
        table.append([{"x": number}])
    store.reset()
    assert table.optimize(when_due=True).files_after == 16
    assert not any(key.endswith(".parquet") and "_delta_log" not in key for _, key in store.keys)
    table.append([{"x": 16}])
    assert table.optimize(when_due=True).files_after == 1
    assert table.count() == 17


def test_a_file_is_rewritten_only_after_it_has_grown_by_half() -> None:
    small = [add(1, f"a{at}") for at in range(40)]
    assert [len(group.files) for group in due(plan([*small, add(81, "b")]))] == [40]
    assert [len(group.files) for group in due(plan([*small, add(80, "b")]))] == [41]
    assert [len(group.files) for group in plan([*small, add(81, "b")], 8)] == [41]


def test_a_few_files_of_each_partition_wait_in_any_number_of_partitions() -> None:
    few = [add(1, f"{partition}{at}", partition) for partition in "abcdefgh" for at in range(8)]
    assert due(plan(few)) == []
    more = [add(1, f"a{at}", "a") for at in range(8, 12)]
    assert [{each.file.partition_values["c"] for each in group.files} for group in due(plan([*few, *more]))] == [{"a"}]


def test_a_file_with_many_deleted_rows_is_due_at_once(lake: Lake) -> None:
    table = table_of(lake, properties={"delta.enableDeletionVectors": "true"})
    table.append([{"x": number} for number in range(100)])
    table.delete("x < 4")
    assert table.optimize(when_due=True).files_removed == 0
    table.delete("x < 10")
    assert table.optimize(when_due=True).files_removed == 1
    assert table.count() == 90


def test_appends_of_many_days_make_one_file_each_until_a_merge_is_due(lake: Lake) -> None:
    table = table_of(lake, partition_by=["day(ts)"])
    for number in range(60):
        table.append([{"x": number, "ts": NOON + timedelta(days=day)} for day in range(67)])
        if number % 10 == 9:
            assert table.optimize(when_due=True).files_before <= 25
    assert table.count() == 60 * 67


def test_files_of_many_days_are_joined_even_if_two_of_one_day_are_not_due(lake: Lake) -> None:
    table = table_of(lake, partition_by=["day(ts)"])
    for number in range(40):
        table.append([{"x": number, "ts": NOON + timedelta(days=number // 2 * 2)}])
        table.append([{"x": number, "ts": NOON + timedelta(days=100 + number)}])
    assert table.optimize(when_due=True).files_after <= 16
    assert table.count() == 80


@pytest.mark.parametrize("options", [{"full": True}, {"backfill": True}])
def test_when_due_cannot_be_combined_with_full_or_backfill(lake: Lake, options: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"when_due: .* leave out full and backfill"):
        table_of(lake).optimize(when_due=True, **options)
