from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from alluvia_spark.reading.deleted_rows import FILE, ROW, DeletedRows

ROWS = 200_000
SETS = {
    "the first": {0},
    "the last": {ROWS - 1},
    "at the edges of words and pages": {63, 64, 127, 128, 4095, 4096, 8191, 65_535, 65_536},
    "few": set(random.Random(1).sample(range(ROWS), 500)),
    "every other of the first": set(range(0, 1000, 2)),
    "many": set(random.Random(2).sample(range(ROWS), 50_000)),
}


def _numbers(numbers: set[int]) -> pa.Int64Array:
    return pa.array(sorted(numbers), pa.int64())


@pytest.mark.parametrize("numbers", SETS.values(), ids=SETS)
def test_the_rows_that_are_deleted_are_found_and_no_others(spark: SparkSession, numbers: set[int]) -> None:
    condition = DeletedRows({"one.parquet": _numbers(numbers)}, alone=True).condition()
    assert condition is not None
    found = spark.range(ROWS).withColumnRenamed("id", ROW).where(condition).collect()
    assert {row[ROW] for row in found} == numbers


def test_a_row_is_deleted_in_the_files_that_say_so(spark: SparkSession) -> None:
    by_file = {f"{name}.parquet": numbers for name, numbers in zip("abcdef", SETS.values(), strict=True)}
    condition = DeletedRows({name: _numbers(found) for name, found in by_file.items()}, alone=False).condition()
    assert condition is not None
    names = F.explode(F.array(*map(F.lit, [*by_file, "without.parquet"])))
    rows = spark.range(ROWS).withColumnRenamed("id", ROW).withColumn(FILE, names)
    expected = {(name, number) for name, numbers in by_file.items() for number in numbers}
    assert {(row[FILE], row[ROW]) for row in rows.where(condition).collect()} == expected


@pytest.mark.parametrize("alone", [True, False])
def test_a_row_without_a_number_is_an_error(spark: SparkSession, alone: bool) -> None:
    condition = DeletedRows({"a.parquet": _numbers({7, 90_000})}, alone=alone).condition()
    assert condition is not None
    rows = spark.range(3).select(F.lit(None).cast("bigint").alias(ROW), F.lit("a.parquet").alias(FILE))
    with pytest.raises(Exception, match="does not number the rows"):
        rows.where(~condition).collect()
