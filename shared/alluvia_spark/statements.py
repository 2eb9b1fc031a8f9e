"""Advice for SQL statements that Spark refuses on tables of this format."""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REFUSAL = re.compile(r"does not support deletes: alluvia|Table `alluvia` does not support (UPDATE|MERGE)")
_CALLS = {
    None: "alluvia_spark.delete(spark, 'path/of/table', \"condition\")",
    "UPDATE": "alluvia_spark.update(spark, 'path/of/table', {'column': 'expression'}, where=\"condition\")",
    "MERGE": "alluvia_spark.upsert('path/of/table', rows, on=['key'])",
}


def advice(message: str) -> str | None:
    """Return what to call instead of a statement that Spark has refused for a table of ours; None for other errors."""
    found = _REFUSAL.search(message)
    if found is None:
        return None
    return (
        f"[UNSUPPORTED_FEATURE.TABLE_OPERATION] Spark's SQL has no {found[1] or 'DELETE'} for tables of "
        f"format alluvia: call {_CALLS[found[1]]}, which commits with this library's rules"
    )


def advise(spark: SparkSession) -> None:
    """Have a session's `sql` say what to call where it refuses UPDATE, DELETE and MERGE on a table of ours.

    Spark refuses them before it asks the source, and takes nothing of its message from there.
    """
    session: Any = spark
    if "sql" in vars(session):
        return
    plain = session.sql

    @wraps(plain)
    def sql(*arguments: Any, **named: Any) -> Any:
        try:
            return plain(*arguments, **named)
        except PySparkException as error:
            if (instead := advice(str(error))) is None:
                raise
            raise AnalysisException(message=instead) from error

    session.sql = sql
