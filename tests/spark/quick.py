"""Settings of a Spark that runs many small jobs: it would compile each, and cut what it shuffles in 200 parts."""

from __future__ import annotations

SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
