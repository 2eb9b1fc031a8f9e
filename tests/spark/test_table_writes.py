"""Writing DataFrames from whatever thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import alluvia
import alluvia_spark
from alluvia.api.lake import Lake, Table
from alluvia.errors import AlluviaError, Invalid, TableExists
from alluvia.operations.tables.create import create
from tests import judges
from tests.spark.sessions import settings

CREATE = "alluvia_spark.writing.writing.create"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return alluvia.connect(str(tmp_path))


def _rows(spark: SparkSession, start: int, end: int, place: str = "a") -> DataFrame:
    return spark.range(start, end, 1, 2).select(F.col("id").alias("n"), F.lit(place).alias("place"))


def _numbers(table: Table) -> list[int]:
    return sorted(table.to_arrow()["n"].to_pylist())


def test_threads_write(spark: SparkSession, lake: Lake) -> None:
    def write(number: int) -> int | None:
        rows = _rows(spark, 10 * number, 10 * number + 10, f"p{number}")
        done = alluvia_spark.write_table(rows, lake, "t", partition_by=["place"])
        assert done is not None
        return done.rows

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(write, range(3))) == [10, 10, 10]
    assert _numbers(lake["t"]) == list(range(30))
    assert lake["t"].snapshot().partition_columns == ("place",)


def test_each_mode_writes_as_in_spark(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    made = alluvia_spark.write_table(_rows(spark, 0, 4), place, mode="error", partition_by=["place"], txn=("a", 1))
    assert made is not None
    assert (made.version, made.rows) == (1, 4)
    table = lake["t"]
    for mode in ("error", "errorIfExists"):
        with pytest.raises(TableExists, match=r"^\[PATH_ALREADY_EXISTS\] there is a table at .*/t: use mode"):
            alluvia_spark.write_table(_rows(spark, 4, 8), place, mode=mode)
    assert alluvia_spark.write_table(_rows(spark, 4, 8), place, mode="ignore") is None
    again = alluvia_spark.write_table(_rows(spark, 0, 4), place, txn=("a", 1))
    assert again is not None
    assert (again.version, again.rows, _numbers(table)) == (1, 0, [0, 1, 2, 3])
    alluvia_spark.write_table(_rows(spark, 10, 12, "b"), place)
    alluvia_spark.write_table(_rows(spark, 20, 22, "b"), place, mode="overwrite", partition_overwrite="dynamic")
    assert _numbers(table) == [0, 1, 2, 3, 20, 21]
    with settings(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        alluvia_spark.write_table(_rows(spark, 30, 31, "c"), place, mode="overwrite")
        assert _numbers(table) == [0, 1, 2, 3, 20, 21, 30]
    alluvia_spark.write_table(_rows(spark, 5, 6), place, mode="overwrite", replace_where="place = 'a'")
    assert _numbers(table) == [5, 20, 21, 30]
    alluvia_spark.write_table(_rows(spark, 7, 8), place, mode="overwrite")
    assert _numbers(table) == [7]
    with pytest.raises(Invalid, match=r"^\[INVALID_SAVE_MODE\] mode 'update' is not valid; use 'append', 'overwrite'"):
        alluvia_spark.write_table(_rows(spark, 7, 8), place, mode="update")
    judges.judges_agree(table, [table.version])


def test_of_two_writes_that_create_a_table_one_fails_where_it_must_be_new(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = _rows(spark, 0, 2)

    def second(*args: Any, **given: Any) -> bool:
        monkeypatch.setattr(CREATE, create)
        alluvia_spark.write_table(_rows(spark, 5, 6), lake, "t")
        return create(*args, **given)

    for mode, message in (("error", "TABLE_OR_VIEW_ALREADY_EXISTS"), ("overwrite", "changed in the meantime")):
        monkeypatch.setattr(CREATE, second)
        with pytest.raises(AlluviaError, match=message):
            alluvia_spark.write_table(rows, lake, "t", mode=mode)
        assert _numbers(lake["t"]) == [5]
        lake.drop_table("t")
    monkeypatch.setattr(CREATE, second)
    assert alluvia_spark.write_table(rows, lake, "t", mode="ignore") is None
    assert _numbers(lake["t"]) == [5]


def test_what_a_task_finds_wrong_is_the_error_of_the_library(spark: SparkSession, lake: Lake) -> None:
    lake.create_table("t", {"n": "long", "place": "string"}, properties={"delta.constraints.small": "n < 5"})
    with pytest.raises(Invalid, match="small"):
        alluvia_spark.write_table(_rows(spark, 0, 9), lake, "t")
    with pytest.raises(
        Invalid, match=r"EXTRA_COLUMNS\] table t has no column more: add option\('mergeSchema', 'true'\)"
    ):
        alluvia_spark.write_table(_rows(spark, 0, 1).withColumn("more", F.lit(1)), lake, "t")
    alluvia_spark.write_table(_rows(spark, 0, 1).withColumn("more", F.lit(1)), lake, "t", merge_schema=True)
    assert lake["t"].version == 1


def test_moments_are_written_as_what_they_are_in_any_zone(spark: SparkSession, lake: Lake) -> None:
    moment = "timestamp'2026-01-01 00:00:00Z'"
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        rows = spark.sql(f"SELECT {moment} t, array({moment}) l, named_struct('a', {moment}) s, map('k', {moment}) m")
        alluvia_spark.write_table(rows, lake, "t")
    wanted = datetime(2026, 1, 1, tzinfo=UTC)
    assert lake["t"].to_arrow().to_pylist() == [{"t": wanted, "l": [wanted], "s": {"a": wanted}, "m": [("k", wanted)]}]


def test_the_modules_of_the_guide_are_there_without_an_import() -> None:
    assert callable(alluvia_spark.session.session)
    assert callable(alluvia_spark.backfill.run)
    assert callable(alluvia_spark.checking.verify)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(alluvia_spark, "nothing")  # noqa: B009 - as a name that is typed wrongly


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_structs_get_the_fields_that_only_the_rows_have(spark: SparkSession, lake: Lake, mapping: str) -> None:
    first = "1L id, named_struct('a', 1) s, array(named_struct('b', 2)) l, map('k', named_struct('c', 3)) m"
    more = (
        "2L id, named_struct('a', 4, 'x', named_struct('y', 5)) s, array(named_struct('b', 6, 'z', 'z')) l, "
        "map('k', named_struct('c', 7, 'w', 8.5D)) m, 'n' new"
    )
    alluvia_spark.write_table(spark.sql(f"SELECT {first}"), lake, "t")
    table = lake["t"]
    for old_name, new_name in (("id", "other"), ("other", "id")) if mapping == "name" else ():
        table.evolve(rename={old_name: new_name})
    with pytest.raises(
        Invalid,
        match=r"EXTRA_COLUMNS\] table t has no column new: add option\('mergeSchema', 'true'\), or drop\('new'\)",
    ):
        alluvia_spark.write_table(spark.sql(f"SELECT {more}"), lake, "t")
    alluvia_spark.write_table(spark.sql(f"SELECT {more}"), lake, "t", merge_schema=True)
    alluvia_spark.write_table(spark.sql(f"SELECT {first.replace('1L', '3L')}"), lake, "t")
    old = {"s": {"a": 1, "x": None}, "l": [{"b": 2, "z": None}], "m": [("k", {"c": 3, "w": None})], "new": None}
    new = {
        "s": {"a": 4, "x": {"y": 5}},
        "l": [{"b": 6, "z": "z"}],
        "m": [("k", {"c": 7, "w": 8.5})],
        "new": "n",
    }
    wanted = [{"id": 1, **old}, {"id": 2, **new}, {"id": 3, **old}]
    assert table.to_arrow().sort_by("id").to_pylist() == wanted
    assert lake.sql("SELECT id, s.x.y AS y, l[1].z AS z FROM t ORDER BY id").to_pylist() == [
        {"id": 1, "y": None, "z": None},
        {"id": 2, "y": 5, "z": "z"},
        {"id": 3, "y": None, "z": None},
    ]
    assert judges.duckdb_rows(table) == judges.ours(table)
    if mapping == "none":  # which deltalake reads
        judges.judges_agree(table, [table.version])
    table.optimize()
    assert table.to_arrow().sort_by("id").to_pylist() == wanted
