"""`format("alluvia")`: tables as a data source of Spark's, read and written by this library in Python workers.

Spark makes the source where it plans, in a Python process of its own, and sends it to the executors. Filters are not
pushed down: Spark 4.1 keeps what the last query with filters was planned to read, and gives it to the next one without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition
from pyspark.sql.types import StructType

from alluvia.delta.data_files.scan import Scan, read_file
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.replay import State
from alluvia.delta.skipping.predicate import Unknown
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.condition import condition
from alluvia_spark.file_groups import grouped
from alluvia_spark.frames import spare_later_tasks
from alluvia_spark.options import FOLLOWING, STREAMING, WRITING, AlluviaOptions
from alluvia_spark.schemas import all_nullable, shown_schema, with_texts
from alluvia_spark.streaming.sink import TableSink
from alluvia_spark.streaming.source import TableStream, with_changes
from alluvia_spark.tables import bare, tagged
from alluvia_spark.wording import finding, read_version, resolving
from alluvia_spark.writing.writing import TableWriter


class AlluviaSource(DataSource):
    """A table. A DataFrame or a view of it reads the version that was the newest when it was made.

    `here` is the folder in which relative paths begin. Spark makes the source in a process that has another.
    """

    here: ClassVar[str | None] = None

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._given = AlluviaOptions.of(options, self.here)
        self._state: State | None = None

    @classmethod
    def name(cls) -> str:
        return "alluvia"

    def schema(self) -> StructType:
        columns = with_texts(all_nullable(shown_schema(self._snapshot())))
        return with_changes(columns) if self._given.flag("readChangeFeed") else columns

    def reader(self, schema: StructType) -> TableReader:
        self._given.refuse((*FOLLOWING, *STREAMING), "for streams")
        return TableReader(self._given, self._snapshot(), schema.names)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        self._given.refuse((*FOLLOWING, *STREAMING), "for streams")
        return TableWriter.planned(self._given, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> TableStream:  # noqa: ARG002, N802 - as Spark calls it
        self._given.refuse(("version", "timestamp", "tag"), "for batch reads: use startingVersion or startingTimestamp")
        self._given.refuse(("where",), "for batch reads: use filter() on the stream")
        return TableStream(self._given, self._snapshot())

    def streamWriter(self, schema: StructType, overwrite: bool) -> TableSink:  # noqa: N802 - as Spark calls it
        return TableSink.of(self._given, schema, overwrite=overwrite)

    def _snapshot(self) -> Snapshot:
        """Return the version that is read: the first time it is found, and from then on the same."""
        self._given.refuse(WRITING, "for writing")
        with finding(self._given.given["path"], self._given.given.get("table")):
            return self._found()

    def _found(self) -> Snapshot:
        handle, version = self._given.handle(), self._given.number("version")
        given = self._given.given
        if (tag := given.get("tag")) is not None:
            snapshot = tagged(handle, tag, given.get("table"), version, given.get("timestamp"))
            self._state = bare(snapshot.state)
            return snapshot
        if self._state is not None:
            version = self._state.version
        timestamp = given.get("timestamp") if self._state is None else None
        snapshot = read_version(handle.snapshot, handle.name, version, timestamp)
        if version is None and timestamp is None and handle.carry_out(snapshot):
            snapshot = handle.newest()
        self._state = bare(snapshot.state)
        return snapshot


def source_at(here: str | None) -> type[AlluviaSource]:
    """Return the source for a user in some folder. Spark sends the class itself, so `here` goes with it."""
    return type(AlluviaSource.__name__, (AlluviaSource,), {"here": here})


class FilesOfTask(InputPartition):
    """Files that one task reads."""

    def __init__(self, files: Sequence[AddFile]) -> None:
        super().__init__(None)
        self.files = [replace(file, stats=None) for file in files]


class TableReader(DataSourceReader):
    """Reads a version of a table, in groups of files."""

    def __init__(self, options: AlluviaOptions, snapshot: Snapshot, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._state = bare(snapshot.state)
        where = options.given.get("where")
        with resolving("option where", where, snapshot.schema):
            predicate = Unknown() if where is None else condition(where, snapshot.schema).predicate
        self._files = [FilesOfTask(group) for group in grouped(Scan(snapshot, predicate).files)]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_files": []}

    def partitions(self) -> list[FilesOfTask]:
        return self._files

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        spare_later_tasks()
        files = partition.files if isinstance(partition, FilesOfTask) else ()
        handle = self._options.handle()
        snapshot = Snapshot(self._state, handle.root, handle.name, handle.store)
        batches = (batch for file in files for batch in read_file(snapshot, handle.store, file, snapshot.schema))
        where = self._options.given.get("where")
        parsed = None if where is None else condition(where, snapshot.schema)
        return ((batch if parsed is None else parsed.filter(batch)).select(self._columns) for batch in batches)
