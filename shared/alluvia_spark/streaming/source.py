"""`readStream.format("alluvia")`: a stream of the rows that are added to a table, or of all its changes.

The driver plans batches from the log; tasks read files by this library. Offsets are versions, or places in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from alluvia.clock import datetime_of
from alluvia.commit.handle import TableHandle
from alluvia.delta.arguments import milliseconds
from alluvia.delta.data_files.scan import read_file
from alluvia.delta.lineage import first_version, version_gaps
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Corrupt, Invalid, ObjectNotFound, VersionExpired, VersionNotFound
from alluvia.operations.changes.changes import FEED, feed_commits, labelled_changes
from alluvia.operations.reading.change_files import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, INSERT
from alluvia_spark.file_groups import grouped
from alluvia_spark.frames import spare_later_tasks
from alluvia_spark.streaming.backlog import Backlog, ChangeRules
from alluvia_spark.streaming.offsets import BatchLimits, Offset, Unit
from alluvia_spark.tables import bare
from alluvia_spark.wording import read_version

if TYPE_CHECKING:
    from alluvia_spark.options import AlluviaOptions

_later: Any = None
with suppress(ModuleNotFoundError):  # Spark 4.2 and later
    _later = import_module("pyspark.sql.streaming.datasource")


def with_changes(columns: StructType) -> StructType:
    """Return columns with those that say which change a row is."""
    kinds = {CHANGE_TYPE: StringType(), COMMIT_VERSION: LongType(), COMMIT_TIMESTAMP: TimestampType()}
    return StructType([*columns, *(StructField(name, kind) for name, kind in kinds.items())])


class PartOfBatch(InputPartition):
    """The files and commits that one task reads. `read_ms` is the time of the version that the stream began with."""

    def __init__(self, units: Sequence[Unit], read_ms: int | None) -> None:
        super().__init__(None)
        self.units = [unit.without_statistics() for unit in units]
        self.read_ms = read_ms


class TableStream(DataSourceStreamReader):
    """A stream from a table, with the columns of the version `begun`, of which it keeps no files."""

    def __init__(self, options: AlluviaOptions, begun: Snapshot) -> None:
        skips, ignores = options.flag("skipChangeCommits"), options.flag("ignoreDeletes")
        self._rules = ChangeRules(options.flag("readChangeFeed"), ignores, skips)
        if self._rules.feed and (skips or ignores):
            raise Invalid("options readChangeFeed, skipChangeCommits, ignoreDeletes: a change feed has all changes")
        files, size = options.number("maxFilesPerTrigger"), options.size("maxBytesPerTrigger")
        for name, limit in (("maxFilesPerTrigger", files), ("maxBytesPerTrigger", size)):
            if limit == 0:
                raise Invalid(f"option {name}: 0 would read nothing; use 1 or more")
        self._limits = BatchLimits(files, size)
        self._options = options
        self._state = bare(begun.state)
        self._seen: Offset | None = None
        self._until: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_handle", "_backlog")}

    @cached_property
    def _handle(self) -> TableHandle:
        return self._options.handle()

    @property
    def _begun(self) -> Snapshot:
        return Snapshot(self._state, self._handle.root, self._handle.name, self._handle.store)

    @cached_property
    def _backlog(self) -> Backlog:
        return Backlog(self._handle, self._begun, self._rules)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        """Return where a stream with a new checkpoint begins: by default with all rows of the table."""
        self._seen = self._initial
        return self._initial.to_json()

    @cached_property
    def _initial(self) -> Offset:
        """Where the stream begins. Kept: before 4.2, Spark asks where the first batch ends, then where it starts."""
        newest, table_id = self._backlog.newest(), self._state.metadata.id
        first = _starting_version(self._options, self._handle, newest)
        return Offset(table_id, newest, 0, initial=True) if first is None else Offset(table_id, first - 1)

    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: object = None) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        """Return where the next batch ends.

        Spark says where it starts since 4.2. Before, it follows from the batches that were read: after a restart, Spark
        first asks for `partitions` at the last offset of the checkpoint (`AcceptsLatestSeenOffset`).
        """
        newest = self._backlog.newest() if self._until is None else self._until
        begin = (self._seen or self._initial) if start is None else Offset.of(start)
        unlimited = _later is not None and isinstance(limit, _later.ReadAllAvailable)
        return self._backlog.end(
            self._backlog.checked(begin), newest, BatchLimits() if unlimited else self._limits
        ).to_json()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - as Spark calls it
        """Return a limit by which Spark 4.2 tells batches with limits from those without; ours are in the options."""
        limited = self._limits != BatchLimits()
        return _later.ReadMaxFiles(self._limits.files or 1) if limited else _later.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - as Spark calls it
        """Note the newest version, with which a run until nothing is left ends."""
        self._until = self._backlog.newest()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[PartOfBatch]:
        """Return what the tasks of a batch read. After a restart, Spark asks for the last batch's end, or all of it."""
        first, last = self._backlog.checked(Offset.of(start)), Offset.of(end)
        self._seen = last
        units = self._backlog.between(first, last)
        read_ms = self._handle.snapshot(first.version).timestamp_ms if first.initial and self._rules.feed else None
        return [PartOfBatch(group, read_ms) for group in grouped(units)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        spare_later_tasks()
        units = partition.units if isinstance(partition, PartOfBatch) else ()
        read_ms = partition.read_ms if isinstance(partition, PartOfBatch) else None
        begun, handle = self._begun, self._handle
        for unit in units:
            if unit.file is None:
                version = unit.end.version
                yield from labelled_changes(handle, begun, feed_commits(handle, version, version, begun))
                continue
            try:
                for batch in read_file(begun, handle.store, unit.file, begun.schema):
                    yield batch if read_ms is None else _inserted(batch, unit.end.version, read_ms)
            except Corrupt as error:
                if not isinstance(error.__cause__, ObjectNotFound):
                    raise
                raise VersionExpired(
                    f"the stream has come to version {unit.end.version} of table {begun.name}, whose file "
                    f"{unit.file.path} vacuum or an erasure has deleted: start with a new checkpoint, without "
                    "startingVersion, to read all rows that the table has"
                ) from error


if _later is not None:
    _later.SupportsTriggerAvailableNow.register(TableStream)


def _inserted(batch: pa.RecordBatch, version: int, read_ms: int) -> pa.RecordBatch:
    """Return rows that a table had when a stream began, as changes."""
    label = {CHANGE_TYPE: INSERT, COMMIT_VERSION: version, COMMIT_TIMESTAMP: datetime_of(read_ms)}
    more = [pa.repeat(pa.scalar(label[field.name], field.type), len(batch)) for field in FEED]
    schema = pa.schema([*batch.schema, *FEED])
    return pa.RecordBatch.from_arrays([*batch.columns, *more], schema=schema)


def _starting_version(options: AlluviaOptions, handle: TableHandle, newest: int) -> int | None:
    """Return the first version whose commit a stream reads; None where it begins with all rows."""
    version, timestamp = options.given.get("startingVersion"), options.given.get("startingTimestamp")
    if version is not None and timestamp is not None:
        raise Invalid("options startingVersion, startingTimestamp: give one of them")
    if version is not None and version.strip().lower() == "latest":
        return newest + 1
    if version is not None:
        number = options.number("startingVersion")
        if number is None or number > newest + 1:
            raise Invalid(
                f"option startingVersion: table {handle.name} has no version {version}: the newest is {newest}"
            )
        return number
    if timestamp is None:
        return None
    try:
        before = read_version(handle.snapshot, handle.name, None, timestamp)
    except VersionNotFound:  # the table is younger
        return first_version(version_gaps(handle.at_hand().properties))
    return before.version if before.timestamp_ms == milliseconds(timestamp) else before.version + 1
