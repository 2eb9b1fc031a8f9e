"""Conflicts: whether a transaction is still valid after another commit won the race. Pure.

One named check per rule. Each takes the attempt and one winning commit, and returns the conflict or None; it does not
raise. Source: Delta protocol, by way of the reference implementation's conflict checker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from alluvia.delta.lineage import is_dropped
from alluvia.delta.log.actions import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, change_rows
from alluvia.delta.log.commit import IN_COMMIT_TIMESTAMPS, CommitActions
from alluvia.delta.properties import APPEND_ONLY, CONSTRAINT, ID_FIELD, PARTITION_BY, TIME_FIELD
from alluvia.delta.schema.serialization import only_adds_nullable
from alluvia.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    ConcurrentDomain,
    ConcurrentTransaction,
    Conflict,
    FilesCompacted,
    MetadataChanged,
    ProtocolChanged,
    TableDropped,
)
from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a transaction has read and wants to write.

    `can_match` says whether an added file could hold rows that the transaction has read; None if it has read none.
    `files_read` holds keys of files. `app_ids` are those whose last version the transaction relies on, `domains_read`
    the metadata domains that it has looked at.
    """

    metadata_read: Metadata
    adds: Sequence[AddFile] = ()
    removes: Sequence[RemoveFile] = ()
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    domains: Sequence[DomainMetadata] = ()
    can_match: Callable[[AddFile], bool] | None = None
    files_read: frozenset[str] = field(default_factory=frozenset)
    app_ids: frozenset[str] = field(default_factory=frozenset)
    domains_read: frozenset[str] = field(default_factory=frozenset)

    @property
    def keeps_rows(self) -> bool:
        """Whether the attempt leaves the rows that exist as they are: a blind append, or a compaction."""
        return self.metadata is None and (not self.removes or not self.changes_rows) and self.can_match is None

    @property
    def changes_rows(self) -> bool:
        """Whether any of the attempt's files changes rows, so that it is not a compaction."""
        return change_rows(self.adds, self.removes)


Check = Callable[[Attempt, CommitActions], Conflict | None]


def table_dropped(attempt: Attempt, winner: CommitActions) -> Conflict | None:
    """Nothing can be done with a table that a winner dropped."""
    if winner.metadata is None or not is_dropped(winner.metadata.configuration):
        return None
    if is_dropped(attempt.metadata_read.configuration):
        return None
    return TableDropped(f"version {winner.version} dropped the table")


def protocol_changed(attempt: Attempt, winner: CommitActions) -> Conflict | None:
    """Two protocol changes cannot both hold. (Whether the new protocol is supported is checked when it is read.)"""
    if winner.protocol is None or (attempt.protocol is None and attempt.metadata is None):
        return None
    return ProtocolChanged(f"version {winner.version} changed the table's protocol: start again")


def metadata_changed(attempt: Attempt, winner: CommitActions) -> Conflict | None:
    """A metadata change conflicts with whatever relied on the old metadata, unless it only added nullable columns."""
    if winner.metadata is None:
        return None
    if attempt.keeps_rows and harmless_change(attempt.metadata_read, winner.metadata):
        return None
    return MetadataChanged(f"version {winner.version} changed the table's schema or properties: start again")


_TELLING = (PARTITION_BY, APPEND_ONLY, IN_COMMIT_TIMESTAMPS, ID_FIELD, TIME_FIELD)
"""Properties that say how rows are written, or whether."""


def harmless_change(before: Metadata, after: Metadata) -> bool:
    """Whether rows written for one metadata fit another: same partition columns, only nullable columns added."""
    return (
        before.id == after.id
        and before.partition_columns == after.partition_columns
        and only_adds_nullable(before.schema_string, after.schema_string)
        and all(before.configuration.get(name) == after.configuration.get(name) for name in _TELLING)
        and _constraints(before) == _constraints(after)
        and is_dropped(before.configuration) == is_dropped(after.configuration)
    )


def _constraints(metadata: Metadata) -> dict[str, str]:
    """Return the CHECK constraints, which rows written before one was added may break."""
    return {name: text for name, text in metadata.configuration.items() if name.startswith(CONSTRAINT)}


