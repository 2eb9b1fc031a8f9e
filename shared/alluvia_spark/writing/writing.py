"""Writing DataFrames: each task writes its rows as data files, the driver commits all of them at once.

Commit messages come from the tasks that won; what others wrote is named by no commit, and vacuum deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from alluvia.commit.transaction import Commit
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.paths import LOG_FOLDER
from alluvia.delta.log.replay import State
from alluvia.delta.partitioning.values import partition_value
from alluvia.delta.properties import WRITERS
from alluvia.delta.protocols import new_protocol
from alluvia.delta.schema.caller_rows import conformed
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.literals import literal, quote_name
from alluvia.errors import Invalid, TableNotFound
from alluvia.operations.append.append import fits
from alluvia.operations.append.write_files import FileWrite, commit_written, file_writer, plan_write
from alluvia.operations.catalog.catalog import NewTable
from alluvia.operations.catalog.schemas import check_may_be_created
from alluvia.operations.planning.optimistic_retry import applied
from alluvia.operations.tables.create import create, plan_create
from alluvia.table_names import check_name
from alluvia_spark.frames import spare_later_tasks
from alluvia_spark.options import CREATING, PARTITIONS, READING, AlluviaOptions
from alluvia_spark.schemas import fitted, unknown_fields, written_schema
from alluvia_spark.tables import bare
from alluvia_spark.wording import check_columns, extra_columns, resolving, unresolved

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from alluvia.commit.handle import TableHandle

CHUNK_BYTES = 128 << 20
"""About the bytes of rows that a task sorts and writes at once."""
SESSIONS_OVERWRITES = "spark.sql.sources.partitionOverwriteMode"


@dataclass
class WrittenFiles(WriterCommitMessage):
    """The files of one task."""

    adds: Sequence[AddFile]


@dataclass(frozen=True)
class TableWriter(DataSourceArrowWriter):
    """One write of a DataFrame. `base` is the table's version when it was planned, without files.

    `creates` says that there was no table then. `done` says that the transaction is in the table already.
    `names` are the columns of the rows in their order, as the table spells them. `partitions` are those of a table of
    which the rows' own are replaced; None: other rows are, or none. `replaces_partitions` says that all rows of a
    partitioned table are replaced, as no option says which.
    """

    options: AlluviaOptions
    file_write: FileWrite
    base: State
    names: list[str]
    creates: bool
    done: bool
    partitions: pa.Schema | None = None
    replaces_partitions: bool = False
    appends: bool = True

    @classmethod
    def planned(
        cls, options: AlluviaOptions, columns: StructType, *, overwrite: bool, repeated: bool = False
    ) -> TableWriter:
        """Plan a write of rows with some columns. Raises `Invalid`, naming the column or option, before any task.

        A write that is `repeated` may have created the table before, so options for a new table are allowed.
        """
        options.refuse(READING, "for reading")
        replaces = options.given.get("replaceWhere", "true") if overwrite else None
        if not overwrite:
            options.refuse(("replaceWhere", PARTITIONS), "for mode('overwrite')")
        dynamic = options.choice(PARTITIONS, ("static", "dynamic")) == "dynamic"
        if dynamic:
            options.refuse(("replaceWhere",), f"not for {PARTITIONS} dynamic, where the new rows choose the partitions")
        handle, rows, txn = options.handle(), written_schema(columns), options.txn()
        try:
            snapshot = handle.newest()
        except TableNotFound:
            _check_new(handle)
            base = _created(handle, options, rows)
            snapshot = Snapshot(base, handle.root, handle.name)
            write = plan_write(handle, snapshot, pa.schema([]), None, txn)
            return cls(options, write, base, rows.names, creates=True, done=False, appends=not overwrite)
        if not repeated:
            options.refuse(CREATING, "for a table that does not exist yet")
        rows = fitted(rows, snapshot.schema)
        new, merges = unknown_fields(rows, snapshot.schema), options.flag("mergeSchema")
        if new and not merges:
            raise extra_columns(snapshot.name, new)
        done = txn is not None and applied(snapshot, txn) is not None
        partitions = _partitions(snapshot) if dynamic else None
        with resolving("option replaceWhere", replaces, snapshot.schema):
            write = plan_write(handle, snapshot, pa.schema([field for _, field in new]), replaces, txn)
        check_columns(snapshot.name, rows, write.snapshot(snapshot).schema)
        if partitions is not None:
            write = replace(write, replaces=None)  # which the rows say: any may come
        state = snapshot.state
        return cls(
            options,
            write,
            bare(state),
            rows.names,
            creates=False,
            done=done,
            partitions=partitions,
            replaces_partitions=overwrite
            and not options.given.keys() & {"replaceWhere", PARTITIONS}
            and bool(snapshot.partition_spec.fields),
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:  # type: ignore[override] # as for Spark's own
        spare_later_tasks()
        if self.replaces_partitions and not self.done:
            _check_overwrites_all()
        return self.write_rows(iterator)

    def write_rows(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write the rows of a task as data files."""
        if self.done:
            return WrittenFiles(())
        batches = (batch.rename_columns(self.names) for batch in iterator)
        first = next(batches, None)
        if first is None:
            return WrittenFiles(())
        handle = self.options.handle()
        base = Snapshot(self.base, handle.root, handle.name)
        writer = file_writer(handle, self.file_write, base)
        rows = pa.RecordBatchReader.from_batches(first.schema, chain([first], batches))
        target = self.file_write.snapshot(base)
        columns = [name for name in target.partition_spec.identity_columns if name in rows.schema.names]
        chunks = conformed(_with_nulls(rows, columns), target.schema, CHUNK_BYTES)
        return WrittenFiles([add for chunk in chunks for add in writer.write(chunk)])

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what the tasks wrote. Raises `Conflict`, and `Invalid` where the files no longer fit the table."""
        self.committed(messages)

    def committed(self, messages: Sequence[WriterCommitMessage | None], *, alone: bool = False) -> Commit:
        """Commit the tasks' files, and return the outcome.

        Where another has created the table meanwhile, rows that fit it are appended; `alone` raises `TableExists`.
        """
        if self.done:
            newest = self.options.handle().newest()
            return Commit(newest.version, newest.timestamp_ms, 0, 0)
        handle, write = self.options.handle(), self.file_write
        adds = [add for each in messages if isinstance(each, WrittenFiles) for add in each.adds]
        if self.creates:
            created = create(handle, self.base.metadata, exist_ok=not alone)
            there = handle.newest().state.metadata
            if created or (self.appends and fits(write.metadata, there)):
                write = replace(write, metadata=there)
        if self.partitions is not None and adds:
            snapshot = Snapshot(self.base, handle.root, handle.name)
            write = replace(write, replaces=same_partitions(snapshot, self.partitions, adds))
        return commit_written(handle, write, adds)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave the files to vacuum: a commit whose answer was lost may name them."""


