"""A table's state as verify makes it, commit by commit, with when each file came and went. Pure.

Source: Delta protocol, "Action Reconciliation".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from alluvia.delta.log.actions import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.replay import State
from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommitOrigin:
    """The commit that added a file or removed it; `timestamp_ms` 0 where it does not say."""

    version: int
    timestamp_ms: int
    data_change: bool


@dataclass(slots=True)
class Replay:
    """A state that changes with each commit. `version` -1 is the empty start.

    `base` is the version of the checkpoint that it started from, -1 where it started from nothing. Files and
    tombstones that came with that checkpoint have no origin.
    """

    version: int = -1
    base: int = -1
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    files: dict[str, AddFile] = field(default_factory=dict)
    tombstones: dict[str, RemoveFile] = field(default_factory=dict)
    txns: dict[str, Txn] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    added: dict[str, CommitOrigin] = field(default_factory=dict)
    removed: dict[str, CommitOrigin] = field(default_factory=dict)

    def take(self, commit: CommitActions) -> list[RemoveFile]:
        """Apply the next commit; return its removes of files that were neither live nor ever heard of as removed."""
        strange = [remove for remove in commit.removes if remove.key not in self.files]
        for remove in commit.removes:
            self.files.pop(remove.key, None)
            self.added.pop(remove.key, None)
            self.tombstones[remove.key] = remove
            self.removed[remove.key] = CommitOrigin(commit.version, commit.timestamp_ms, remove.data_change)
        for add in commit.adds:
            known = self.added.get(add.key)
            if add.key not in self.files or known is None:
                self.added[add.key] = CommitOrigin(commit.version, commit.timestamp_ms, add.data_change)
            self.files[add.key] = add
            self.tombstones.pop(add.key, None)
            self.removed.pop(add.key, None)
        self.txns.update({txn.app_id: txn for txn in commit.txns})
        for domain in commit.domains:
            self.domains[domain.domain] = domain
            if domain.removed:
                del self.domains[domain.domain]
        self.protocol = commit.protocol or self.protocol
        self.metadata = commit.metadata or self.metadata
        self.version = commit.version
        return strange


def from_checkpoint(state: State, files: Iterable[AddFile], tombstones: Iterable[RemoveFile]) -> Replay:
    """Return the state that a checkpoint gives."""
    return Replay(
        state.version,
        state.version,
        state.protocol,
        state.metadata,
        {file.key: file for file in files},
        {file.key: file for file in tombstones},
        dict(state.txns),
        dict(state.domains),
    )
