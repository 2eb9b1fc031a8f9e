"""What a Spark user does wrong on the first day is said in Spark's words, with the fix in Spark's API."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import alluvia
import alluvia_spark
from alluvia.api.lake import Lake
from alluvia.errors import AlluviaError, Invalid
from alluvia_spark.options import AlluviaOptions

ROWS = "SELECT 1L AS n, 'a' AS place, named_struct('a', 1L) AS s"
Fault = Callable[[SparkSession, str], object]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = alluvia.connect(str(tmp_path))
    struct = pa.struct([pa.field("a", pa.int64())])
    columns = [pa.field("n", pa.int64(), nullable=False), pa.field("place", pa.string()), pa.field("s", struct)]
    lake.create_table("t", pa.schema(columns)).append([{"n": 1, "place": "a"}])
    return lake


def save(rows: str = ROWS, mode: str = "append", table: str = "t", **options: str) -> Fault:
    def run(spark: SparkSession, place: str) -> None:
        spark.sql(rows).write.format("alluvia").mode(mode).options(**options).save(f"{place}/{table}")

    return run


def load(folder: str = "/t", **options: str) -> Fault:
    return lambda spark, place: spark.read.format("alluvia").options(**options).load(f"{place}{folder}").collect()


def statement(text: str) -> Fault:
    def run(spark: SparkSession, place: str) -> None:
        spark.sql(f"CREATE OR REPLACE TEMP VIEW v USING alluvia OPTIONS (path '{place}/t')")
        spark.sql(text)

    return run


MERGE_SCHEMA = "add option('mergeSchema', 'true')"
NO_DATA = "[INCOMPATIBLE_DATA_FOR_TABLE."
UNRESOLVED = "[UNRESOLVED_COLUMN.WITH_SUGGESTION]"
REFUSED = "[UNSUPPORTED_FEATURE.TABLE_OPERATION] Spark's SQL has no"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (save(mode="error"), '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] The data source "alluvia" cannot be written in the'),
        (save(mode="upsert"), '[INVALID_SAVE_MODE] The specified save mode "upsert" is invalid'),
        (
            save(f"{ROWS}, 2 AS x, 3 AS y"),
            f"EXTRA_COLUMNS] table t has no column x, y: {MERGE_SCHEMA}, or drop('x', 'y')",
        ),
        (
            save("SELECT 1L AS n, named_struct('a', 1L, 'b', 2) AS s"),
            f"{NO_DATA}EXTRA_STRUCT_FIELDS] table t has no field s.b: {MERGE_SCHEMA}",
        ),
        (
            save("SELECT 'a' AS place"),
            f"{NO_DATA}CANNOT_FIND_DATA] column n of table t must not be null, and the DataFrame lacks it",
        ),
        (
            save("SELECT '1' AS n"),
            f"{NO_DATA}CANNOT_SAFELY_CAST] column n of table t is long, but the DataFrame has string: use withColumn",
        ),
        (
            save("SELECT 1L AS n, named_struct('a', 'x') AS s"),
            "but the DataFrame has struct<a:string>: use withColumn('s', col('s').cast('struct<a:long>'))",
        ),
        (save(mergeSchema="yes"), "option mergeSchema: 'yes' is not valid; use 'true' or 'false'"),
        (save(mode="overwrite", overwriteSchema="true"), "with option('mergeSchema', 'true'), save to another path"),
        (save(partitionOverwriteMode="dynamic"), "option partitionOverwriteMode is for mode('overwrite')"),
        (
            save(mode="overwrite", partitionOverwriteMode="dynamic"),
            "[NOT_A_PARTITIONED_TABLE] option partitionOverwriteMode: table t is partitioned by nothing",
        ),
        (
            save(mode="overwrite", replaceWhere="plaze = 'a'"),
            f"{UNRESOLVED} option replaceWhere: there is no column plaze; did you mean place?",
        ),
        (
            save(table="new", partitionBy="plaze"),
            f"{UNRESOLVED} option partitionBy: there is no column plaze; did you mean place?",
        ),
        (load("/nope"), "[PATH_NOT_FOUND] PLACE/nope: there is no table 'nope'. Check the path; for a table of a lake"),
        (load("", table="nope"), "[TABLE_OR_VIEW_NOT_FOUND] PLACE: there is no table 'nope'. Check option('table', "),
        (load(versionAsOff="1"), "option versionasoff is unknown: did you mean versionAsOf or version?"),
        (load(where="plaze = 'a'"), f"{UNRESOLVED} option where: there is no column plaze; did you mean place?"),
        (load(where="zzz(n) > 1"), "zzz"),
        (
            load(versionAsOf="1", timestampAsOf="2026-01-01"),
            "[INVALID_TIME_TRAVEL_SPEC] options version (versionAsOf), timestamp (timestampAsOf): give one of them",
        ),
        (load(versionAsOf="99"), "option version (versionAsOf): table t: version 99 does not exist; the newest is 1"),
        (load(timestampAsOf="2001-01-01"), "option timestamp (timestampAsOf): table t: the table did not exist yet"),
        (
            load(timestampAsOf="soon"),
            "[INVALID_TIME_TRAVEL_TIMESTAMP_EXPR.OPTION] option timestamp (timestampAsOf): 'soon'",
        ),
        (
            statement("DELETE FROM v WHERE n = 1"),
            f"{REFUSED} DELETE for tables of format alluvia: call alluvia_spark.delete(",
        ),
        (statement("UPDATE v SET n = 2"), f"{REFUSED} UPDATE for tables of format alluvia: call alluvia_spark.update("),
        (
            statement("MERGE INTO v USING v AS s ON v.n = s.n WHEN MATCHED THEN DELETE"),
            f"{REFUSED} MERGE for tables of format alluvia: call alluvia_spark.upsert(",
        ),
    ],
)
def test_spark_says_what_is_wrong(
    registered: SparkSession, lake: Lake, tmp_path: Path, fault: Fault, message: str
) -> None:
    with pytest.raises(PySparkException, match=re.escape(message.replace("PLACE", str(tmp_path)))):
        fault(registered, str(tmp_path))
    assert lake.tables() == ["t"]
    assert lake["t"].version == 1


def changed(**values: str) -> Fault:
    return lambda spark, place: alluvia_spark.update(spark, f"{place}/t", values)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            lambda spark, place: alluvia_spark.write_table(spark.sql(ROWS), place, "t", mode="errorifexists"),
            "[TABLE_OR_VIEW_ALREADY_EXISTS] PLACE has a table 't': use mode('append'), mode('overwrite')",
        ),
        (
            lambda spark, place: alluvia_spark.write_table(spark.sql(ROWS), f"{place}/t", mode="error"),
            "[PATH_ALREADY_EXISTS] there is a table at PLACE/t: use mode('append'), mode('overwrite')",
        ),
        (
            lambda spark, place: alluvia_spark.read_table(spark, f"{place}/nope"),
            "[PATH_NOT_FOUND] PLACE/nope: there is no table 'nope'",
        ),
        (
            lambda spark, place: alluvia_spark.read_table(spark, place, "t", version=0, timestamp="2026-01-01"),
            "[INVALID_TIME_TRAVEL_SPEC]",
        ),
        (
            lambda spark, place: alluvia_spark.read_table(spark, place, "t", where="length(plaze) > 1"),
            f"{UNRESOLVED} where: there is no column plaze; did you mean place?",
        ),
        (changed(plaze="'b'"), f"{UNRESOLVED} values: there is no column plaze; did you mean place?"),
        (
            lambda spark, place: alluvia_spark.delete(spark, f"{place}/t", "plaze = 'a'"),
            f"{UNRESOLVED} where: there is no column plaze",
        ),
        (
            lambda spark, place: alluvia_spark.delete(spark, place, "n = 1", table="nope"),
            "[TABLE_OR_VIEW_NOT_FOUND] PLACE: there is no table 'nope'",
        ),
        (
            lambda spark, place: alluvia_spark.upsert(f"{place}/t", spark.sql(ROWS), ["key"]),
            "[UNRESOLVED_COLUMN.WITHOUT_SUGGESTION] on: there is no column key; the columns are n, place, s",
        ),
    ],
)
def test_functions_say_what_is_wrong(
    spark: SparkSession, lake: Lake, tmp_path: Path, fault: Fault, message: str
) -> None:
    with pytest.raises(AlluviaError, match="^" + re.escape(message.replace("PLACE", str(tmp_path)))):
        fault(spark, str(tmp_path))
    assert lake["t"].version == 1


def test_an_unknown_option_names_the_nearest() -> None:
    for name, wanted in (
        ("mergeshema", "did you mean mergeSchema"),
        ("delta.appendonli", "did you mean delta.appendOnly"),
        ("header", "the known ones are access_key_id, branch"),
    ):
        with pytest.raises(Invalid, match=f"option {name} is unknown.*{wanted}"):
            AlluviaOptions.of({"path": "/x", name: "1"})
