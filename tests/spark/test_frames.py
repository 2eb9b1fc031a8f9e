from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from alluvia_spark.frames import TASK, Row, fit_session, mapped, parallelism, task_key, tasks, to_tasks

pytestmark = pytest.mark.slow

COUNT = 37


def _each(rows: Iterator[Row]) -> Iterator[Row]:
    for (number,) in rows:
        for task in range(COUNT):
            yield task_key(task), task, b"x" * number


def test_a_row_goes_to_the_task_that_it_names(spark: SparkSession) -> None:
    with fit_session(spark) as own:
        assert parallelism(own) == 2
        rows = to_tasks(mapped(tasks(own, 5), _each, {TASK: "int", "task": "int", "payload": "binary"}), COUNT)
        found = rows.select("task", spark_partition_id().alias("there"), "payload").collect()
    assert all(row.task == row.there for row in found)
    assert sorted((row.task, len(row.payload)) for row in found) == [
        (task, size) for task in range(COUNT) for size in range(5)
    ]


def test_afterwards_the_session_is_the_active_one_again(spark: SparkSession) -> None:
    with fit_session(spark) as own:
        own.createDataFrame([(1,)], "n int")
    active = SparkSession.getActiveSession()
    assert active is not None
    assert active._jsparkSession.equals(spark._jsparkSession)
