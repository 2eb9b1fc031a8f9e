"""What a transaction is to commit, and the commit that it becomes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from alluvia.commit.reads import encode_reads
from alluvia.delta.log.actions import AddFile, CdcFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from alluvia.delta.log.commit import (
    ENABLED_TIMESTAMP,
    ENABLED_VERSION,
    Action,
    CommitActions,
    encode_commit,
    has_in_commit_timestamps,
)
from alluvia.delta.log.replay import State
from alluvia.delta.skipping.predicate import Predicate
from alluvia.lazy_dataclasses import dataclass
from alluvia.version import __version__

ENGINE = f"Alluvia/{__version__}"
RESTORE, UNDROP = "RESTORE", "UNDROP TABLE"
EXPIRE = "EXPIRE"
"""The operation of commits of expiry. Readers of changes know by it that their rows were not deleted."""


@dataclass(slots=True)
class Changes:
    """What a transaction will commit. `can_match`, `files_read` and `domains_read` are those of `Attempt`.

    `predicates` say what `can_match` tests: one of them holds for each row that was read. None if that is not known.
    `metrics` are numbers of the operation itself, besides those of its files; `info` is what commitInfo says besides.
    `metadata_at` gives the metadata by the version that the changes become, where it depends on that.
    """

    operation: str
    parameters: dict[str, str] = field(default_factory=dict)
    adds: Sequence[AddFile] = ()
    removes: Sequence[RemoveFile] = ()
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    txns: Sequence[Txn] = ()
    domains: Sequence[DomainMetadata] = ()
    info: Mapping[str, Any] = field(default_factory=dict)
    can_match: Callable[[AddFile], bool] | None = None
    predicates: Sequence[Predicate] | None = None
    files_read: frozenset[str] = frozenset()
    cdc: Sequence[CdcFile] = ()
    metrics: Mapping[str, int] = field(default_factory=dict)
    domains_read: frozenset[str] = frozenset()
    metadata_at: Callable[[int], Metadata | None] | None = None

    @property
    def blind(self) -> bool:
        """Whether files are added that do not follow from rows of the table, and none is removed."""
        return not self.removes and self.can_match is None and bool(self.adds)

    @property
    def only_appends(self) -> bool:
        """Whether nothing but rows is added, whatever the table holds."""
        others = (self.metadata, self.protocol, *self.domains, *self.cdc, *self.files_read, *self.domains_read)
        return self.blind and not any(others)


def prepare(
    changes: Changes, state: State, txn_id: str, now_ms: int, takes_effect: int, *, with_reads: bool
) -> CommitActions:
    """Return the commit that follows a state with some changes, which become the version `takes_effect`.

    `with_reads`: it says what the changes rest on.
    """
    timestamp_ms = now_ms
    info: dict[str, Any] = {
        "timestamp": now_ms,
        "operation": changes.operation,
        "operationParameters": changes.parameters,
        "readVersion": max(state.version, 0),
        "isBlindAppend": changes.blind,
        "engineInfo": ENGINE,
        "txnId": txn_id,
        "operationMetrics": _metrics(changes),
    }
    metadata = changes.metadata if changes.metadata_at is None else changes.metadata_at(takes_effect)
    protocol = changes.protocol or state.protocol
    if has_in_commit_timestamps(protocol, metadata or state.metadata):
        info = {"inCommitTimestamp": max(now_ms, state.timestamp_ms + 1), **info}
        timestamp_ms = int(info["inCommitTimestamp"])
        if metadata is not None and not has_in_commit_timestamps(state.protocol, state.metadata):
            metadata = timed_from(metadata, state.version + 1, timestamp_ms)
    if with_reads and changes.can_match is not None:
        info.update(encode_reads(changes.predicates, changes.files_read - {remove.key for remove in changes.removes}))
    info.update(changes.info)
    removes = [replace(remove, deletion_timestamp=timestamp_ms) for remove in changes.removes]
    return CommitActions(
        state.version + 1,
        info,
        changes.protocol,
        metadata,
        changes.txns,
        changes.domains,
        changes.adds,
        removes,
        changes.cdc,
    )


def timed_from(metadata: Metadata, version: int, timestamp_ms: int) -> Metadata:
    """Return metadata that says from which commit on there are in-commit timestamps, where that is not the first."""
    since = {ENABLED_VERSION: str(version), ENABLED_TIMESTAMP: str(timestamp_ms)}
    return replace(metadata, configuration={**metadata.configuration, **since})


def encode(commit: CommitActions) -> bytes:
    """Return a commit as the bytes of its file."""
    actions: list[Action] = [single for single in (commit.protocol, commit.metadata) if single is not None]
    for several in (commit.txns, commit.domains, commit.removes, commit.adds, commit.cdc):
        actions.extend(several)
    return encode_commit(commit.info, actions)


def _metrics(changes: Changes) -> dict[str, str]:
    metrics = {
        "numFiles": len(changes.adds),
        "numOutputRows": sum(file.num_records or 0 for file in changes.adds),
        "numOutputBytes": sum(file.size for file in changes.adds),
    }
    if changes.removes:
        metrics["numRemovedFiles"] = len(changes.removes)
    return {name: str(value) for name, value in (metrics | dict(changes.metrics)).items()}
