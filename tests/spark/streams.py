"""Streams for tests: sources of files, sinks that fail at a step, and queries that run until nothing is left."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql import DataFrame, SparkSession

from alluvia_spark.data_source import AlluviaSource
from alluvia_spark.streaming.sink import TableSink, WrittenBatch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

STEPS = ("before files", "after files", "before commit", "after commit")
"""Where a sink fails: in a task before and after it writes, and around the commit."""
STREAM_SECONDS_MAX = 300


def put_rows(folder: Path, name: str, numbers: Iterable[int]) -> None:
    """Put a file of rows `n` where a stream of `rows_of` finds it, whole at once."""
    folder.mkdir(exist_ok=True)
    waiting = folder.parent / f".{name}"
    waiting.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
    waiting.rename(folder / f"{name}.json")


def rows_of(spark: SparkSession, folder: Path, **options: str) -> DataFrame:
    """Return a stream of the files of a folder, one file a batch."""
    return spark.readStream.schema("n long").options(maxFilesPerTrigger="1", **options).json(str(folder))


def run(stream: DataFrame, path: str, checkpoint: Path, mode: str = "append", **options: str) -> StreamingQuery:
    """Run a stream into a table until nothing is left, and return the query. Raises what stopped it."""
    query = (
        stream.writeStream.format("alluvia")
        .outputMode(mode)
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(path)
    )
    assert query.awaitTermination(STREAM_SECONDS_MAX)
    return query


class FailingSink(TableSink):
    """Fails at each step, the first time that any process comes there; `marks` is a folder that all of them see."""

    marks: ClassVar[str]

    def fail(self, step: str) -> None:
        """Fail, if no process has been there."""
        mark = Path(self.marks, step)
        if not mark.exists():
            mark.touch()
            raise RuntimeError(f"lost {step}")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenBatch:  # type: ignore[override] # as for Spark's own
        self.fail("before files")
        written = super().write(iterator)
        self.fail("after files")
        return written

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override] # noqa: N803
        self.fail("before commit")
        super().commit(messages, batchId)
        self.fail("after commit")


def failing_in(folder: Path) -> type[AlluviaSource]:
    """Return a source whose sink fails once at each step, and says so in a folder."""
    where = str(folder)

    class Sink(FailingSink):
        marks = where

    class Failing(AlluviaSource):
        def streamWriter(self, schema: StructType, overwrite: bool) -> TableSink:  # noqa: N802
            return Sink.of(self._given, schema, overwrite=overwrite)

    return Failing
