"""Replay a log: from a state and the commits after it to the next state. Pure.

Source: Delta protocol, "Action Reconciliation".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeVar

from alluvia.delta.log.actions import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.paths import commit_name
from alluvia.errors import Corrupt
from alluvia.lazy_dataclasses import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class State:
    """A table at one version. `timestamp_ms` is the version's in-commit timestamp, 0 if the log has none."""

    version: int
    protocol: Protocol
    metadata: Metadata
    timestamp_ms: int = 0
    files: ActionSet[AddFile] = field(default_factory=lambda: ActionSet(AddFile.from_json))
    tombstones: ActionSet[RemoveFile] = field(default_factory=lambda: ActionSet(RemoveFile.from_json))
    txns: Mapping[str, Txn] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)


def replay(start: State | None, commits: Sequence[CommitActions]) -> State:
    """Apply commits in order to the state before them (None before version 0).

    Raises `Corrupt` if a version is missing, or if there is no protocol or metadata at the end.
    """
    if start is not None and not commits:
        return start
    expected = 0 if start is None else start.version + 1
    for at, commit in enumerate(commits, expected):
        if commit.version != at:
            raise Corrupt(f"{commit_name(at)} is missing from the log")
    state = start if start is not None else _first(commits)
    last = commits[-1]
    return State(
        version=last.version,
        protocol=_latest([commit.protocol for commit in commits]) or state.protocol,
        metadata=_latest([commit.metadata for commit in commits]) or state.metadata,
        timestamp_ms=last.timestamp_ms,
        files=state.files.changed(_file_changes(commits)),
        tombstones=state.tombstones.changed(_tombstone_changes(commits)),
        txns={**state.txns, **{txn.app_id: txn for commit in commits for txn in commit.txns}},
        domains=_domains(state.domains, commits),
    )


def totals(state: State) -> tuple[int, int]:
    """Return how many data files a state has, and their bytes together, without opening a sidecar for it.

    They are right unless a commit after the checkpoint added a file again that the checkpoint has.
    """
    files = state.files
    if all(each.is_open for each in files.parts):
        return len(files), files.total("size")
    size = sum(part.size("size") for part in files.parts) + sum(file.size for file in files.added)
    for layer in files.layers:
        for key in layer.dropped:
            gone = state.tombstones.above(key) or files.above(key)
            size -= (gone.size or 0) if gone is not None else 0
    return files.expected_len, size


def _first(commits: Sequence[CommitActions]) -> State:
    protocol = _latest([commit.protocol for commit in commits])
    metadata = _latest([commit.metadata for commit in commits])
    if protocol is None or metadata is None:
        missing = "protocol" if protocol is None else "metaData"
        raise Corrupt(f"the log holds no {missing} action up to version {len(commits) - 1}")
    return State(-1, protocol, metadata)


def _latest(values: Sequence[T | None]) -> T | None:
    return next((value for value in reversed(values) if value is not None), None)


def _file_changes(commits: Sequence[CommitActions]) -> Iterator[tuple[str, AddFile | None]]:
    for commit in commits:
        for remove in commit.removes:
            yield remove.key, None
        for add in commit.adds:
            yield add.key, add


def _tombstone_changes(commits: Sequence[CommitActions]) -> Iterator[tuple[str, RemoveFile | None]]:
    for commit in commits:
        for remove in commit.removes:
            yield remove.key, remove
        for add in commit.adds:
            yield add.key, None


def _domains(before: Mapping[str, DomainMetadata], commits: Sequence[CommitActions]) -> dict[str, DomainMetadata]:
    domains = dict(before)
    for commit in commits:
        for domain in commit.domains:
            domains[domain.domain] = domain
            if domain.removed:
                del domains[domain.domain]
    return domains
