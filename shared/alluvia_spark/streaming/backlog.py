"""The files and commits of a table that a stream has not read, in the order in which it reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from alluvia.commit.changes import EXPIRE, RESTORE, UNDROP
from alluvia.commit.handle import TableHandle
from alluvia.delta.lineage import in_gap, version_gaps
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import AlluviaError, Invalid, VersionExpired
from alluvia.operations.changes.changes import feed_commits
from alluvia.operations.changes.feed_commits import files_of, operations_of
from alluvia.operations.streams.streams import oldest_changes
from alluvia_spark.streaming.offsets import WHOLE, BatchLimits, Offset, Unit

COMMITS_AT_ONCE = 100
_QUIET = frozenset({EXPIRE, UNDROP, "OPTIMIZE", "ERASE"})
"""Operations that add no row and change none, though they replace files, or remove them because of their age."""


@dataclass(frozen=True)
class ChangeRules:
    """How a stream reads a commit that changes or deletes rows.

    With `feed`, as its changes. Else such commits stop it, but for those that only delete, with `ignores_deletes`, and
    for all of them, with `skips_changes`.
    """

    feed: bool = False
    ignores_deletes: bool = False
    skips_changes: bool = False


class Backlog:
    """The part of a table that a stream has still to read. `begun` is the version whose columns it reads."""

    def __init__(self, handle: TableHandle, begun: Snapshot, rules: ChangeRules) -> None:
        self._handle = handle
        self._begun = begun
        self._rules = rules

    def newest(self) -> int:
        """Return the newest version. Transactions that have happened are first carried out, where this may write.

        Raises `TableNotFound`, and `Invalid` for another table of the same name.
        """
        newest = self._handle.newest()
        with suppress(AlluviaError):  # a reader without the right to write sees them when another has done it
            newest = self._handle.newest() if self._handle.carry_out(newest) else newest
        if newest.state.metadata.id != self._begun.state.metadata.id:
            raise self._other()
        return newest.version

    def checked(self, offset: Offset) -> Offset:
        """Return an offset of this table. Raises `Invalid` for another's."""
        if offset.table_id != self._begun.state.metadata.id:
            raise self._other()
        return offset

    def _other(self) -> Invalid:
        return Invalid(
            f"table {self._begun.name} was dropped and created again since the stream began: start with a new "
            "checkpoint"
        )

    def end(self, start: Offset, newest: int, limits: BatchLimits) -> Offset:
        """Return where a batch ends that begins after an offset: before a commit that stops the stream, if need be.

        Raises `Invalid` where the next commit does so: it changes the columns, or changes rows and no rule says how to
        read that. Raises `VersionExpired` where clean-up has taken it.
        """
        end, files, size = start, 0, 0
        try:
            for unit in self._units(start, newest):
                files, size = files + 1, size + unit.size
                if files > 1 and limits.exceeded(files, size):
                    return end
                end = unit.end
        except Invalid:
            if end is start:
                raise
            return end
        return start if start.place >= (newest, WHOLE) else Offset(start.table_id, newest)

    def between(self, start: Offset, end: Offset) -> list[Unit]:
        """Return what a batch reads. Raises as `end` does."""
        if start.place == end.place:
            return []
        return [unit for unit in self._units(start, end.version) if unit.end.place <= end.place]

    def _units(self, start: Offset, to: int) -> Iterator[Unit]:
        first = start.version if start.files is not None and not start.initial else start.version + 1
        if start.initial:
            files = sorted(self._handle.snapshot(start.version).files, key=lambda file: file.path)
            yield from self._of_files(start.version, files, start)
        while first <= to:
            last = min(to, first + COMMITS_AT_ONCE - 1)
            with self._expiry_named(first):
                commits = feed_commits(self._handle, first, last, self._begun)
            for commit in commits:
                self._check_columns(commit)
                if self._rules.feed:
                    if self._counts(commit):
                        size = sum(file.size or 0 for file in files_of(commit))
                        yield Unit(Offset(start.table_id, commit.version), size, None)
                else:
                    yield from self._of_files(commit.version, self._added(commit), start)
            first = last + 1

    def _of_files(self, version: int, files: Sequence[AddFile], start: Offset) -> Iterator[Unit]:
        """Yield the files of a version, but for those that were read."""
        read = start.files or 0 if version == start.version else 0
        initial = start.initial and version == start.version
        for count, file in enumerate(files[read:], read + 1):
            end = Offset(start.table_id, version, None if count == len(files) else count, initial=initial)
            yield Unit(replace(end, initial=False) if end.files is None else end, file.size, file)

    def _counts(self, commit: CommitActions) -> bool:
        """Return whether a commit adds, changes or deletes rows of the table, other than by their age.

        One that dropped the table does not, since the next one of the table brought it back.
        """
        operations = operations_of(commit)
        changes = any(add.data_change for add in commit.adds) or any(each.data_change for each in commit.removes)
        dropped = in_gap(version_gaps(self._handle.at_hand().properties), commit.version)
        return changes and not dropped and not _QUIET.issuperset(operations)

    def _added(self, commit: CommitActions) -> list[AddFile]:
        """Return the files that a commit added. Raises `Invalid` where it changed rows and no rule says what to do."""
        if not self._counts(commit):
            return []
        adds = [file for file in commit.adds if file.data_change]
        changes = RESTORE in operations_of(commit) or any(file.data_change for file in commit.removes)
        if not changes:
            return adds
        if self._rules.skips_changes or (self._rules.ignores_deletes and not adds):
            return []
        deletes = "" if adds else ", or option('ignoreDeletes', 'true') to leave out those that only delete"
        raise Invalid(
            f"version {commit.version} of table {self._begun.name} changes earlier rows "
            f"({', '.join(operations_of(commit))}): start the query with option('skipChangeCommits', 'true') to leave "
            f"such versions out{deletes}; or read all changes, with option('readChangeFeed', 'true') and a new "
            "checkpoint"
        )

    def _check_columns(self, commit: CommitActions) -> None:
        """Raise `Invalid` for a commit that changes the columns: those of a running query are fixed."""
        if commit.metadata is None or commit.version <= self._begun.version:
            return
        after = Snapshot(replace(self._begun.state, metadata=commit.metadata), self._begun.root, self._begun.name)
        if after.schema != self._begun.schema:
            raise Invalid(
                f"version {commit.version} changes the columns of table {self._begun.name}: start the query again, "
                "which then reads the new ones"
            )

    @contextmanager
    def _expiry_named(self, first: int) -> Iterator[None]:
        try:
            yield
        except VersionExpired as error:
            oldest = oldest_changes(self._handle)
            raise VersionExpired(
                f"the stream goes on with version {first} of table {self._begun.name}, and the oldest that is left is "
                f"{oldest}: start with a new checkpoint, with option('startingVersion', '{oldest}') to go on from "
                f"there, or without it to read all rows ({error})"
            ) from error
