"""Streams into tables: every row once, wherever the work stops and begins again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark knows it

import alluvia_spark
from alluvia.api.lake import Lake, Table
from alluvia.errors import Invalid
from tests import judges
from tests.spark.sessions import settings
from tests.spark.streams import STEPS, STREAM_SECONDS_MAX, failing_in, put_rows, rows_of, run


@pytest.fixture
def few_partitions(registered: SparkSession) -> Iterator[SparkSession]:
    """Spark, with few tasks after a shuffle."""
    with settings(registered, {"spark.sql.shuffle.partitions": "1"}):
        yield registered


def numbers(table: Table) -> list[int]:
    return sorted(table.to_arrow()["n"].to_pylist())


def test_each_batch_is_a_commit_and_an_idle_run_is_none(registered: SparkSession, lake: Lake, tmp_path: Path) -> None:
    put_rows(tmp_path / "in", "a", range(3))
    put_rows(tmp_path / "in", "b", range(3, 5))
    rows = rows_of(registered, tmp_path / "in").withColumn("place", F.lit("a"))
    path, checkpoint = f"{lake.uri}/events", tmp_path / "checkpoint"
    query = run(rows, path, checkpoint, partitionBy="place", **{"alluvia.codec": "snappy"})
    table = lake["events"]
    assert (numbers(table), table.version) == ([0, 1, 2, 3, 4], 2)
    assert table.snapshot().partition_columns == ("place",)
    assert {each.version for app, each in table.snapshot().state.txns.items() if app == query.id} == {1}
    put_rows(tmp_path / "in", "c", ())
    run(rows, path, checkpoint)
    assert table.version == 2
    put_rows(tmp_path / "in", "d", [5])
    run(rows, lake.uri, checkpoint, table="events")
    assert (numbers(table), table.version) == ([0, 1, 2, 3, 4, 5], 3)
    judges.judges_agree(table, [3])


def test_rows_are_there_once_wherever_a_batch_fails(registered: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """A task is tried again by Spark; a failed commit stops the query, which begins again with the same batch."""
    put_rows(tmp_path / "in", "a", range(4))
    failed = tmp_path / "failed"
    failed.mkdir()
    registered.dataSource.register(failing_in(failed))
    try:
        rows, checkpoint = rows_of(registered, tmp_path / "in"), tmp_path / "checkpoint"
        for step in ("before commit", "after commit"):
            with pytest.raises(PySparkException, match=f"lost {step}"):
                run(rows, f"{lake.uri}/t", checkpoint)
        put_rows(tmp_path / "in", "b", range(4, 6))
        run(rows, f"{lake.uri}/t", checkpoint)
    finally:
        alluvia_spark.register(registered)
    assert {each.name for each in failed.iterdir()} == set(STEPS)
    assert numbers(lake["t"]) == [0, 1, 2, 3, 4, 5]


def test_a_checkpoint_belongs_to_a_table(registered: SparkSession, lake: Lake, tmp_path: Path) -> None:
    put_rows(tmp_path / "in", "a", range(2))
    rows, path, checkpoint = rows_of(registered, tmp_path / "in"), f"{lake.uri}/t", tmp_path / "checkpoint"
    run(rows, path, checkpoint)
    before = shutil.copytree(checkpoint, tmp_path / "copy")
    run(rows, path, tmp_path / "another")  # which knows of no batch that was written
    assert numbers(lake["t"]) == [0, 0, 1, 1]
    put_rows(tmp_path / "in", "b", [2])
    run(rows, path, checkpoint)
    run(rows, path, Path(before))  # a second run of the same checkpoint, which comes later
    assert numbers(lake["t"]) == [0, 0, 1, 1, 2]
    lake.drop_table("t")
    put_rows(tmp_path / "in", "c", [3])
    with pytest.raises(PySparkException, match=r"no table t, though this is batch 2.*start with a new checkpoint"):
        run(rows, path, checkpoint)
    lake.create_table("t", {"n": "long"})
    run(rows, path, checkpoint)
    assert numbers(lake["t"]) == [3]


def test_complete_mode_replaces_all_rows(few_partitions: SparkSession, lake: Lake, tmp_path: Path) -> None:
    put_rows(tmp_path / "in", "a", [1, 1, 2])
    counts = rows_of(few_partitions, tmp_path / "in").groupBy("n").count()
    run(counts, f"{lake.uri}/counts", tmp_path / "checkpoint", "complete")
    put_rows(tmp_path / "in", "b", [2, 3])
    run(counts, f"{lake.uri}/counts", tmp_path / "checkpoint", "complete")
    assert {row["n"]: row["count"] for row in lake["counts"].to_arrow().to_pylist()} == {1: 2, 2: 2, 3: 1}
    assert lake["counts"].version == 2
    with pytest.raises(PySparkException, match="does not support Update mode"):
        run(counts, f"{lake.uri}/counts", tmp_path / "update", "update")


def test_upserts_of_batches_happen_once(few_partitions: SparkSession, lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("counts", {"n": "long", "count": "long"})
    log = lake.create_table("log", {"n": "long", "count": "long"})

    def upsert(rows: DataFrame, batch: int) -> None:
        txn = alluvia_spark.batch_txn(rows, batch)
        alluvia_spark.upsert(judges.uri_of(table), rows, on=["n"], txn=txn)
        for part in ("first", "second"):
            alluvia_spark.write_table(rows, judges.uri_of(log), txn=alluvia_spark.batch_txn(rows, batch, part))
        if not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise RuntimeError("lost after both")

    put_rows(tmp_path / "in", "a", [1, 1, 2])
    counts = rows_of(few_partitions, tmp_path / "in").groupBy("n").agg(F.count("*").alias("count"))
    for fails in (True, False):
        query = counts.writeStream.outputMode("update").foreachBatch(upsert).trigger(availableNow=True)
        started = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        if fails:
            with pytest.raises(PySparkException, match="lost after both"):
                started.awaitTermination(STREAM_SECONDS_MAX)
        else:
            started.awaitTermination(STREAM_SECONDS_MAX)
    assert {row["n"]: row["count"] for row in table.to_arrow().to_pylist()} == {1: 2, 2: 1}
    assert sorted(log.to_arrow()["n"].to_pylist()) == [1, 1, 2, 2]
    with pytest.raises(Invalid, match="call it in the function that foreachBatch calls"):
        alluvia_spark.batch_txn(few_partitions.range(1), 0)


def test_columns_and_options_of_streams(registered: SparkSession, lake: Lake, tmp_path: Path) -> None:
    put_rows(tmp_path / "in", "a", [1])
    rows, table = rows_of(registered, tmp_path / "in"), lake.create_table("t", {"n": "long"})
    path = judges.uri_of(table)
    more = rows.withColumn("more", F.lit("x"))
    for stream, options, message in (
        (more, {}, r"has no column more: add option\('mergeSchema', 'true'\)"),
        (rows.select(F.col("n").cast("string")), {}, "column n of table t is long, but the DataFrame has string"),
        (rows, {"txnAppId": "a"}, "option txnAppId is for batch writes: a stream numbers its batches by itself"),
        (rows, {"replaceWhere": "n > 1"}, "option replaceWhere is for batch writes: write in foreachBatch"),
    ):
        with pytest.raises(PySparkException, match=message):
            run(stream, path, tmp_path / "refused", **options)
    assert table.version == 0
    run(more, path, tmp_path / "merged", mergeSchema="true", queryName="named")
    assert table.to_arrow().to_pylist() == [{"n": 1, "more": "x"}]
    with pytest.raises(PySparkException, match="option checkpointLocation is for streams"):
        registered.range(1).write.format("alluvia").mode("append").option("checkpointLocation", "x").save(path)
