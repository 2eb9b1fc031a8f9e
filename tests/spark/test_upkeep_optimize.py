"""Optimize on Spark: what it makes is what the library makes, whatever is lost or committed meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.errors import Corrupt, Invalid
from alluvia_spark import upkeep
from alluvia_spark.upkeep import optimizing, work
from tests import judges
from tests.spark import faults

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("n", pa.int64()),
        ("text", pa.string()),
    ]
)
KINDS: dict[str, dict[str, Any]] = {
    "sorted": {"partition_by": ["day"], "sort_by": ["n"]},
    "clustered": {"cluster_by": ["n", "id"], "properties": {"alluvia.target_file_size": "20000"}},
    "by transforms, with deletion vectors": {
        "partition_by": ["day(ts)"],
        "sort_by": ["n"],
        "properties": {"delta.enableDeletionVectors": "true", "alluvia.target_file_size": "20000"},
    },
    "folded": {
        "partition_by": ["day"],
        "sort_by": ["id"],
        "properties": {
            "alluvia.merge_query": (
                "SELECT id, day, max(ts) AS ts, sum(n)::BIGINT AS n, max(text) AS text FROM source GROUP BY id, day"
            )
        },
    },
}


def rows(number: int, count: int = 400) -> pa.Table:
    """Rows of two days whose texts do not compress."""
    numbers = [number * count + at for at in range(count)]
    return pa.table(
        {
            "id": [at % 300 for at in numbers],
            "day": ["ab"[at % 2] for at in numbers],
            "ts": [datetime(2026, 1, 1 + at % 2, tzinfo=UTC) for at in numbers],
            "n": [at * 7919 % 10_007 for at in numbers],
            "text": [f"{at * 2654435761 % (1 << 48):012x}" for at in numbers],
        },
        schema=SCHEMA,
    )


def make(lake: Lake, kind: str, files: int = 6) -> Table:
    table = lake.create_table("t", SCHEMA, **KINDS[kind])
    for number in range(files):
        table.append(rows(number))
    return table


def layout(table: Table) -> list[tuple[object, ...]]:
    """Return what each file is, but for its name and time."""
    return sorted(
        (sorted(file.partition_values.items()), file.stats or "", file.size, sorted(file.tags.items()))
        for file in table.snapshot().files
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sorted"])
def test_spark_makes_the_files_that_the_library_makes(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table, other = (make(alluvia.connect(str(tmp_path / name)), kind) for name in ("spark", "plain"))
    for each in (table, other):
        each.delete("id % 5 = 0")
    before = judges.ours(table)
    done = upkeep.optimize(spark, str(tmp_path / "spark"), "t")
    expected = other.optimize()
    assert done.files_removed == expected.files_removed > 0
    assert (done.files_after, done.rows_folded, done.left) == (expected.files_after, expected.rows_folded, 0)
    assert layout(table) == layout(other)
    assert judges.ours(table) == judges.ours(other)
    assert (judges.ours(table) == before) == (kind != "folded")
    assert judges.duckdb_rows(table) == judges.ours(table)
    assert upkeep.optimize(spark, str(tmp_path / "spark"), "t").files_removed == 0


def test_a_table_is_named_by_its_own_path_too_and_a_dry_run_changes_nothing(spark: SparkSession, lake: Lake) -> None:
    table = make(lake, "sorted")
    planned = upkeep.optimize(spark, judges.uri_of(table), dry_run=True)
    assert ([each.partition["day"] for each in planned.plan], table.version) == (["a", "b"], 6)
    done = upkeep.optimize(spark, judges.uri_of(table), partition={"day": "b"})
    assert (done.files_removed, done.files_after) == (6, 7)
    with pytest.raises(Invalid, match=r"order: expected smallest, oldest or newest, got 'big'"):
        upkeep.optimize(spark, judges.uri_of(table), order="big")


def test_others_commit_meanwhile(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(lake, "sorted")
    plain = work.results
    raced: list[int] = []

    def after_others(*arguments: Any) -> Iterator[Any]:
        if not raced:
            raced.append(table.delete("day = 'a' AND id < 10").rows_deleted or 0)
            table.append(rows(9))
        yield from plain(*arguments)

    monkeypatch.setattr(optimizing, "results", after_others)
    before = table.count()
    done = upkeep.optimize(spark, lake.uri, "t")
    assert done.conflicts == 1
    assert raced[0] > 0
    assert table.count() == before + 400 - raced[0]
    assert done.files_after == len(table.files) <= 4
    assert judges.duckdb_rows(table) == judges.ours(table)


def test_a_lost_executor_repeats_a_group_and_nothing_else(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(lake, "sorted")
    before = judges.ours(table)
    marker = str(tmp_path / "died")
    monkeypatch.setattr(optimizing, "results", faults.dying(work.results, marker))
    done = upkeep.optimize(spark, lake.uri, "t")
    assert Path(marker).exists()
    assert (done.files_after, done.conflicts, len(done.versions)) == (2, 0, 2)
    assert judges.ours(table) == before


def test_a_killed_driver_leaves_the_groups_that_it_has_committed(spark: SparkSession, lake: Lake) -> None:
    table = make(lake, "sorted")
    before = judges.ours(table)
    command = [sys.executable, "-m", "tests.spark.killed_optimize", lake.uri]
    killed = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(table.files) == 7
    done = upkeep.optimize(spark, lake.uri, "t")
    assert (done.files_removed, done.files_after) == (6, 2)
    assert judges.ours(table) == before
    assert [each.kind for each in table.verify(full=True).findings] in ([], ["orphan-files"])


def test_a_damaged_file_is_named(spark: SparkSession, lake: Lake) -> None:
    table = make(lake, "sorted", 2)
    file = next(iter(table.snapshot().files))
    damaged = Path(judges.uri_of(table).removeprefix("file://"), file.path)
    damaged.write_bytes(b"PAR1" + bytes(file.size - 8) + b"PAR1")
    with pytest.raises(Corrupt, match=file.path):
        upkeep.optimize(spark, lake.uri, "t")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"spark.executor.memoryOverhead": "6g", "spark.executor.cores": "4"}, 1610),
        ({"spark.executor.memoryOverhead": "1024", "spark.executor.cores": "2"}, 536),
        ({"spark.executor.memoryOverhead": "6g", "spark.executor.pyspark.memory": "2gib"}, 2147),
        ({}, 402),
    ],
)
def test_a_task_takes_its_share_of_what_an_executor_has_for_python(settings: dict[str, str], expected: int) -> None:
    given: Any = SimpleNamespace(conf={"spark.master": "yarn", **settings})
    assert work.task_memory_mb(given) == expected


def test_as_many_jobs_are_under_way_as_the_largest_cluster_has_cores() -> None:
    def session(**conf: str) -> Any:
        return SimpleNamespace(conf=conf, sparkContext=SimpleNamespace(defaultParallelism=2))

    grown = {"spark.dynamicAllocation.maxExecutors": "15", "spark.executor.cores": "4"}
    assert [work.jobs_at_once(session(**each)) for each in ({}, grown)] == [3, 61]