def transaction_recorded(attempt: Attempt, winner: CommitActions) -> Conflict | None:
    """An application transaction that a winner recorded is already applied."""
    for txn in winner.txns:
        if txn.app_id in attempt.app_ids:
            return ConcurrentTransaction(f"version {winner.version} already holds transaction {txn.app_id!r}")
    return None


def domain_changed(attempt: Attempt, winner: CommitActions) -> Conflict | None:
    """Two changes of one metadata domain conflict, and so does a change with anything concluded from the old value."""
    ours = {domain.domain for domain in attempt.domains} | attempt.domains_read
    for domain in winner.domains:
        if domain.domain in ours:
            return ConcurrentDomain(f"version {winner.version} changed the domain {domain.domain!r}: start again")
    return None


def rows_added(attempt: Attempt, winner: CommitActions) -> Conflict | None:
    """New rows that the attempt would have read; a compaction's files hold no new rows."""
    if attempt.can_match is None:
        return None
    for add in winner.adds:
        if add.data_change and attempt.can_match(add):
            return ConcurrentAppend(f"version {winner.version} added {add.path}, which can match what was read")
    return None


def read_file_removed(attempt: Attempt, winner: CommitActions) -> Conflict | None:
    """Rows that the attempt has read were removed; a compaction removes no rows (see `moved_reads`)."""
    for remove in winner.removes:
        if remove.data_change and remove.key in attempt.files_read:
            return ConcurrentDeleteRead(f"version {winner.version} removed {remove.path}, which was read")
    return None


def moved_reads(files_read: frozenset[str], winner: CommitActions) -> frozenset[str]:
    """Return the files that hold what was read, after a winner that may have moved it into other files."""
    if not any(remove.key in files_read and not remove.data_change for remove in winner.removes):
        return files_read
    return files_read | {add.key for add in winner.adds if not add.data_change}


def file_removed_twice(attempt: Attempt, winner: CommitActions) -> Conflict | None:
    """A file that a winner took rows from, or that two compactions share, cannot be removed once more."""
    ours = {remove.key for remove in attempt.removes}
    for remove in winner.removes:
        if remove.key in ours and (remove.data_change or not attempt.changes_rows):
            return ConcurrentDeleteDelete(f"version {winner.version} removed {remove.path} as well")
    return None


def file_compacted(attempt: Attempt, winner: CommitActions) -> Conflict | None:
    """Rows that the attempt changes lie in another file since a compaction: it must be planned again on the new files.

    A transaction that has only read them stays valid, since the rows are the same.
    """
    ours = {remove.key for remove in attempt.removes} if attempt.changes_rows else set()
    for remove in winner.removes:
        if not remove.data_change and remove.key in ours:
            return FilesCompacted(f"version {winner.version} moved the rows of {remove.path}: plan again")
    return None


def without_undone_moves(winners: Sequence[CommitActions]) -> list[CommitActions]:
    """Return winners without removes of files that a later one has put back, both without a change of rows.

    That is what it is to undo a compaction: the same files hold the same rows again.
    """
    left: list[CommitActions] = []
    gone: dict[str, int] = {}
    for winner in winners:
        back = {add.key for add in winner.adds if not add.data_change and add.key in gone}
        for at in {gone.pop(key) for key in back}:
            left[at] = replace(left[at], removes=[each for each in left[at].removes if each.key not in back])
        gone |= {remove.key: len(left) for remove in winner.removes if not remove.data_change}
        left.append(winner)
    return left


CHECKS: tuple[Check, ...] = (
    table_dropped,
    protocol_changed,
    metadata_changed,
    transaction_recorded,
    domain_changed,
    rows_added,
    read_file_removed,
    file_removed_twice,
    file_compacted,
)


def find_conflict(attempt: Attempt, winner: CommitActions) -> Conflict | None:
    """Return the first rule that a winning commit breaks for an attempt, or None."""
    return next((conflict for check in CHECKS if (conflict := check(attempt, winner)) is not None), None)
