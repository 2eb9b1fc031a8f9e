"""After a merge at most a quarter of the files are small: those of neighbouring partition values are joined."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.delta.log.actions import AddFile
from tests.judges import judges_agree
from tests.rejects import create_rejects

MIDNIGHT = datetime(2024, 5, 6, tzinfo=UTC)
SCHEMA = pa.schema([("x", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("c", pa.string())])
TARGET = 64 << 10


def table_of(lake: Lake, *fields: str, **options: Any) -> Table:
    properties = {"alluvia.target_file_size": "64 KB", **options.pop("properties", {})}
    return lake.create_table("t", SCHEMA, partition_by=fields, properties=properties, **options)


def rows_of(days: int, count: int, seed: int) -> list[dict[str, Any]]:
    """Rows of random times, about 45 bytes each in a file."""
    chance = random.Random(seed)
    return [
        {
            "x": chance.getrandbits(62),
            "ts": MIDNIGHT + timedelta(days=at % days, microseconds=chance.randrange(86_400_000_000)),
            "c": f"{chance.getrandbits(96):024x}",
        }
        for at in range(count)
    ]


def small_and_all(table: Table) -> tuple[int, int]:
    sizes = [file.size for file in table.snapshot().files]
    return sum(size < 0.6 * TARGET for size in sizes), len(sizes)


def everything(table: Table) -> list[dict[str, Any]]:
    return sorted(table.scan().read_all().to_pylist(), key=repr)


@pytest.mark.parametrize(
    ("days", "count", "appends", "field"),
    [
        (93, 18_000, 1, "day(ts)"),
        (93, 6000, 3, "day(ts)"),
        (20, 600, 8, "day(ts)"),
        (400, 8000, 4, "day(ts)"),
        (15, 10_000, 2, "bucket(40, c)"),
        (30, 4000, 3, "truncate(c, 1)"),
    ],
)
def test_at_most_a_quarter_of_the_files_are_small(lake: Lake, days: int, count: int, appends: int, field: str) -> None:
    table = table_of(lake, field, sort_by=["x"])
    for seed in range(appends):
        table.append(rows_of(days, count, seed))
    rows = everything(table)
    table.optimize()
    small, files = small_and_all(table)
    assert files < 8 or small <= files / 4, sorted(file.size for file in table.snapshot().files)
    again = table.optimize()
    assert (again.files_removed, table.optimize(dry_run=True).plan) == (0, [])
    assert everything(table) == rows
    assert not table.verify(full=True).findings


def test_an_append_fills_its_files(lake: Lake) -> None:
    table = table_of(lake, "day(ts)")
    table.append(rows_of(93, 18_000, 1))  # of which a day has a ninth of the target
    small, files = small_and_all(table)
    written = sum(file.size for file in table.snapshot().files)
    assert small <= 1
    assert files <= written / TARGET + 2


def test_rows_of_joined_days_are_sorted_by_day(lake: Lake) -> None:
    table = table_of(lake, "day(ts)", sort_by=["x"])
    for number in range(3):
        table.append(rows_of(20, 300, number))
    table.optimize()
    [file] = table.snapshot().files
    assert json.loads(file.tags["alluvia.partition"]) == {"day(ts)": ["2024-05-06", "2024-05-25"]}
    stored = pq.read_table(pa.BufferReader(lake.store.get(f"t/{file.path}")))
    found = [(moment.date(), x) for moment, x in zip(stored["ts"].to_pylist(), stored["x"].to_pylist(), strict=True)]
    assert found == sorted(found)
    judges_agree(table)


def test_files_of_different_partition_columns_are_never_joined(lake: Lake) -> None:
    table = table_of(lake, "c", "day(ts)")
    for number in range(2):
        for day in range(9):  # more days in one append would be one file
            there = ("de", None, *(["fr"] if day < 3 else []))
            table.append([{"x": number, "ts": MIDNIGHT + timedelta(days=day), "c": c} for c in there])
    table.optimize()
    held = {file.partition_values["c"]: file.num_records for file in table.snapshot().files if file.num_records != 2}
    assert held == {"de": 18, None: 18}
    assert sum(file.partition_values["c"] == "fr" for file in table.snapshot().files) == 3  # fewer than eight
    assert table.optimize().files_removed == 0


def test_one_partition_is_merged_without_its_neighbours(lake: Lake) -> None:
    table = table_of(lake, "day(ts)")
    for number in range(40):
        table.append([{"x": number // 20, "ts": MIDNIGHT + timedelta(days=number % 20)}])
    report = table.optimize(partition={"day(ts)": "2024-05-07"})
    assert (report.files_removed, report.files_after) == (2, 39)
    assert table.optimize(partition={"day(ts)": "2024-05-07"}).files_removed == 0


@pytest.mark.parametrize("name", ["t", "t/_rejects"])
def test_days_stay_apart_where_rows_expire(lake: Lake, clock: ManualClock, name: str) -> None:
    clock.advance((MIDNIGHT + timedelta(days=20)).timestamp() - clock.now_ms() / 1000)
    table_of(lake, "day(ts)", properties={"alluvia.ttl": "10 days"})
    table = lake["t"] if name == "t" else create_rejects(lake, "t", SCHEMA, ["day(ts)"])
    for number in range(2):
        table.append([{"x": number, "ts": MIDNIGHT + timedelta(days=day)} for day in range(20)])
    table.optimize()
    assert len(table.snapshot().files) == 20
    assert len(table.expire().files) == 10


def test_days_of_a_clustered_table_are_joined(lake: Lake) -> None:
    table = table_of(lake, "day(ts)", cluster_by=["x", "c"])
    for number in range(3):
        table.append(rows_of(20, 600, number))
    rows = everything(table)
    table.optimize()
    small, files = small_and_all(table)
    assert (small, files) == (0, 1)
    assert everything(table) == rows
    assert table.optimize().files_removed == 0
    assert not table.verify(full=True).findings


def test_rows_of_joined_days_are_folded_and_merging_ends(lake: Lake) -> None:
    query = "SELECT sum(x)::BIGINT AS x, max(ts) AS ts, c FROM source GROUP BY c"
    table = table_of(lake, "day(ts)", properties={"alluvia.merge_query": query})
    for _ in range(2):
        table.append([{"x": 1, "ts": MIDNIGHT + timedelta(days=day), "c": f"{day % 4}"} for day in range(16)])
    table.optimize()
    held = table.scan().read_all().sort_by("c")
    assert held["x"].to_pylist() == [8, 8, 8, 8]
    [file] = table.snapshot().files
    assert json.loads(file.tags["alluvia.partition"]) == {"day(ts)": ["2024-05-18", "2024-05-21"]}
    assert table.optimize().files_removed == 0
    assert not table.verify(full=True).findings


def test_more_files_than_are_looked_at_one_by_one_are_joined_too(lake: Lake) -> None:
    table = table_of(lake, "day(ts)")
    days = [f"{datetime(2020, 1, 1) + timedelta(days=day):%Y-%m-%d}" for day in range(1100)]
    table.commit_files([
        AddFile(f"lone{day}", {}, 500, lake.clock.now_ms(), data_change=True, stats='{"numRecords":1}',
                tags={"alluvia.partition": json.dumps({"day(ts)": day})})
        for day in days
    ])  # fmt: skip
    plan = table.optimize(dry_run=True).plan
    assert sum(group.files for group in plan) == 1100
    assert {group.into_files for group in plan} == {1}
    sizes = sorted(group.into_bytes for group in plan)
    assert sizes[0] + sizes[1] > 1.25 * TARGET, "two of them could be one"
    assert 0.6 * TARGET <= sizes[1] <= sizes[-1] <= 1.25 * TARGET
