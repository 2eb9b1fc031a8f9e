"""Vacuum: deleting what no retained version needs. Data files by reference, the log by age; nothing by clock alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

from alluvia.errors import Invalid
from alluvia.log.actions import DomainMetadata
from alluvia.log.paths import LOG_FOLDER, parse_name
from alluvia.log.replay import State
from alluvia.log.segment import read_listing
from alluvia.store import ObjectInfo
from alluvia.table.handle import TableHandle, oldest_readable
from alluvia.table.properties import OLDEST_READABLE
from alluvia.table.protocols import check_writable, has_domains
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Changes
from alluvia.table.window import index_name

ORPHAN_AGE_MS_MIN = 24 * 60 * 60 * 1000
"""A file that no commit names is kept this long at least: longer than any transaction may take to name it."""


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What vacuum deleted, or would delete. Sizes in bytes; `oldest_version` is the oldest that can be read after."""

    dry_run: bool
    data_files: tuple[str, ...]
    orphans: tuple[str, ...]
    log_files: tuple[str, ...]
    bytes_freed: int
    oldest_version: int


@dataclass(frozen=True, slots=True)
class VacuumPlan:
    """Objects below the table's root; `removed_ms` is when the last of the data files was removed, None if none was."""

    data_files: tuple[ObjectInfo, ...]
    orphans: tuple[ObjectInfo, ...]
    log_files: tuple[ObjectInfo, ...]
    removed_ms: int | None

    @property
    def objects(self) -> tuple[ObjectInfo, ...]:
        """Return all that goes, the log last: what names a file outlives the file."""
        return (*self.data_files, *self.orphans, *self.log_files)


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Times in ms: files removed, orphans last written, and log files written before them go."""

    removed: int
    orphans: int
    log: int


def plan_vacuum(state: State, objects: Iterable[ObjectInfo], cutoffs: Cutoffs) -> VacuumPlan:
    """Choose what goes from all objects below a table's root (their keys relative to it). Pure.

    A data file goes when it was removed before the cut-off; a file that nothing names when it was last written before
    its own. Folders whose name starts with `_` or `.` hold no data files.
    """
    live = {file.path for file in state.files}
    dead = {file.path: file.deletion_timestamp for file in state.tombstones if file.path not in live}
    data_files, orphans, log_files = [], [], []
    for info in objects:
        if info.key.startswith(LOG_FOLDER):
            log_files.append(info)
        elif info.key.startswith(("_", ".")) or info.key in live:
            continue
        elif info.key in dead:
            if dead[info.key] < cutoffs.removed:
                data_files.append(info)
        elif info.modified_ms < cutoffs.orphans:
            orphans.append(info)
    expired = expired_log(log_files, cutoffs.log)
    removed_ms = max((dead[info.key] for info in data_files), default=None)
    return VacuumPlan(tuple(data_files), tuple(orphans), tuple(expired), removed_ms)


def expired_log(files: Iterable[ObjectInfo], before_ms: int) -> list[ObjectInfo]:
    """Choose the log files below the newest checkpoint at or below the cut-off's version; it stays, with its commit.

    The cut-off's version is the one that was current at `before_ms`. Source: Delta protocol, "Metadata Cleanup".
    """
    known = {info.key.removeprefix(LOG_FOLDER): info for info in files}
    listing = read_listing(known)
    commits = [(known[file.name].modified_ms, version) for version, file in listing.commits.items()]
    young = min((version for modified_ms, version in commits if modified_ms >= before_ms), default=None)
    current = max((version for _, version in commits), default=-1) if young is None else young - 1
    keep = max((version for version in listing.checkpoints if version <= current), default=None)
    if keep is None:
        return []
    versions = {name: file.version for name in known if (file := parse_name(name)) is not None}
    return [known[name] for name, version in versions.items() if version < keep]


def vacuum(handle: TableHandle, retention: timedelta | None = None, *, dry_run: bool = False) -> VacuumReport:
    """Delete data files that were removed longer ago than `retention` (the table's own by default), orphans, old log.

    Orphans, files that no commit names, are kept for a day at least, whatever the retention: a transaction may be about
    to name them. Before anything goes, a commit records the oldest version that stays readable. One LIST request per
    1,000 objects, one DELETE per 1,000 that go. Raises `Invalid` for a negative retention.
    """
    snapshot = handle.newest()
    check_writable(snapshot.state.protocol, snapshot.state.metadata)
    now_ms = handle.clock.now_ms()
    retention_ms = snapshot.settings.file_retention_ms if retention is None else _milliseconds(retention)
    cutoffs = Cutoffs(
        removed=now_ms - retention_ms + (1 if retention_ms == 0 else 0),
        orphans=now_ms - max(retention_ms, ORPHAN_AGE_MS_MIN),
        log=now_ms - snapshot.settings.log_retention_ms,
    )
    objects = [replace(info, key=info.key[len(handle.root) :]) for info in handle.store.list(handle.root)]
    plan = plan_vacuum(snapshot.state, objects, cutoffs)
    oldest = _oldest_after(handle, snapshot, plan, cutoffs)
    if not dry_run and plan.objects:
        _record_oldest(handle, oldest)
        handle.store.delete([handle.root + info.key for info in plan.objects])
        _delete_indexes(handle, plan)
    return VacuumReport(
        dry_run,
        tuple(info.key for info in plan.data_files),
        tuple(info.key for info in plan.orphans),
        tuple(info.key for info in plan.log_files),
        sum(info.size for info in plan.objects),
        oldest,
    )


def _oldest_after(handle: TableHandle, snapshot: Snapshot, plan: VacuumPlan, cutoffs: Cutoffs) -> int:
    """Return the oldest version that can be read once the plan is done.

    Our commits give a tombstone their own timestamp, so the time of the last removal names its version. Where others
    write too, their tombstones and dropped tombstones say less: then whatever is older than the retention has expired.
    """
    oldest = oldest_readable(snapshot.state)
    if plan.log_files:
        kept = read_listing(
            info.key.removeprefix(handle.root + LOG_FOLDER) for info in handle.store.list(handle.root + LOG_FOLDER)
        )
        gone = {info.key.removeprefix(LOG_FOLDER) for info in plan.log_files}
        left = [file.version for file in kept.commits.values() if file.name not in gone]
        oldest = max(oldest, min(left, default=snapshot.version))
    if snapshot.settings.in_commit_timestamps and snapshot.settings.writers == "alluvia":
        return oldest if plan.removed_ms is None else max(oldest, handle.log.version_at(plan.removed_ms))
    if plan.data_files or plan.orphans:
        return max(oldest, handle.log.version_at(min(cutoffs.removed, handle.clock.now_ms())))
    return oldest


def _milliseconds(retention: timedelta) -> int:
    if retention < timedelta(0):
        msg = f"retention: {retention} is negative; give how long removed files are kept"
        raise Invalid(msg)
    return int(retention / timedelta(milliseconds=1))


def _record_oldest(handle: TableHandle, oldest: int) -> None:
    """Commit the oldest version that stays readable, so that a reader of an older one learns it by name."""
    snapshot = handle.newest()
    if oldest <= oldest_readable(snapshot.state):
        return
    changes = Changes("VACUUM", {"oldestReadableVersion": str(oldest)})
    if has_domains(snapshot.protocol):
        changes.domains = [DomainMetadata(OLDEST_READABLE, str(oldest))]
    else:
        metadata = snapshot.state.metadata
        configuration = {**metadata.configuration, OLDEST_READABLE: str(oldest)}
        changes.metadata = replace(metadata, configuration=configuration)
    handle.transaction(snapshot).commit(changes)


def _delete_indexes(handle: TableHandle, plan: VacuumPlan) -> None:
    """Delete the windows of event ids beside checkpoints that are gone."""
    gone = {
        file.version
        for info in plan.log_files
        if (file := parse_name(info.key.removeprefix(LOG_FOLDER))) is not None and info.key.endswith(".parquet")
    }
    if gone:
        handle.store.delete([handle.root + index_name(version) for version in sorted(gone)])
