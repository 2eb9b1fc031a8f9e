"""Tables that `alluvia_spark` writes, in a Spark that also has Delta."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import alluvia
import alluvia_spark
from alluvia_spark import backfill

EVENTS = [
    b'{"event_id":"a","ts":"2024-02-28T10:00:00Z","status":200}',
    b'{"event_id":"b","ts":"2024-02-29T10:00:00Z","status":404}',
    b'{"event_id":"a","ts":"2024-02-28T10:00:00Z","status":200}',
    b'{"event_id":"c","ts":"2024-02-29T11:00:00Z","status":"no number"}',
]
ROWS = {"changed": 9, "requests": 2}
"""How many rows the tables have in the end."""


def write(spark: SparkSession, lake: str) -> None:
    """Write the tables `changed`, by all ways that there are, and `requests`, by a backfill."""
    alluvia_spark.register(spark)
    changed = f"{lake}/changed"
    given = {"partitionBy": "place", "delta.enableDeletionVectors": "true"}
    _rows(spark, 0, 6).write.format("alluvia").mode("append").options(**given).save(changed)
    second = "place = 'ü 1'"
    new = _rows(spark, 1, 12).where(second)
    new.write.format("alluvia").mode("overwrite").option("replaceWhere", second).save(changed)
    alluvia_spark.upsert(changed, _rows(spark, 10, 13).withColumn("amount", F.lit(-1.0)), ["n", "place"])
    alluvia_spark.update(spark, changed, {"amount": "amount + 1"}, where="n = 4")
    alluvia_spark.delete(spark, changed, "n = 0")
    alluvia.connect(lake).create_events("requests", pa.schema([("status", pa.int64())]))
    raw = Path(lake, "raw.ndjson")
    raw.write_bytes(b"\n".join(EVENTS))
    backfill.run(lake, "requests", str(raw), "job", spark=spark)


def _rows(spark: SparkSession, start: int, end: int) -> DataFrame:
    place = F.concat(F.lit("ü "), (F.col("id") % 3).cast("string"))
    columns = [F.col("id").alias("n"), place.alias("place"), (F.col("id") / 2).alias("amount")]
    return spark.range(start, end).select(*columns)
