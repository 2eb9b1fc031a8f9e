"""The change feed: which rows each commit inserted and deleted, from the log, or from change files where there are any.

Source: Delta protocol, "Change Data Files" and "Reading CDC".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.errors import Corrupt, Invalid, ObjectNotFound, VersionExpired, VersionNotFound
from alluvia.log.actions import AddFile, CdcFile, RemoveFile
from alluvia.log.commit import CommitActions
from alluvia.log.paths import commit_name
from alluvia.operations.change_files import CHANGE_TYPE, DELETE, EXPIRED, INSERT
from alluvia.operations.datafile import DataFile
from alluvia.operations.expire import EXPIRE
from alluvia.operations.restore import RESTORE
from alluvia.operations.row_difference import RowDifference
from alluvia.table.deletion_vectors.storage import read_deletions
from alluvia.table.handle import TableHandle, oldest_readable, other_table_message
from alluvia.table.lineage import is_own_commit, version_gaps
from alluvia.table.masks import mask_of
from alluvia.table.snapshot import Snapshot

COMMIT_VERSION, COMMIT_TIMESTAMP = "_commit_version", "_commit_timestamp"
_FEED = [
    pa.field(CHANGE_TYPE, pa.string()),
    pa.field(COMMIT_VERSION, pa.int64()),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC")),
]
Typed = tuple[str, Iterable[pa.RecordBatch]]
Values = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a file: those at some positions, or all that are live."""

    file: AddFile
    positions: pa.Int64Array | None = None


def changes(
    handle: TableHandle, from_version: int, to_version: int | None = None, *, expired: bool = False
) -> pa.RecordBatchReader:
    """Return the rows that the commits of some versions, both ends included, inserted and deleted.

    Each row has the columns of `to_version` (the newest by default), and `_change_type`, `_commit_version` and
    `_commit_timestamp`. The type is `insert` or `delete`; an updated row is deleted and inserted, unless its commit has
    change files, in which case it is an `update_preimage` and an `update_postimage`. Rows that were only
    rewritten are left out. So are those that expired (`alluvia.ttl`), and that a restore of an earlier version brought
    back: what is kept of a table's history is not undone because the table forgets it. With `expired`, rows that
    expired are there too, with the type `expire`.

    Raises `VersionNotFound`, and `VersionExpired` if clean-up has deleted what a version's
    changes need.
    """
    if not isinstance(from_version, int) or isinstance(from_version, bool) or from_version < 0:
        raise Invalid(f"from_version: expected a version number, got {from_version!r}")
    last = handle.snapshot(to_version)
    if from_version > last.version:
        raise Invalid(f"from_version: {from_version} is greater than the last version requested, {last.version}")
    taken = [field.name for field in _FEED if field.name in last.schema.names]
    if taken:
        raise Invalid(f"the table has a column {taken[0]}, a name that the change feed uses itself")
    gaps = version_gaps(handle.at_hand().properties)
    if not is_own_commit(gaps, from_version):
        raise VersionNotFound(other_table_message(handle.name, from_version))
    commits = [each for each in read_commits(handle, from_version, last.version) if is_own_commit(gaps, each.version)]
    feed = _Feed(handle, last, commits, expired=expired)
    return pa.RecordBatchReader.from_batches(pa.schema([*last.schema, *_FEED]), feed.batches())