def _with_nulls(rows: pa.RecordBatchReader, columns: Sequence[str]) -> pa.RecordBatchReader:
    """Return rows with null for the empty text in some columns, as Delta on Spark writes it: the log has no other."""
    texts = [name for name in columns if pa.types.is_string(rows.schema.field(name).type)]
    if not texts:
        return rows

    def changed() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
            for name in texts:
                arrays[name] = pc.if_else(pc.equal(arrays[name], ""), pa.scalar(None, pa.string()), arrays[name])
            yield pa.RecordBatch.from_arrays(list(arrays.values()), schema=batch.schema)

    return pa.RecordBatchReader.from_batches(rows.schema, changed())


def _check_new(handle: TableHandle) -> None:
    """Raise `Invalid` for a place where no lake would list a new table, and `TableNotFound` for a missing schema.

    A list request, and those of `check_may_be_created`. Tasks write files before the table is there, and a folder of
    files is a table of the schema to those that look later.
    """
    check_name(handle.name)
    check_may_be_created(handle.store, handle.name)
    if next(iter(handle.store.list(LOG_FOLDER)), None) is not None:
        raise Invalid(f"path: {handle.store.uri} is a table, and a table cannot contain another: choose another folder")


def _partitions(snapshot: Snapshot) -> pa.Schema:
    """Return the columns by whose values an overwrite replaces partitions. Raises `Invalid` where others count."""
    spec = snapshot.partition_spec
    if not spec.fields or any(field.transform is not None for field in spec.fields):
        by = ", ".join(map(str, spec.fields)) or "nothing"
        raise Invalid(
            f"{'' if spec.fields else '[NOT_A_PARTITIONED_TABLE] '}option {PARTITIONS}: table {snapshot.name} is "
            f"partitioned by {by}, and 'dynamic' needs partitions by plain columns: choose the rows to replace with "
            "option('replaceWhere', …)"
        )
    return pa.schema([snapshot.schema.field(name) for name in spec.identity_columns])


def same_partitions(snapshot: Snapshot, columns: pa.Schema, adds: Sequence[AddFile]) -> str:
    """Return the condition for the rows of the partitions that some files are in, in this library's SQL."""
    conditions: dict[str, None] = {}
    for add in adds:
        values = [partition_value(add, snapshot.physical_name(field.name), field.type) for field in columns]
        terms = (_equals(field.name, value) for field, value in zip(columns, values, strict=True))
        conditions[" AND ".join(terms)] = None
    return " OR ".join(f"({each})" for each in conditions)


def _equals(name: str, value: object) -> str:
    return f"{quote_name(name)} IS NULL" if value is None else f"{quote_name(name)} = {literal(value)}"


def _created(handle: TableHandle, options: AlluviaOptions, rows: pa.Schema) -> State:
    """Return the table that the write creates, before it is."""
    partitions, sorts, clusters = (_layout(options, name, rows) for name in CREATING)
    new = NewTable(rows, partitions, sorts, options.properties, clusters)
    metadata = plan_create(new, handle.clock.new_id(), handle.clock.now_ms())
    writers = metadata.configuration.get(WRITERS, "alluvia")
    return State(0, new_protocol(writers, metadata.schema_string, metadata.configuration), metadata)


def _layout(options: AlluviaOptions, option: str, rows: pa.Schema) -> list[str]:
    """Return the columns, or transforms of them, by which an option lays a new table out."""
    names = options.names(option)
    for name in names:
        if "(" not in name and name not in rows.names:
            raise unresolved(f"option {option}", name, rows.names)
    return names


def _check_overwrites_all() -> None:
    """Raise `Invalid` where the session asks that an overwrite replace only partitions that it has rows of.

    Only a task can see the session's settings, which are its local properties. A write has one, even without rows.
    """
    context = TaskContext.get()
    if context is not None and (context.getLocalProperty(SESSIONS_OVERWRITES) or "").lower() == "dynamic":
        raise Invalid(
            f"the session has {SESSIONS_OVERWRITES} set to dynamic, but an overwrite without options replaces the "
            f"whole table: set the option {PARTITIONS} to dynamic or static, or choose the rows with replaceWhere"
        )
