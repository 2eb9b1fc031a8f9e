"""Files that Spark writes, as uploads read them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from alluvia.files.parquet_rows import ParquetRows


def test_long_texts_of_which_a_part_is_in_a_dictionary(spark: SparkSession, tmp_path: Path) -> None:
    long = "concat(CAST(if(id < 3000, id % 3, id) AS STRING), repeat('x', 100000)) AS t"
    rows = spark.range(0, 4000, 1, 1).selectExpr("id", long)
    rows.write.option("parquet.writer.version", "PARQUET_2_0").parquet(str(tmp_path / "out"))
    [path] = (tmp_path / "out").glob("*.parquet")
    encodings = pq.read_metadata(path).row_group(0).column(1).encodings
    assert {"RLE_DICTIONARY", "DELTA_BYTE_ARRAY"} <= set(encodings)
    read = [text for batch in ParquetRows(lambda: path.open("rb")).batches() for text in batch["t"].to_pylist()]
    assert read == [f"{at % 3 if at < 3000 else at}" + "x" * 100_000 for at in range(4000)]
