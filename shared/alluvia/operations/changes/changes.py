"""The change feed: which rows each commit inserted and deleted, from the log, or from change files where there are any.

Source: Delta protocol, "Change Data Files" and "Reading CDC".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import field, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.handle import ReadableTable
from alluvia.commit.versions import oldest_readable, other_table_message
from alluvia.delta.deletion_vectors.storage import mask_of, read_deletions
from alluvia.delta.lineage import is_own_commit, version_gaps
from alluvia.delta.log.actions import AddFile, CdcFile, RemoveFile
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.paths import commit_name
from alluvia.delta.promoted_fields import as_if_moved
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import AlluviaError, Corrupt, Invalid, ObjectNotFound, VersionExpired, VersionNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.changes.feed_commits import Expired, expired_around, is_expiry, read_commits
from alluvia.operations.changes.row_difference import RowDifference
from alluvia.operations.reading.change_files import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    DELETE,
    EXPIRED,
    INSERT,
)
from alluvia.operations.reading.datafile import DataFile

FEED = [
    pa.field(CHANGE_TYPE, pa.string()),
    pa.field(COMMIT_VERSION, pa.int64()),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC")),
]
Values = tuple[tuple[str, str | None], ...]
COMMITS_AT_ONCE = 100
"""The files of this many commits are planned, and then fetched ahead, together."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a file that a commit deletes or inserts: those at some positions, or all that are live.

    Vacuum may have taken the file if `version` cannot be read any more.
    """

    snapshot: Snapshot
    file: AddFile
    version: int
    positions: pa.Int64Array | None = None


@dataclass(frozen=True, slots=True)
class CommitReading:
    """What to read of a commit, in this order: its change files; or what to compare, what it deletes and inserts."""

    commit: CommitActions
    recorded: list[Piece] = field(default_factory=list)
    compared: list[tuple[list[Piece], list[Piece]]] = field(default_factory=list)
    deleted: list[Piece] = field(default_factory=list)
    inserted: list[Piece] = field(default_factory=list)

    @property
    def pieces(self) -> Iterator[Piece]:
        """Yield them all in order."""
        return chain(self.recorded, *(part for both in self.compared for part in both), self.deleted, self.inserted)


class Changed(NamedTuple):
    """Rows that a commit changed, with the columns asked for, and the type of each row's change."""

    commit: CommitActions
    kinds: pa.Array
    rows: pa.RecordBatch


def changes(
    handle: ReadableTable, from_version: int, to_version: int | None = None, *, expired: bool = False
) -> pa.RecordBatchReader:
    """Return the rows that the commits of some versions, both ends included, inserted and deleted.

    Each row has the columns of `to_version` (the newest by default), and `_change_type`, `_commit_version` and
    `_commit_timestamp`. The type is `insert` or `delete`; an updated row is deleted and inserted, unless its commit has
    change files, in which case it is an `update_preimage` and an `update_postimage`. Rows that were only rewritten are
    left out. So are those that expired (`alluvia.ttl`), and those that had expired and that a restore brings back: a
    consumer of the changes keeps rows that the table forgets because of their age. A restore makes what they have what
    it was in the version that it restores. With `expired`, rows that expire are there too, with the type `expire`, and
    so are those that a restore brings back: the changes then add up to the rows of the table.

    Without `to_version`, transactions over several tables that have happened are first carried out in the log, if this
    process may write. Raises `VersionNotFound`, and `VersionExpired` if clean-up has deleted what a version's changes
    need.
    """
    if not isinstance(from_version, int) or isinstance(from_version, bool) or from_version < 0:
        raise Invalid(f"from_version: expected a version number, got {from_version!r}")
    last = handle.snapshot(to_version)
    if to_version is None:
        with suppress(AlluviaError):  # who may not write sees what is in the log
            last = handle.snapshot() if handle.carry_out(last) else last
    if from_version > last.version:
        raise Invalid(f"from_version: {from_version} is greater than the last version requested, {last.version}")
    commits = feed_commits(handle, from_version, last.version, last)
    feed = _Feed(handle, last, commits, last.schema.names, expired=expired)
    return pa.RecordBatchReader.from_batches(feed_schema(last), feed.labelled())


