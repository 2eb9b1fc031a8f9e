"""Merging of tables with partitions: where files are cut, and which partitions are merged."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.skipping.predicate import And, Comparison
from alluvia.delta.skipping.pruning import span_of
from alluvia.errors import Invalid
from tests.judges import judges_agree
from tests.unit.operations.compaction.merges import NOON, days_of, noise, table_of


def wide(lake: Lake, days: int = 400, batches: int = 4, **options: Any) -> Table:
    """A table of batches that hold the same days each: few rows of most of them, and many of the eighth."""
    properties = {"alluvia.target_file_size": "64 KB", **options.pop("properties", {})}
    table = table_of(lake, partition_by=["day(ts)"], sort_by=["x"], properties=properties, **options)
    for batch in range(batches):
        rows = noise(2 * days, batch)
        table.append(
            [{**row, "ts": NOON + timedelta(days=at % days if at < days else 7)} for at, row in enumerate(rows)]
        )
    return table


def reads(table: Table, day: int) -> tuple[int, int]:
    """Files and bytes that a query for a day reads."""
    moment = NOON + timedelta(days=day)
    same_day = And((Comparison(("ts",), ">=", moment), Comparison(("ts",), "<", moment + timedelta(hours=1))))
    found = Scan(table.snapshot(), same_day).files
    return len(found), sum(file.size for file in found)


def test_files_of_many_days_are_cut_between_days_and_no_day_reads_more(lake: Lake) -> None:
    table = wide(lake)
    rows = sorted(table.scan().read_all().to_pylist(), key=repr)
    days = range(0, 400, 3)
    before = {day: reads(table, day) for day in days}
    planned = table.optimize(dry_run=True).plan
    report = table.optimize()
    assert [(group.files, group.bytes) for group in planned][-1][0] > 1
    after = {day: reads(table, day) for day in days}
    assert all(after[day][0] <= before[day][0] and after[day][1] <= before[day][1] for day in days)
    assert sum(size for _, size in after.values()) < sum(size for _, size in before.values()) / 2
    spans = sorted(
        (found for file in table.snapshot().files if (found := span_of(file, table.snapshot().partition_spec))),
        key=lambda each: (each.low, each.high),
    )
    assert all(one.high < two.low or (one.single and one == two) for one, two in pairwise(spans))
    assert report.files_after < report.files_before
    assert table.optimize().files_removed == 0
    assert sorted(table.scan().read_all().to_pylist(), key=repr) == rows
    assert not table.verify(full=True).findings
    judges_agree(table)


def test_what_is_deleted_or_new_is_right_after_files_were_cut(lake: Lake) -> None:
    table = wide(lake, days=150, properties={"delta.enableDeletionVectors": "true"})
    table.delete("x % 3 = 0")
    table.evolve({"late": "string"})
    table.append([{"x": 1, "ts": NOON + timedelta(days=day), "late": "y"} for day in range(120)])
    rows = sorted(table.scan().read_all().to_pylist(), key=repr)
    table.optimize(full=True)
    assert all(file.deletion_vector is None for file in table.snapshot().files)
    assert sorted(table.scan().read_all().to_pylist(), key=repr) == rows
    assert not table.verify(full=True).findings
    for file in table.snapshot().files:
        stored = pq.read_table(pa.BufferReader(lake.store.get(f"t/{file.path}")))
        found = [
            (moment.date(), x) for moment, x in zip(stored["ts"].to_pylist(), stored["x"].to_pylist(), strict=True)
        ]
        assert found == sorted(found)


def test_null_times_have_a_partition_value_of_their_own(lake: Lake) -> None:
    table = table_of(lake, partition_by=["day(ts)"], sort_by=["x"])
    for batch in range(3):
        days = [None if day == 0 else NOON + timedelta(days=day) for day in range(120)]
        table.append([{"x": batch, "ts": day} for day in days])
    assert table.optimize().files_removed > 0
    found = table.to_arrow(where="ts IS NULL")["x"].to_pylist()
    assert sorted(found) == [0, 1, 2]
    assert table.count() == 360
    assert not table.verify(full=True).findings


@pytest.mark.parametrize("field", ["bucket(500, x)", "truncate(c, 2)", "hour(ts)", "truncate(x, 1000)"])
def test_every_transform_is_cut(lake: Lake, field: str) -> None:
    table = table_of(lake, partition_by=[field])
    for batch in range(6):
        table.append([
            {"x": at * 1000, "c": f"{at:04}", "ts": NOON + timedelta(hours=at), } for at in range(batch, 600, 2)
        ])  # fmt: skip
    rows = sorted(table.scan().read_all().to_pylist(), key=repr)
    assert table.optimize().files_removed > 0
    assert table.optimize().files_removed == 0
    assert sorted(table.scan().read_all().to_pylist(), key=repr) == rows
    assert not table.verify(full=True).findings


def test_one_partition_only(lake: Lake) -> None:
    table = days_of(lake)
    may_7 = {"c": "de", "day(ts)": "2024-05-07"}
    [group] = table.optimize(partition=may_7, dry_run=True).plan
    assert (group.partition, group.files, group.into_files) == (may_7, 3, 1)
    assert (table.optimize(partition=may_7).files_removed, table.optimize(partition=may_7).files_removed) == (3, 0)
    assert table.optimize(partition={"day(ts)": "2024-05-06"}).files_removed == 6
    assert table.optimize(partition={"c": None}).files_removed == 0
    assert table.optimize().files_removed == 3
    with pytest.raises(Invalid, match=r"partition: 'day' is not a field .* which is c, day"):
        table.optimize(partition={"day": "2024-05-06"})


def test_a_partition_is_named_in_every_form_of_its_values(lake: Lake) -> None:
    for value in (date(2024, 5, 7), datetime(2024, 5, 7, 23, tzinfo=UTC), "2024-05-07"):
        table = table_of(lake, partition_by=["bucket(4, x)", "day(ts)"])
        for _ in range(2):
            table.append([{"x": 1, "ts": NOON + timedelta(days=1), "c": "de"}])
        [add, _] = table.files
        bucket = json.loads(add.tags["alluvia.partition"])["bucket(4, x)"]
        assert table.optimize(partition={"day( ts )": value, "bucket(x,4)": bucket}).files_removed == 2
        lake.drop_table("t")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("day(ts)", "yesterday", r"day\(ts\) has values such as 2026-01-01, got 'yesterday'"),
        ("day(ts)", "2026-1-1", "got '2026-1-1'"),
        ("day(ts)", 7, "got 7"),
        ("bucket(4, x)", 4, r"bucket\(4, x\) has the values 0 to 3, got 4"),
        ("bucket(4, x)", 1.0, "has whole numbers, got 1.0"),
        ("truncate(x, 10)", 15, "has multiples of 10, got 15"),
        ("truncate(c, 2)", "deu", "has texts of at most 2 characters, got 'deu'"),
    ],
)
def test_a_value_that_no_partition_has_is_refused(lake: Lake, field: str, value: object, message: str) -> None:
    table = table_of(lake, partition_by=[field])
    with pytest.raises(Invalid, match=message):
        table.optimize(partition={field: value})
