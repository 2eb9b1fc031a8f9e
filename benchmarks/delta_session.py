"""A Spark session with both delta-spark and this library."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from alluvia_spark.session import session
from tests.reach.delta_spark import cache_folder
from tests.reach.delta_spark_worker import settings
from tests.reach.truststore import write_truststore


@contextmanager
def session_with_delta() -> Iterator[SparkSession]:
    """Start Spark with Delta, and defaults for everything else."""
    with tempfile.TemporaryDirectory(prefix="alluvia-trust-") as folder:
        trust = write_truststore(Path(folder, "trust"))
        kept = ("spark.jars.", "spark.sql.extensions", "spark.sql.catalog.", "spark.delta.logStore.", "spark.driver.")
        delta = {name: text for name, text in settings(cache_folder(), trust).items() if name.startswith(kept)}
        with session(cores=2, driver_memory_mb=2048, settings=delta) as spark:
            yield spark
