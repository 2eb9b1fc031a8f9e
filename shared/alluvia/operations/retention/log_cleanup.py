"""Clean up the log: which of its files no retained version needs. Source: Delta protocol, "Metadata Cleanup"."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.commit.intents import pending
from alluvia.commit.versions import oldest_readable
from alluvia.delta.log.actions import DomainMetadata
from alluvia.delta.log.checkpoints.reader import Checkpoint
from alluvia.delta.log.log import Log
from alluvia.delta.log.paths import LOG_FOLDER, SIDECAR_FOLDER, CheckpointFile, parse_name
from alluvia.delta.log.replay import read_listing, taken_ms
from alluvia.delta.properties import OLDEST_READABLE
from alluvia.delta.protocols import has_domains
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ConcurrentDomain, MetadataChanged, ObjectNotFound, TransactionExpired
from alluvia.store import ObjectInfo

VACUUM = "VACUUM"
TRIES_MAX = 100


def settled(handle: TableHandle, operation: str) -> Snapshot:
    """Return the newest version of a table, after all transactions that claimed it were carried out or aborted.

    A commit does that: where there are claims, it records once more what is on record. It waits for a few seconds
    before it aborts a transaction.
    """
    snapshot = handle.newest(dropped=True)
    if not pending(snapshot.state.domains):
        return snapshot
    record_oldest(handle, 0, fence=True, operation=operation)
    return handle.newest(dropped=True)


def record_oldest(handle: TableHandle, oldest: int, *, fence: bool, operation: str = VACUUM) -> None:
    """Commit the oldest version that stays readable, so that a reader of an older one learns it by name.

    With `fence`, commit in any case: a writer that slept since long before then finds its version taken. Where another
    vacuum, or a change of the table, comes first, this looks again.
    """
    for tries in range(1, TRIES_MAX + 1):
        snapshot = handle.newest(dropped=True)
        known = oldest_readable(snapshot.state)
        if oldest <= known and not fence:
            return
        try:
            handle.transaction(snapshot, upkeep=True).commit(_record(snapshot, max(oldest, known), operation))
        except (ConcurrentDomain, MetadataChanged, TransactionExpired):
            if tries == TRIES_MAX:
                raise
        else:
            return


def _record(snapshot: Snapshot, oldest: int, operation: str) -> Changes:
    changes = Changes(operation, {"oldestReadableVersion": str(oldest)})
    if has_domains(snapshot.protocol):
        changes.domains = [DomainMetadata(OLDEST_READABLE, str(oldest))]
    else:
        metadata = snapshot.state.metadata
        configuration = {**metadata.configuration, OLDEST_READABLE: str(oldest)}
        changes.metadata = replace(metadata, configuration=configuration)
    return changes


_CHECKSUM = re.compile(r"^(\d{20})\.crc$")
_COMPACTED = re.compile(r"^(\d{20})\.\d{20}\.compacted\.json$")


def expired_log(files: Iterable[ObjectInfo], before_ms: int, broken: Collection[int] = ()) -> list[ObjectInfo]:
    """Choose the log files below the newest checkpoint at or below the cut-off's version; it stays, with its commit.

    The cut-off's version is the one that was current at `before_ms`. The checkpoint itself must be as old: until then
    there are handles that use the one before it, and may name its sidecars again. `broken` are versions whose
    checkpoints cannot be read. Pure.
    """
    known = {info.key.removeprefix(LOG_FOLDER): info for info in files}
    kept = kept_checkpoint(known, before_ms, broken)
    return [] if not kept else [info for name, info in known.items() if _expires_below(name, kept[0].version)]


def kept_checkpoint(
    known: Mapping[str, ObjectInfo], before_ms: int, broken: Collection[int] = ()
) -> tuple[CheckpointFile, ...]:
    """Return the checkpoint below which a clean-up deletes the log, of files by their names; none if there is none."""
    listing = read_listing(known)
    commits = taken_ms({version: known[file.name].modified_ms for version, file in listing.commits.items()})
    young = min((version for version, ms in commits.items() if ms >= before_ms), default=None)
    current = max(commits, default=-1) if young is None else young - 1
    old = {
        version
        for version, parts in listing.checkpoints.items()
        if all(known[part.name].modified_ms <= before_ms for part in parts) and version not in broken
    }
    keep = max((version for version in old if version <= current), default=None)
    return () if keep is None else listing.checkpoints[keep]


def broken_checkpoints(log: Log, files: Iterable[ObjectInfo], before_ms: int) -> set[int]:
    """Return versions of checkpoints that would be kept, and cannot be read: the commits below them must stay.

    No request where the log was read from the one that is kept, or a later one.
    """
    known = {info.key.removeprefix(LOG_FOLDER): info for info in files}
    broken: set[int] = set()
    while parts := kept_checkpoint(known, before_ms, broken):
        if parts[0].version <= (log.checkpoint_version or 0) or log.can_read(parts):
            break
        broken.add(parts[0].version)
    return broken


def _expires_below(name: str, keep: int) -> bool:
    """Whether a log file is not needed for any version from `keep` on, which has a checkpoint."""
    if match := _CHECKSUM.match(name):
        return int(match[1]) < keep
    if match := _COMPACTED.match(name):
        return int(match[1]) <= keep
    file = parse_name(name)
    return file is not None and file.version < keep


def unnamed_sidecars(files: Iterable[ObjectInfo], named: Collection[str], before_ms: int) -> list[ObjectInfo]:
    """Choose the sidecars that no retained checkpoint names and that no checkpoint in the making can mean. Pure."""
    sidecars = (info for info in files if info.key.startswith(SIDECAR_FOLDER))
    return [info for info in sidecars if info.key not in named and info.modified_ms < before_ms]


def named_sidecars(
    log: Log, files: Iterable[ObjectInfo], expired: Iterable[ObjectInfo], before_ms: int
) -> frozenset[str]:
    """Return the sidecars that checkpoints name which have not expired: one GET for each, if a sidecar is old enough.

    Raises `Corrupt` for a checkpoint that cannot be read: it cannot be told which sidecars it needs.
    """
    known = list(files)
    if not any(info.key.startswith(SIDECAR_FOLDER) and info.modified_ms < before_ms for info in known):
        return frozenset()
    gone = {info.key for info in expired}
    named: set[str] = set()
    for info in known:
        file = parse_name(info.key.removeprefix(LOG_FOLDER))
        if isinstance(file, CheckpointFile) and file.parts == 1 and info.key not in gone:
            try:
                data = log.store.get(log.root + info.key)
            except ObjectNotFound:  # another clean-up was faster
                continue
            named |= {sidecar.name for sidecar in Checkpoint(file.version, [(info.key, data)]).sidecars}
    return frozenset(named)
