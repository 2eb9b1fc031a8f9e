"""What a stream gives: the changes of its table that it has not given yet, in parts of a size if need be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.clock import datetime_of
from alluvia.commit.changes import EXPIRE, RESTORE, UNDROP
from alluvia.commit.handle import TableHandle
from alluvia.delta.arguments import check_number
from alluvia.delta.lineage import version_gaps
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import VersionExpired
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog, WritableCatalog
from alluvia.operations.changes.changes import feed_commits, feed_schema, labelled_changes
from alluvia.operations.changes.feed_commits import files_of, operations_of, restored_version
from alluvia.operations.reading.change_files import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, INSERT
from alluvia.operations.reading.scan import scan
from alluvia.operations.streams.streams import StreamState, check_same, oldest_changes, source_of, the_stream

_NEVER_APPENDS = frozenset({"UPDATE", "DELETE", RESTORE, UNDROP, EXPIRE, "ERASE", "OPTIMIZE"})
"""Operations whose new rows, if there are any, are older rows in another form."""


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """Changes that a stream has not given: those of the versions after `after`, up to `to`; none if they are the same.

    `batches` reads them, and may be called again. `bytes` is the size of the files that this reads.
    """

    stream: StreamState
    to: int
    schema: pa.Schema
    bytes: int
    batches: Callable[[], Iterator[pa.RecordBatch]]

    @property
    def after(self) -> int:
        """Return the version up to which the stream was read."""
        return self.stream.position

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as they come."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())


def columns_of(catalog: Catalog, stream: StreamState) -> pa.Schema:
    """Return the columns of a stream's batches. Raises `TableNotFound`."""
    return feed_schema(catalog.handle(stream.source).newest())


def next_batch(
    catalog: WritableCatalog, name: str, max_versions: int | None = None, max_rows: int | None = None
) -> StreamBatch:
    """Return what a stream has not given yet, up to the newest version. Raises what `planned` does."""
    stream = the_stream(catalog, name)
    handle = source_of(catalog, stream)
    return planned(stream, handle, handle.newest(), max_versions, max_rows)


def planned(
    stream: StreamState,
    source: TableHandle,
    newest: Snapshot,
    max_versions: int | None = None,
    max_rows: int | None = None,
) -> StreamBatch:
    """Return what a stream has not given of the versions of its source up to one, with the columns of that one.

    At most `max_versions`, and as many as add about `max_rows` rows by the log, but at least one.
    Raises `VersionExpired` where retention has taken what it needs, `Invalid` where the table is another one now.
    """
    check_number("max_versions", max_versions)
    check_number("max_rows", max_rows)
    check_same(stream, newest)
    schema = feed_schema(newest)
    if stream.initial_rows:
        begin = source.snapshot(newest.version)  # without transactions whose rows a later version has
        size = sum(file.size for file in begin.files)
        return StreamBatch(stream, begin.version, schema, size, partial(_all_rows, source, begin, schema))
    to = newest.version
    if to <= stream.position:
        return StreamBatch(stream, stream.position, schema, 0, lambda: iter(()))
    if max_versions is not None:
        to = _past_gap(newest, min(to, stream.position + max_versions))
    with _expiry_named(stream, source):
        commits: Sequence[CommitActions] = feed_commits(source, stream.position + 1, to, newest)
    commits = without_undone(commits, stream.position)
    if max_rows is not None:
        commits, to = _within(commits, to, max_rows)
    if stream.appends_only:
        commits = [each for each in commits if each.metadata is not None or may_append(each)]
    size = sum(_size(each) for each in commits)
    return StreamBatch(stream, to, schema, size, partial(_changes, stream, source, newest, commits))


def _size(commit: CommitActions) -> int:
    return sum(file.size or 0 for file in files_of(commit))


def without_undone(commits: Sequence[CommitActions], position: int) -> Sequence[CommitActions]:
    """Return commits without those that a restore or an undrop has undone, nor these, where none of them was given."""
    left: list[CommitActions] = []
    back_to: int | None = None
    for commit in reversed(commits):  # a later restore may have undone an earlier one
        if back_to is not None and commit.version > back_to:
            continue
        back_to = _back_to(commit)
        if back_to is None or back_to < position:
            left.append(commit)
            back_to = None
    return left[::-1]


def _back_to(commit: CommitActions) -> int | None:
    """Return the version whose rows a commit brought back: what it restored, or what was dropped; else None."""
    parameters = commit.info.get("operationParameters")
    if commit.info.get("operation") != UNDROP or not isinstance(parameters, dict):
        return restored_version(commit)
    dropped = str(parameters.get("version"))
    return int(dropped) - 1 if dropped.isdecimal() else None


def _past_gap(newest: Snapshot, to: int) -> int:
    """Return a version, or where the table was dropped in it the one that brought it back: they are read together."""
    return next((last + 1 for first, last in version_gaps(newest.properties) if first <= to <= last), to)


def _within(commits: Sequence[CommitActions], to: int, max_rows: int) -> tuple[Sequence[CommitActions], int]:
    """Return as many of some commits as add `max_rows` rows, and the version up to which they go."""
    rows = 0
    for count, commit in enumerate(commits):
        rows += sum(add.num_records or 0 for add in commit.adds if add.data_change)
        if rows > max_rows and count:
            return commits[:count], commit.version - 1
    return commits, to


def may_append(commit: CommitActions) -> bool:
    """Whether a commit may add rows that are new, and not older rows in another form."""
    return any(add.data_change for add in commit.adds) and not _NEVER_APPENDS.issuperset(operations_of(commit))


def _changes(
    stream: StreamState, source: TableHandle, newest: Snapshot, commits: Sequence[CommitActions]
) -> Iterator[pa.RecordBatch]:
    appending = {each.version for each in commits if may_append(each)}
    with _expiry_named(stream, source):
        for batch in labelled_changes(source, newest, commits):
            if not stream.appends_only:
                yield batch
            elif batch[COMMIT_VERSION][0].as_py() in appending:
                yield batch.filter(pc.equal(batch[CHANGE_TYPE], pa.scalar(INSERT)))


def _all_rows(source: TableHandle, newest: Snapshot, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    label = {
        CHANGE_TYPE: INSERT,
        COMMIT_VERSION: newest.version,
        COMMIT_TIMESTAMP: datetime_of(newest.timestamp_ms),
    }
    for batch in scan(newest, source.store):
        columns = [
            pa.repeat(pa.scalar(label[field.name], field.type), len(batch))
            if field.name in label
            else batch[field.name]
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


@contextmanager
def _expiry_named(stream: StreamState, source: TableHandle) -> Iterator[None]:
    """Have an error about changes that are gone name the stream, the oldest that are left, and how to go on."""
    try:
        yield
    except VersionExpired as error:
        oldest = oldest_changes(source)
        raise VersionExpired(
            f"stream {stream.name} has fallen behind what table {stream.source} keeps: it was read up to version "
            f"{stream.position}, and the oldest changes left are those of version {oldest}. To go on from there "
            f"without those in between, move the stream to version {oldest - 1}: "
            f"lake.move_stream({stream.name!r}, {oldest - 1}), or alluvia stream move {stream.name} --version "
            f"{oldest - 1} ({error})"
        ) from error
