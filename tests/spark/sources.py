"""Reading and writing by the data source."""

from __future__ import annotations

from pyspark.sql import DataFrame, DataFrameWriter


def writer(rows: DataFrame, mode: str, **options: str) -> DataFrameWriter:
    return rows.write.format("alluvia").mode(mode).options(**options)
