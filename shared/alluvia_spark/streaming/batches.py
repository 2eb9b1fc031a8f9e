"""The micro-batch that is at work, and its query: with their ids, a write of a stream happens once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alluvia.errors import Invalid, Unsupported
from alluvia_spark.tables import is_classic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark gives to the jobs of a stream. The query's id is that of its checkpoint."""


def batch_txn(rows: DataFrame, batch_id: int, part: str = "") -> tuple[str, int]:
    """Return the transaction of a batch in `foreachBatch`, as `alluvia_spark.batch_txn` says it."""
    if not is_classic(rows.sparkSession):
        raise Unsupported(
            "batch_txn: on Spark Connect, a batch does not know its query. Pass txn=('a name of the stream', "
            "batch_id), with another name for each checkpoint"
        )
    query_id = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if not query_id:
        raise Invalid("batch_txn: call it in the function that foreachBatch calls, with the rows and number it gives")
    return f"{query_id}:{part}" if part else query_id, batch_id