def feed_schema(last: Snapshot) -> pa.Schema:
    """Return the columns of changes that are given in those of a version."""
    return pa.schema([*last.schema, *FEED])


def feed_commits(handle: ReadableTable, first: int, to: int, last: Snapshot) -> list[CommitActions]:
    """Return the commits whose changes can be given, in the columns of `last`: from a version, up to another.

    Raises what `changes` does.
    """
    taken = [field.name for field in FEED if field.name in last.schema.names]
    if taken:
        raise Invalid(f"the table has a column {taken[0]}, a name that the change feed uses itself")
    gaps = version_gaps(handle.at_hand().properties)
    if not is_own_commit(gaps, first):
        raise VersionNotFound(other_table_message(handle.name, first))
    commits = [each for each in read_commits(handle, first, to) if is_own_commit(gaps, each.version)]
    _check_not_replaced(handle, last, commits)
    return commits


def labelled_changes(
    handle: ReadableTable, last: Snapshot, commits: Sequence[CommitActions]
) -> Iterator[pa.RecordBatch]:
    """Yield what `changes` gives, but of some commits only: those that may be left out change no metadata."""
    return _Feed(handle, last, commits, last.schema.names).labelled()


def _check_not_replaced(handle: ReadableTable, last: Snapshot, commits: Sequence[CommitActions]) -> None:
    """Raise `Invalid` if one of some commits replaced the table by one with other types of its columns."""
    for commit in commits:
        parameters = commit.info.get("operationParameters")
        several = parameters.get("operations") if isinstance(parameters, dict) else None
        if commit.version == 0 or "REPLACE TABLE" not in f"{commit.info.get('operation')} {several}":
            continue  # version 0 replaces nothing, though Spark may say so
        before = Snapshot(handle.log.at(commit.version - 1), last.root, last.name).schema
        types = {each.name: each.type for each in before}
        if any(types.get(each.name, each.type) != each.type for each in last.schema):
            raise Invalid(
                f"from_version: version {commit.version} of {handle.name} replaced the table by one with columns of "
                f"other types: ask for the changes up to {commit.version - 1}, or from {commit.version + 1} on"
            )


def rows_changed(
    handle: ReadableTable, last: Snapshot, commits: Sequence[CommitActions], columns: Sequence[str]
) -> Iterator[Changed]:
    """Yield what `changes` gives, but of some commits only, and with some columns, by which rows are compared.

    Commits may be left out that change no metadata. Raises `VersionExpired`, as `changes` does.
    """
    return _Feed(handle, last, commits, columns).changed()


