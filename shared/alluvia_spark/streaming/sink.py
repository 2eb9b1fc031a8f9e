"""`writeStream.format("alluvia")`: each micro-batch is one commit, made once by the ids of its query and of the batch.

Spark plans a batch in one Python process and commits it in another, each of which makes a sink of its own, and neither
knows the query. Its tasks do. So their messages carry the query's id, and the plan by which the files were written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from alluvia.errors import TableNotFound, Unsupported
from alluvia_spark.frames import spare_later_tasks
from alluvia_spark.options import PARTITIONS, AlluviaOptions
from alluvia_spark.streaming.batches import QUERY_ID
from alluvia_spark.writing.writing import TableWriter, WrittenFiles

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class Planned(NamedTuple):
    """The query that a batch belongs to, and the plan by which its tasks wrote files."""

    query_id: str
    writer: TableWriter


@dataclass
class WrittenBatch(WriterCommitMessage):
    """The files of one task; the first task, which every batch has, also says what it has of the driver's."""

    files: WrittenFiles
    planned: Planned | None


@dataclass(frozen=True)
class TableSink(DataSourceStreamWriter, DataSourceArrowWriter):
    """One micro-batch. It is an Arrow writer besides, because Spark gives such a sink Arrow batches since 4.0."""

    writer: TableWriter

    @classmethod
    def of(cls, options: AlluviaOptions, columns: StructType, *, overwrite: bool) -> TableSink:
        """Plan a batch of rows with some columns, which replace all rows in the output mode `complete`.

        Raises `Invalid`, naming the column or option.
        """
        options.refuse(("txnAppId", "txnVersion"), "for batch writes: a stream numbers its batches by itself")
        options.refuse(("replaceWhere", PARTITIONS), "for batch writes: write in foreachBatch instead")
        return cls(TableWriter.planned(options, columns, overwrite=overwrite, repeated=True))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenBatch:  # type: ignore[override] # as for Spark's own
        spare_later_tasks()
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(QUERY_ID)
        if context is None or not query_id:
            raise Unsupported(
                "this Spark does not tell a task which query it belongs to: write in foreachBatch, with the options "
                "txnAppId and txnVersion"
            )
        written = self.writer.write_rows(iterator)
        return WrittenBatch(written, Planned(query_id, self.writer) if context.partitionId() == 0 else None)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override] # noqa: N803 - as Spark calls it
        """Commit what the tasks wrote, unless the table has this batch of the query, or a later one.

        A batch without rows commits nothing, but for columns that it adds. Raises what `TableWriter.committed` does,
        and `TableNotFound` where the table of earlier batches is gone.
        """
        written = [each for each in messages if isinstance(each, WrittenBatch)]
        [planned] = [each.planned for each in written if each.planned is not None]
        writer, query_id = planned.writer, planned.query_id
        if writer.creates and batchId > 0:
            raise TableNotFound(
                f"stream {query_id}: there is no table {writer.file_write.name}, though this is batch {batchId}. To "
                "write all rows again, start with a new checkpoint; to go on without those of earlier batches, create "
                "the table first"
            )
        files = [each.files for each in written]
        if any(each.adds for each in files) or not writer.appends:
            writer = replace(writer, file_write=replace(writer.file_write, txn=(query_id, batchId)))
        writer.committed(files)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override] # noqa: N803 - as Spark calls it
        """Leave the files to vacuum: a commit whose answer was lost may name them."""
