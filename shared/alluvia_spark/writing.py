"""Writing DataFrames: each task writes its rows as data files, the driver commits all of them at once.

Commit messages come from the tasks that won; what others wrote is named by no commit, and vacuum deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from alluvia.errors import Invalid, TableNotFound
from alluvia.log.actions import AddFile
from alluvia.log.replay import State
from alluvia.operations.append import applied
from alluvia.operations.create import create, plan_create
from alluvia.operations.write_files import FileWrite, commit_written, file_writer, plan_write
from alluvia.table.properties import WRITERS
from alluvia.table.protocols import new_protocol
from alluvia.table.schema.rows import conform, conformed
from alluvia.table.snapshot import Snapshot
from alluvia_spark.options import READING, AlluviaOptions
from alluvia_spark.schemas import fitted, written_schema
from alluvia_spark.workers import spare_later_tasks

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from alluvia.table.handle import TableHandle

CHUNK_BYTES = 128 << 20
"""A task sorts and writes rows of about so many bytes at once."""
_CREATING = ("partitionBy", "sortBy", "clusterBy")
_OVERWRITES = "spark.sql.sources.partitionOverwriteMode"


@dataclass
class WrittenFiles(WriterCommitMessage):
    """The files of one task."""

    adds: Sequence[AddFile]


class TableWriter(DataSourceArrowWriter):
    """One write of a DataFrame. `base` is the table's version when it was planned, without files.

    `creates` says that there was no table then. `done` says that the transaction is in the table already.
    `names` are the columns of the rows in their order, as the table spells them. `replaces_partitions` says that all
    rows of a partitioned table are replaced, as no option says which.
    """

    def __init__(
        self,
        options: AlluviaOptions,
        write: FileWrite,
        base: State,
        names: list[str],
        *,
        creates: bool,
        done: bool,
        replaces_partitions: bool = False,
    ) -> None:
        self._options = options
        self._write = write
        self._base = base
        self._names = names
        self._creates = creates
        self._done = done
        self._replaces_partitions = replaces_partitions

    @classmethod
    def planned(cls, options: AlluviaOptions, columns: StructType, *, overwrite: bool) -> TableWriter:
        """Plan a write of rows with some columns. Raises `Invalid`, naming the column or option, before any task."""
        options.refuse(READING, "for reading")
        replaces = options.given.get("replaceWhere", "true") if overwrite else None
        if not overwrite:
            options.refuse(("replaceWhere",), "for mode('overwrite')")
        handle, rows, txn = options.handle(), written_schema(columns), options.txn()
        try:
            snapshot = handle.newest()
        except TableNotFound:
            base = _created(handle, options, rows)
            snapshot = Snapshot(base, handle.root, handle.name)
            write = plan_write(handle, snapshot, pa.schema([]), None, txn)
            return cls(options, write, base, rows.names, creates=True, done=False)
        options.refuse(_CREATING, "for a table that does not exist yet")
        rows = fitted(rows, snapshot.schema)
        new = [field for field in rows if field.name not in snapshot.schema.names]
        if new and not options.flag("mergeSchema"):
            raise Invalid(f"column {new[0].name} is not in the table: leave it out, or set the option mergeSchema")
        done = txn is not None and applied(snapshot, txn) is not None
        write = plan_write(handle, snapshot, pa.schema(new), replaces, txn)
        _check_columns(rows, write.snapshot(snapshot).schema)
        state = snapshot.state
        return cls(
            options,
            write,
            State(state.version, state.protocol, state.metadata),
            rows.names,
            creates=False,
            done=done,
            replaces_partitions=overwrite
            and "replaceWhere" not in options.given
            and bool(snapshot.partition_spec.fields),
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:  # type: ignore[override] # as for Spark's own
        spare_later_tasks()
        if self._done:
            return WrittenFiles(())
        if self._replaces_partitions:
            _check_overwrites_all()
        batches = (batch.rename_columns(self._names) for batch in iterator)
        first = next(batches, None)
        if first is None:
            return WrittenFiles(())
        handle = self._options.handle()
        base = Snapshot(self._base, handle.root, handle.name)
        writer = file_writer(handle, self._write, base)
        rows = pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
        schema = self._write.snapshot(base).schema
        return WrittenFiles([add for chunk in conformed(rows, schema, CHUNK_BYTES) for add in writer.write(chunk)])

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what the tasks wrote. Raises `Conflict`, and `Invalid` where the files no longer fit the table."""
        if self._done:
            return
        handle, write = self._options.handle(), self._write
        adds = [add for each in messages if isinstance(each, WrittenFiles) for add in each.adds]
        if self._creates and create(handle, self._base.metadata, exist_ok=True):
            write = replace(write, metadata=handle.newest().state.metadata)
        commit_written(handle, write, adds)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave the files to vacuum: a commit whose answer was lost may name them."""


def _created(handle: TableHandle, options: AlluviaOptions, rows: pa.Schema) -> State:
    """Return the table that the write creates, before it is."""
    metadata = plan_create(
        rows,
        options.names("partitionBy"),
        options.names("sortBy"),
        options.properties,
        handle.clock.new_id(),
        handle.clock.now_ms(),
        options.names("clusterBy"),
    )
    writers = metadata.configuration.get(WRITERS, "alluvia")
    return State(0, new_protocol(writers, metadata.schema_string, metadata.configuration), metadata)


def _check_overwrites_all() -> None:
    """Raise `Invalid` where the session asks that an overwrite replace only partitions that it has rows of.

    Only a task can see the session's settings, which are its local properties. A write has one, even without rows.
    """
    context = TaskContext.get()
    if context is not None and (context.getLocalProperty(_OVERWRITES) or "").lower() == "dynamic":
        raise Invalid(
            f"the session has {_OVERWRITES} set to dynamic, but an overwrite without replaceWhere replaces the whole "
            "table: say with the option replaceWhere which rows to replace ('true' for all), or unset the setting"
        )


def _check_columns(rows: pa.Schema, schema: pa.Schema) -> None:
    """Raise `Invalid`, naming it, for a column that the table does not take, or needs."""
    conform(rows.empty_table(), schema)
    missing = [field.name for field in schema if not field.nullable and field.name not in rows.names]
    if missing:
        raise Invalid(f"column {missing[0]} must not be null: add it to the DataFrame")