class _Feed:
    """The changes of some commits that follow one another. `last` is the version whose columns they are given in."""

    def __init__(
        self,
        handle: ReadableTable,
        last: Snapshot,
        commits: Sequence[CommitActions],
        columns: Sequence[str],
        *,
        expired: bool = False,
    ) -> None:
        self._handle = handle
        self._expired = expired
        self._last = last
        self._commits = commits
        self._schema = pa.schema([last.schema.field(name) for name in columns])
        self._gaps = version_gaps(last.properties)

    def labelled(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes with the columns that say which kind of change each row is, in which commit."""
        schema = pa.schema([*self._schema, *FEED])
        for commit, kinds, rows in self.changed():
            versions = pa.repeat(pa.scalar(commit.version, pa.int64()), len(rows))
            times = pa.repeat(pa.scalar(self._timestamp_us(commit), FEED[2].type), len(rows))
            yield pa.RecordBatch.from_arrays([*rows.columns, kinds, versions, times], schema=schema)

    def changed(self) -> Iterator[Changed]:
        """Yield the changes in the order of the versions, in each version what was deleted first."""
        before = self._snapshot_before()
        for start in range(0, len(self._commits), COMMITS_AT_ONCE):
            readings = []
            for commit in self._commits[start : start + COMMITS_AT_ONCE]:
                after = self._readable(commit, before)
                readings.append(self._planned(commit, before, after))
                before = after
            pieces = [piece for reading in readings for piece in reading.pieces]
            paths = self._handle.store.prefetch((each.snapshot.key(each.file), each.file.size) for each in pieces)
            for reading in readings:
                for kinds, rows in self._read(reading, paths):
                    if len(rows):
                        yield Changed(reading.commit, kinds, rows)

    def _snapshot_before(self) -> Snapshot:
        """Return what the first commit's removed files are read as: the last version, if nothing changed since."""
        first = next((commit for commit in self._commits if commit.metadata is not None), None)
        if first is None or first.version == 0:
            return self._last
        return self._compatible(Snapshot(self._handle.log.at(first.version - 1), self._last.root, self._last.name))

    def _readable(self, commit: CommitActions, before: Snapshot) -> Snapshot:
        if commit.metadata is None:
            return before
        state = replace(self._last.state, metadata=commit.metadata)
        return self._compatible(Snapshot(state, self._last.root, self._last.name))

    def _compatible(self, snapshot: Snapshot) -> Snapshot:
        """Return the last version instead, which knows later names and types, if its files have the same columns."""
        return self._last if snapshot.partition_columns == self._last.partition_columns else snapshot

    def _timestamp_us(self, commit: CommitActions) -> int:
        if commit.timestamp_ms:
            return commit.timestamp_ms * 1000
        info = self._handle.store.head(self._handle.root + commit_name(commit.version))
        return 0 if info is None else info.modified_ms * 1000

    def _planned(self, commit: CommitActions, before: Snapshot, after: Snapshot) -> CommitReading:
        """Return what went and what came, to be compared by partition: a row that stays as it is stays in its own."""
        if commit.cdc:
            return CommitReading(commit, [Piece(after, _as_add(file), commit.version) for file in commit.cdc])
        if is_expiry(commit) and not self._expired:
            return CommitReading(commit)
        pieces: dict[Values, tuple[list[Piece], list[Piece]]] = {}
        gone, come = self._gone_and_come(commit)
        for version, remove in gone:
            _, add = come.pop(remove.path, (version, None))
            if add is None:
                old = self._added(version, remove)
                pieces.setdefault(_values(old), ([], []))[0].append(Piece(before, old, version))
                continue
            if add.deletion_vector == remove.deletion_vector:
                continue
            for at, positions in enumerate(self._revision(commit, before, remove, add)):
                if len(positions):
                    pieces.setdefault(_values(add), ([], []))[at].append(Piece(before, add, version, positions))
        for version, add in come.values():
            pieces.setdefault(_values(add), ([], []))[1].append(Piece(after, add, version))
        compared = [both for both in pieces.values() if both[0] and both[1]]
        rest = [both for both in pieces.values() if not (both[0] and both[1])]
        deleted, inserted = ([piece for both in rest for piece in both[at]] for at in (0, 1))
        return CommitReading(commit, [], compared, deleted, inserted)

    def _gone_and_come(self, commit: CommitActions) -> tuple[Expired, dict[str, tuple[int, AddFile]]]:
        """Return the files that left what readers of changes know, and by path those that came, with their versions."""
        gone = [(commit.version, remove) for remove in commit.removes if remove.data_change]
        come = {add.path: (commit.version, add) for add in commit.adds if add.data_change}
        if self._expired:
            return gone, come
        before, restored = expired_around(self._handle, self._gaps, commit)
        return [*gone, *before], come | {file.path: (at, self._added(at, file)) for at, file in restored}

    def _read(self, reading: CommitReading, paths: Iterator[Path | None]) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """Yield a commit's changes by kind. `paths` are those of its pieces, in their order."""
        deleted = EXPIRED if is_expiry(reading.commit) else DELETE
        for piece in reading.recorded:
            with self._opened(reading.commit, piece, paths) as data:
                for batch in data.batches(self._present(piece), extra=[CHANGE_TYPE]):
                    yield batch[CHANGE_TYPE], self._projected(batch)
        with ExitStack() as stack:
            differences = [
                stack.enter_context(
                    RowDifference(self._schema, self._rows(reading, before, paths), self._rows(reading, after, paths))
                )
                for before, after in reading.compared
            ]
            old, new = (difference.only_old() for difference in differences), (each.only_new() for each in differences)
            for batch in chain(*old, self._rows(reading, reading.deleted, paths)):
                yield pa.repeat(pa.scalar(deleted), len(batch)), batch
            for batch in chain(*new, self._rows(reading, reading.inserted, paths)):
                yield pa.repeat(pa.scalar(INSERT), len(batch)), batch

    def _added(self, version: int, file: RemoveFile) -> AddFile:
        """Return the add of a file that a version removed; where the tombstone says too little, from the log."""
        if file.partition_values is None and self._last.partition_columns:
            file_before = self._handle.log.at(version - 1).files.get(file.key)
            if file_before is None:
                raise Corrupt(f"version {version} removes {file.path}, which is not in the version before")
            return file_before
        values = file.partition_values or {}
        return AddFile(file.path, values, file.size or 0, 0, data_change=True, deletion_vector=file.deletion_vector)

    def _rows(
        self, reading: CommitReading, pieces: Sequence[Piece], paths: Iterator[Path | None]
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of files, with the feed's columns as the last version has them."""
        for piece in pieces:
            with self._opened(reading.commit, piece, paths) as data:
                mask = data.live if piece.positions is None else mask_of(piece.positions, data.rows)
                start = 0
                for batch in data.batches(self._present(piece)):
                    rows = batch.filter(mask.slice(start, len(batch)))
                    yield self._projected(as_if_moved(rows, piece.snapshot.promoted))
                    start += len(batch)

    def _present(self, piece: Piece) -> list[str]:
        known = {*piece.snapshot.schema.names}
        return [name for name in self._schema.names if name in known]

    def _revision(
        self, commit: CommitActions, snapshot: Snapshot, remove: RemoveFile, add: AddFile
    ) -> tuple[pa.Int64Array, pa.Int64Array]:
        """Return the positions of a file that its new deletion vector deletes, and those that it brings back."""
        old = replace(add, deletion_vector=remove.deletion_vector)
        try:
            was, now = (read_deletions(self._handle.store, file, snapshot.locate) for file in (old, add))
        except Corrupt as error:
            raise self._gone(commit, commit.version, add, error) from error
        return now.filter(pc.invert(pc.is_in(now, value_set=was))), was.filter(pc.invert(pc.is_in(was, value_set=now)))

    def _projected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the feed's columns as in the last version, null where the files lack them."""
        given = dict(zip(batch.schema.names, batch.columns, strict=True))
        arrays = [
            given[each.name].cast(each.type) if each.name in given else pa.nulls(len(batch), each.type)
            for each in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([each.with_nullable(True) for each in self._schema]))

    def _opened(self, commit: CommitActions, piece: Piece, paths: Iterator[Path | None]) -> DataFile:
        path = next(paths)
        data = DataFile(self._handle, piece.snapshot, piece.file, path=path)
        try:
            if path is None:
                raise ObjectNotFound(piece.snapshot.key(piece.file))
            _ = data.deleted
        except (ObjectNotFound, Corrupt) as error:
            data.close()
            raise self._gone(commit, piece.version, piece.file, error) from error
        return data

    def _gone(self, commit: CommitActions, version: int, file: AddFile, error: Exception) -> Exception:
        """Return what to raise where a file, or its deletion vector, is missing; other errors as they are."""
        if not isinstance(error, ObjectNotFound) and not isinstance(error.__cause__, ObjectNotFound):
            return error
        # A vacuum may have said so since the commits were read.
        if commit.cdc or version <= oldest_readable(self._handle.newest().state):
            name = self._handle.name
            return VersionExpired(
                f"the changes of version {commit.version} of {name} have expired: {file.path} is gone"
            )
        return Corrupt(f"data file {file.path}, which version {commit.version} names, is missing")


def _values(file: AddFile) -> Values:
    return tuple(sorted(file.partition_values.items()))


def _as_add(file: CdcFile) -> AddFile:
    return AddFile(file.path, file.partition_values, file.size, 0, data_change=False)
