"""Which files of a log make a version, and the replay of them: from a state and later commits to the next state. Pure.

Source: Delta protocol, "Action Reconciliation".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeVar

from alluvia.delta.log.actions import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.paths import CheckpointFile, CommitFile, commit_name, parse_name
from alluvia.errors import Corrupt, VersionExpired, VersionNotFound
from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """The files to read: the parts of one checkpoint (none at the log's start) and the commits after it, in order.

    `witness` is the checkpoint's own version if its commit is still there, to compare it with.
    """

    version: int
    checkpoint: tuple[CheckpointFile, ...]
    commits: tuple[int, ...]
    witness: int | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """What a listing of a log found. `commits` and `checkpoints` are by version."""

    commits: Mapping[int, CommitFile] = field(default_factory=dict)
    checkpoints: Mapping[int, tuple[CheckpointFile, ...]] = field(default_factory=dict)

    @property
    def versions(self) -> range:
        """From the lowest to the highest version that any file names."""
        known = [*self.commits, *self.checkpoints]
        return range(min(known), max(known) + 1) if known else range(0)


def read_listing(names: Iterable[str]) -> Listing:
    """Sort out the names of a log folder; incomplete multi-part checkpoints are left out.

    Of several checkpoints of a version it takes the plainest: single file, then multi-part, then v2.
    """
    commits: dict[int, CommitFile] = {}
    candidates: dict[tuple[int, str, int], list[CheckpointFile]] = {}
    for name in names:
        file = parse_name(name)
        if isinstance(file, CommitFile):
            commits[file.version] = file
        elif file is not None:
            candidates.setdefault((file.version, name if file.v2 else "", file.parts), []).append(file)
    checkpoints: dict[int, tuple[CheckpointFile, ...]] = {}
    for (version, _, parts), files in sorted(candidates.items()):
        # A name may say that there are ten thousand million parts.
        whole = len(files) == parts and {file.part for file in files} == set(range(1, parts + 1))
        if whole and version not in checkpoints:
            checkpoints[version] = tuple(sorted(files, key=lambda file: file.part))
    return Listing(commits, checkpoints)


class CommitMissing(Corrupt):
    """The log has no commit of some version, though it has older and newer ones."""


def taken_ms(stored_ms: Mapping[int, int]) -> dict[int, int]:
    """Return when commits were first put, by their versions, at most: given when the store took the present objects.

    An erasure writes commits again. A commit was there before any later version was, so it is no younger than those.
    """
    times: dict[int, int] = {}
    least = None
    for version in sorted(stored_ms, reverse=True):
        least = stored_ms[version] if least is None else min(least, stored_ms[version])
        times[version] = least
    return times


def find_segment(listing: Listing, version: int | None = None) -> Segment:
    """Choose the files that make a version, the newest by default.

    Raises `VersionNotFound` above the newest, `VersionExpired` below the oldest that can still be made, and
    `CommitMissing` where a commit in between is.
    """
    if not listing.versions:
        raise Corrupt("the log holds no commit and no checkpoint")
    newest = listing.versions[-1]
    wanted = newest if version is None else version
    if wanted > newest or wanted < 0:
        raise VersionNotFound(f"version {wanted} does not exist; the newest is {newest}")
    start = max((at for at in listing.checkpoints if at <= wanted), default=None)
    first = 0 if start is None else start + 1
    missing = next((at for at in range(first, wanted + 1) if at not in listing.commits), None)
    if missing is not None:
        oldest = oldest_version(listing)
        if start is None and oldest is not None and wanted < oldest:
            raise VersionExpired(f"version {wanted} has expired; the oldest version that can be read is {oldest}")
        raise CommitMissing(f"{commit_name(missing)} is missing from the log")
    checkpoint = () if start is None else listing.checkpoints[start]
    witness = start if start in listing.commits else None
    return Segment(wanted, checkpoint, tuple(range(first, wanted + 1)), witness)


def oldest_version(listing: Listing) -> int | None:
    """Return the lowest version that the files of a listing can still make."""
    if 0 in listing.commits:
        return 0
    return min(listing.checkpoints, default=None)


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
