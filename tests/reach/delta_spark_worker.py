"""Spark with delta-spark, in a process of its own: `python -m tests.reach.delta_spark_worker FD CACHE`.

It reads questions from a socket, mostly lists of SQL statements, and answers with the rows of the last, or with Spark's
error. A process can hold one Spark only, and the one of the other tests has no Delta.
"""

from __future__ import annotations

import fcntl
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from alluvia_spark.session import session
from tests.reach import alluvia_on_spark
from tests.reach.truststore import write_truststore

DELTA = "io.delta:delta-spark_4.1_2.13:4.4.0"
_PRESENT = "org.antlr:antlr4-runtime"
"""What delta-spark asks for and pyspark has already."""


def settings(cache: Path, java_options: list[str]) -> dict[str, str]:
    """Return Spark's settings: Delta from Maven Central, kept in `cache`, and one partition for everything."""
    return {
        "spark.jars.packages": DELTA,
        "spark.jars.excludes": _PRESENT,
        "spark.jars.ivy": str(cache),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.defaultJavaOptions": " ".join(map(shlex.quote, java_options)),
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.default.parallelism": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",  # by default, VACUUM runs 10,000 tasks
        # Hadoop's newer calls run `readlink` sixteen times a commit.
        "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.variant.allowReadingShredded": "true",
        "spark.sql.maxPlanStringLength": "100",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }


@contextmanager
def started(cache: Path) -> Iterator[SparkSession]:
    """Give the session. One process at a time may fill the cache."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="alluvia-trust-") as folder, (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        options = write_truststore(Path(folder, "trust"))
        with session("alluvia judge", cores=2, settings=settings(cache, options)) as spark:
            fcntl.flock(lock, fcntl.LOCK_UN)
            yield spark


def answer(spark: SparkSession, kind: str, statements: list[str]) -> bytes | str:
    """Run statements and return, for a `query`, the rows of the last as an Arrow stream; or the message of an error."""
    try:
        if kind == "generate":
            create_generated(spark, *statements)
            return b""
        if kind == "write":
            alluvia_on_spark.write(spark, *statements)
            return b""
        if kind == "load":
            return serialised(load(spark, *statements).toArrow())
        frames = [spark.sql(statement) for statement in statements]
        return serialised(frames[-1].toArrow()) if kind == "query" else b""
    except PySparkException as error:
        return str(error)
    except Py4JJavaError as error:
        return _told(error.java_exception)


def _told(error: Any) -> str:
    """Return what a Java exception says, and what each of its causes does."""
    said = []
    while error is not None:
        said.append(str(error))
        error = error.getCause()
    return "\n".join(said)


def create_generated(spark: SparkSession, path: str, name: str, expression: str) -> None:
    """Create a table of a column `n` and one that is generated from it, or that counts: SQL has no words for it."""
    jvm, session_ = spark._jvm, spark._jsparkSession
    assert jvm is not None
    tables = jvm.io.delta.tables.DeltaTable
    column = tables.columnBuilder(session_, name).dataType("BIGINT")
    made = column.generatedAlwaysAs(expression) if expression else column.generatedAlwaysAsIdentity()
    tables.create(session_).location(path).addColumn("n", "BIGINT").addColumn(made.build()).execute()


def load(spark: SparkSession, path: str, version: str) -> DataFrame:
    """Return a version of a table as the reader of data frames has it: SQL fails where a column's type is `void`."""
    return spark.read.format("delta").option("versionAsOf", version).load(path)


def serialised(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def main(socket: str, cache: str) -> None:
    """Serve one client until it hangs up."""
    client = Connection(int(socket))
    with started(Path(cache)) as spark:
        client.send((0, b""))
        while True:
            try:
                number, kind, statements = client.recv()
            except EOFError:
                return
            client.send((number, answer(spark, kind, statements)))


if __name__ == "__main__":
    main(*sys.argv[1:])