def rows_changed(
    handle: TableHandle, last: Snapshot, commits: Sequence[CommitActions], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield rows as `changes` does, but of some commits only, and with some columns, by which rows are compared.

    Commits may be left out that change no metadata. Raises `VersionExpired`, as `changes` does.
    """
    return _Feed(handle, last, commits, columns).batches()


def read_commits(handle: TableHandle, first: int, last: int) -> list[CommitActions]:
    """Return the commits of some versions, both ends included. Raises `VersionExpired` where clean-up took one."""
    known = handle.log.since(first - 1)
    if known is not None:
        return [commit for commit in known if commit.version <= last]
    left = [version for version in handle.log.listing().commits if version <= last]
    if first < min(left, default=last + 1):
        oldest = min(left, default=last)
        msg = f"the changes of version {first} of {handle.name} have expired; the log begins with version {oldest}"
        raise VersionExpired(msg)
    return handle.log.read_commits(range(first, last + 1))


class _Feed:
    """The changes of some commits that follow one another. `last` is the version whose columns they are given in."""

    def __init__(
        self,
        handle: TableHandle,
        last: Snapshot,
        commits: Sequence[CommitActions],
        columns: Sequence[str] | None = None,
        *,
        expired: bool = False,
    ) -> None:
        self._handle = handle
        self._expired = expired
        self._last = last
        self._commits = commits
        self._names = list(last.schema.names if columns is None else columns)
        self._schema = pa.schema([last.schema.field(name) for name in self._names])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the changes in the order of the versions, in each version what was deleted first."""
        before = self._snapshot_before()
        for commit in self._commits:
            after = self._readable(commit, before)
            timestamp = pa.scalar(self._timestamp_us(commit), _FEED[2].type)
            for kind, batches in self._changes(commit, before, after):
                for batch in batches:
                    if len(batch):
                        yield self._labelled(batch, kind, commit.version, timestamp)
            before = after

    def _labelled(self, batch: pa.RecordBatch, kind: str, version: int, timestamp: pa.Scalar) -> pa.RecordBatch:
        kinds = batch[CHANGE_TYPE] if CHANGE_TYPE in batch.schema.names else pa.repeat(pa.scalar(kind), len(batch))
        arrays = [batch[name] for name in self._names]
        versions = pa.repeat(pa.scalar(version, pa.int64()), len(batch))
        schema = pa.schema([*self._schema, *_FEED])
        return pa.RecordBatch.from_arrays([*arrays, kinds, versions, pa.repeat(timestamp, len(batch))], schema=schema)

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

    def _changes(self, commit: CommitActions, before: Snapshot, after: Snapshot) -> Iterator[Typed]:
        if commit.cdc:
            yield INSERT, self._from_files(commit, after)
            return
        if is_expiry(commit):
            if self._expired:
                files = [Piece(self._added(commit, remove)) for remove in commit.removes]
                yield EXPIRED, self._rows(commit, before, files)
            return
        inserted: list[Iterable[pa.RecordBatch]] = []
        with ExitStack() as stack:
            for old, new in self._partitions(commit, before).values():
                was, now = self._rows(commit, before, old), self._rows(commit, after, new)
                if old and new:
                    difference = stack.enter_context(RowDifference(self._schema, was, now))
                    was, now = difference.only_old(), difference.only_new()
                yield DELETE, was
                inserted.append(now)
            for batches in inserted:
                yield INSERT, batches

    def _partitions(self, commit: CommitActions, before: Snapshot) -> dict[Values, tuple[list[Piece], list[Piece]]]:
        """Return what went and what came, by partition: a row that stays as it is stays in its partition."""
        found: dict[Values, tuple[list[Piece], list[Piece]]] = {}
        adds = {file.path: file for file in commit.adds if file.data_change}
        for remove in self._removes(commit):
            if not remove.data_change:
                continue
            add = adds.pop(remove.path, None)
            if add is None:
                old = self._added(commit, remove)
                found.setdefault(_values(old), ([], []))[0].append(Piece(old))
                continue
            deleted, restored = self._revision(commit, before, remove, add)
            for at, positions in enumerate((deleted, restored)):
                if len(positions):
                    found.setdefault(_values(add), ([], []))[at].append(Piece(add, positions))
        for add in adds.values():
            found.setdefault(_values(add), ([], []))[1].append(Piece(add))
        return found

    def _removes(self, commit: CommitActions) -> list[RemoveFile]:
        """Return what a commit took away from the rows that readers of changes know, to whom nothing expires.

        They know rows that had expired and that a restore adds again: so their tombstones are among these. They still
        know those that a restore takes away because they had expired in its version. The commits tell, of which
        clean-up may have taken the first.
        """
        version = _restored_version(commit)
        if version is None:
            return list(commit.removes)
        left = sorted(each for each in self._handle.log.listing().commits if each < commit.version)
        since = self._handle.log.read_commits([each for each in left if each > version])
        gone = _last_removes(since)
        brought_back = [found for add in commit.adds if (found := gone.get(add.path)) is not None]
        restored = {add.path for each in since if _restored_version(each) is not None for add in each.adds}
        if not any(remove.path in restored for remove in commit.removes):
            return [*commit.removes, *brought_back]
        expired = _last_removes(self._handle.log.read_commits([each for each in left if each <= version]))
        return [*(remove for remove in commit.removes if expired.get(remove.path) is None), *brought_back]

    def _added(self, commit: CommitActions, file: RemoveFile) -> AddFile:
        """Return the add of a file that a commit removed; where the tombstone says too little, from the log."""
        if file.partition_values is None and self._last.partition_columns:
            found = self._handle.log.at(commit.version - 1).files.get(file.key)
            if found is None:
                raise Corrupt(f"version {commit.version} removes {file.path}, which is not in the version before")
            return found
        values = file.partition_values or {}
        return AddFile(file.path, values, file.size or 0, 0, data_change=True, deletion_vector=file.deletion_vector)

    def _rows(self, commit: CommitActions, snapshot: Snapshot, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        """Yield rows of files, with the feed's columns as the last version has them."""
        for piece in pieces:
            with self._opened(commit, snapshot, piece.file) as data:
                mask = data.live if piece.positions is None else mask_of(piece.positions, data.rows)
                start = 0
                for batch in data.batches([name for name in self._names if name in snapshot.schema.names]):
                    yield self._projected(batch.filter(mask.slice(start, len(batch))))
                    start += len(batch)

    def _revision(
        self, commit: CommitActions, snapshot: Snapshot, remove: RemoveFile, add: AddFile
    ) -> tuple[pa.Int64Array, pa.Int64Array]:
        """Return the positions of a file that its new deletion vector deletes, and those that it brings back."""
        old = replace(add, deletion_vector=remove.deletion_vector)
        try:
            was, now = (read_deletions(self._handle.store, file, snapshot.locate) for file in (old, add))
        except Corrupt as error:
            raise self._gone(commit, add, error) from error
        return now.filter(pc.invert(pc.is_in(now, value_set=was))), was.filter(pc.invert(pc.is_in(was, value_set=now)))

    def _from_files(self, commit: CommitActions, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
        names = [name for name in self._names if name in snapshot.schema.names]
        for file in commit.cdc:
            with self._opened(commit, snapshot, _as_add(file)) as data:
                for batch in data.batches(names, extra=[CHANGE_TYPE]):
                    yield self._projected(batch)

    def _projected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the feed's columns as the last version has them, null where the files lack them."""
        arrays, fields = [], []
        for field in self._schema:
            known = field.name in batch.schema.names
            arrays.append(batch[field.name].cast(field.type) if known else pa.nulls(len(batch), field.type))
            fields.append(field.with_nullable(True))
        if CHANGE_TYPE in batch.schema.names:
            arrays.append(batch[CHANGE_TYPE])
            fields.append(_FEED[0])
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _opened(self, commit: CommitActions, snapshot: Snapshot, file: AddFile) -> DataFile:
        data = DataFile(self._handle, snapshot, file)
        try:
            data.fetch()
            _ = data.deleted
        except (ObjectNotFound, Corrupt) as error:
            data.close()
            raise self._gone(commit, file, error) from error
        return data

    def _gone(self, commit: CommitActions, file: AddFile, error: Exception) -> Exception:
        """Return what to raise where a file, or its deletion vector, is missing; other errors as they are."""
        if not isinstance(error, ObjectNotFound) and not isinstance(error.__cause__, ObjectNotFound):
            return error
        # A vacuum may have said so since the commits were read.
        if commit.cdc or commit.version <= oldest_readable(self._handle.newest().state):
            name = self._handle.name
            return VersionExpired(
                f"the changes of version {commit.version} of {name} have expired: {file.path} is gone"
            )
        return Corrupt(f"data file {file.path}, which version {commit.version} names, is missing")


def is_expiry(commit: CommitActions) -> bool:
    """Whether a commit only removes rows because of their age."""
    return commit.info.get("operation") == EXPIRE and not commit.adds


def _last_removes(commits: Iterable[CommitActions]) -> dict[str, RemoveFile | None]:
    """Return by path the last tombstone of each file that commits removed; None where it did not expire."""
    found: dict[str, RemoveFile | None] = {}
    for commit in commits:
        found.update({remove.path: remove if is_expiry(commit) else None for remove in commit.removes})
    return found


def _restored_version(commit: CommitActions) -> int | None:
    """Return the version that a commit restored; None for other commits, and where another writer does not say it."""
    parameters = commit.info.get("operationParameters")
    if commit.info.get("operation") != RESTORE or not isinstance(parameters, dict):
        return None
    text = str(parameters.get("version"))
    return int(text) if text.isdecimal() else None


def _values(file: AddFile) -> Values:
    return tuple(sorted(file.partition_values.items()))


def _as_add(file: CdcFile) -> AddFile:
    return AddFile(file.path, file.partition_values, file.size, 0, data_change=False)
