"""Vacuum: deleting what no retained version needs. Data files by reference, the log by age; nothing by clock alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

from alluvia.errors import ConcurrentDomain, Invalid, MetadataChanged, VersionExpired, VersionNotFound
from alluvia.log.actions import AddFile, DomainMetadata, RemoveFile
from alluvia.log.paths import LOG_FOLDER, check_relative, parse_name
from alluvia.log.replay import State
from alluvia.log.segment import read_listing
from alluvia.operations.change_files import CHANGE_FOLDER
from alluvia.operations.checkpoint import checkpoint
from alluvia.operations.drop import old_hints
from alluvia.operations.log_cleanup import expired_log, named_sidecars, unnamed_sidecars
from alluvia.store import ObjectInfo
from alluvia.table.deletion_vectors import stored_vector
from alluvia.table.handle import TableHandle, oldest_readable
from alluvia.table.hive import is_hidden
from alluvia.table.lineage import is_dropped
from alluvia.table.properties import OLDEST_READABLE
from alluvia.table.protocols import check_writable, has_domains
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Changes
from alluvia.table.window import index_name

ORPHAN_AGE_MS_MIN = 24 * 60 * 60 * 1000
"""A file that no commit names is kept this long at least: longer than any transaction may take to name it."""
LOG_AGE_MS_MIN = 24 * 60 * 60 * 1000
"""Commits are kept this long at least, whatever the property says: longer than a handle follows the log from one
version, and a transaction lasts, which could otherwise write a version that has come and gone."""
TRIES_MAX = 100


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What vacuum deleted, or would delete. Sizes in bytes; `oldest_version` is the oldest that can be read after.

    `data_files` has deletion vectors too, `change_files` what is below `_change_data`.
    """

    dry_run: bool
    data_files: tuple[str, ...]
    orphans: tuple[str, ...]
    log_files: tuple[str, ...]
    bytes_freed: int
    oldest_version: int
    change_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VacuumPlan:
    """Objects below the table's root; `removed_ms` is when the last of the data files was removed, None if none was."""

    data_files: tuple[ObjectInfo, ...]
    orphans: tuple[ObjectInfo, ...]
    log_files: tuple[ObjectInfo, ...]
    removed_ms: int | None
    change_files: tuple[ObjectInfo, ...] = ()

    @property
    def objects(self) -> tuple[ObjectInfo, ...]:
        """Return all that goes, the log last: what names a file outlives the file."""
        return (*self.data_files, *self.orphans, *self.change_files, *self.log_files)

    def without(self, state: State) -> VacuumPlan:
        """Return the plan without what has come back since it was made, be it for a while.

        A restore may have won before its record, or the commit that an orphan was written for.
        """
        kept = live_paths(state)
        removed_ms = self.removed_ms or 0
        kept |= {path for file in state.tombstones if file.deletion_timestamp > removed_ms for path in _paths(file)}
        named = {path for file in state.tombstones for path in _paths(file)}
        data_files = tuple(info for info in self.data_files if info.key not in kept)
        orphans = tuple(info for info in self.orphans if info.key not in kept and info.key not in named)
        return replace(self, data_files=data_files, orphans=orphans)


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Times in ms: files removed, orphans last written, and log files written before them go."""

    removed: int
    orphans: int
    log: int


def plan_vacuum(
    state: State, objects: Iterable[ObjectInfo], cutoffs: Cutoffs, sidecars_named: Collection[str] | None = None
) -> VacuumPlan:
    """Choose what goes from all objects below a table's root (their keys relative to it). Pure.

    A data file goes when it was removed before the cut-off; a file that nothing names when it was last written before
    its own. Files of changes go with the retention of removed files, but no sooner than orphans. Other folders whose
    name starts with `_` or `.` hold no data files. Sidecars of checkpoints go unless they are among `sidecars_named`;
    all of them stay where that is not known.
    """
    live = live_paths(state)
    dead: dict[str, int] = {}
    for file in state.tombstones:
        for path in _paths(file):
            if path not in live:
                dead[path] = max(dead.get(path, 0), file.deletion_timestamp)
    data_files, orphans, log_files, change_files = [], [], [], []
    for info in objects:
        if info.key.startswith(LOG_FOLDER):
            log_files.append(info)
        elif info.key.startswith(CHANGE_FOLDER):
            if info.modified_ms < min(cutoffs.removed, cutoffs.orphans):
                change_files.append(info)
        elif is_hidden(info.key) or info.key in live:
            continue
        elif info.key in dead:
            if dead[info.key] < cutoffs.removed:
                data_files.append(info)
        elif info.modified_ms < cutoffs.orphans:
            orphans.append(info)
    expired = expired_log(log_files, cutoffs.log)
    if sidecars_named is not None:
        expired += unnamed_sidecars(log_files, sidecars_named, cutoffs.log)
    removed_ms = max((dead[info.key] for info in data_files), default=None)
    return VacuumPlan(tuple(data_files), tuple(orphans), tuple(expired), removed_ms, tuple(change_files))


def live_paths(state: State) -> set[str]:
    """Return the paths of what a version needs. Raises `Unsupported` for an absolute one, which may lie anywhere."""
    return {check_relative(path) for file in state.files for path in _paths(file)}


def _paths(file: AddFile | RemoveFile) -> list[str]:
    """Return the path of a data file, and that of its deletion vector if that is in a file of its own."""
    stored = None if file.deletion_vector is None else stored_vector(file.deletion_vector)
    return [file.path] if stored is None else [file.path, stored.path]


def vacuum(handle: TableHandle, retention: timedelta | None = None, *, dry_run: bool = False) -> VacuumReport:
    """Delete data files that were removed longer ago than `retention` (the table's own by default), orphans, old log.

    Orphans, files that no commit names, are kept for a day at least, whatever the retention: a transaction may be about
    to name them. Before anything goes, a commit records the oldest version that stays readable; before orphans go there
    is one in any case, so that whoever still means to name one loses a race, and learns that it is too old. One LIST
    request per 1,000 objects, one DELETE per 1,000 that go. Raises `Invalid` for a negative retention.
    """
    now_ms = handle.clock.now_ms()
    # The listing comes first: whatever it holds that was ever committed, the version read after it knows.
    objects = [replace(info, key=info.key[len(handle.root) :]) for info in handle.store.list(handle.root)]
    snapshot = handle.newest(dropped=True)
    check_writable(snapshot.state.protocol, snapshot.state.metadata)
    retention_ms = snapshot.settings.file_retention_ms if retention is None else _milliseconds(retention)
    cutoffs = Cutoffs(
        removed=now_ms - retention_ms if retention_ms else max(now_ms, snapshot.timestamp_ms) + 1,
        orphans=now_ms - max(retention_ms, ORPHAN_AGE_MS_MIN),
        log=now_ms - max(snapshot.settings.log_retention_ms, LOG_AGE_MS_MIN),
    )
    log_files = [info for info in objects if info.key.startswith(LOG_FOLDER)]
    named = named_sidecars(handle.log, log_files, expired_log(log_files, cutoffs.log))
    plan = plan_vacuum(snapshot.state, objects, cutoffs, named)
    oldest = _oldest_after(handle, snapshot, objects, plan, cutoffs)
    hints = old_hints(objects, cutoffs.orphans)
    if not dry_run and (plan.objects or hints):
        _record_oldest(handle, oldest, fence=bool(plan.orphans or hints))
        plan = plan.without(handle.newest(dropped=True).state)
        handle.store.delete([handle.root + info.key for info in plan.objects])
        _delete_indexes(handle, plan)
    if not dry_run:
        handle.store.sweep(handle.root, cutoffs.orphans)
        if is_dropped(snapshot.properties):
            checkpoint(handle, dropped=True)
        else:
            handle.store.delete([handle.root + key for key in hints])
    return VacuumReport(
        dry_run,
        tuple(info.key for info in plan.data_files),
        tuple(info.key for info in plan.orphans),
        tuple(info.key for info in plan.log_files),
        sum(info.size for info in plan.objects),
        oldest,
        tuple(info.key for info in plan.change_files),
    )


def _oldest_after(
    handle: TableHandle, snapshot: Snapshot, objects: Iterable[ObjectInfo], plan: VacuumPlan, cutoffs: Cutoffs
) -> int:
    """Return the oldest version that can be read once the plan is done.

    Our commits give a tombstone their own timestamp, so the time of the last removal names its version. Where others
    write too, their tombstones say less: then whatever is older than the retention has expired. A checkpoint drops
    tombstones that are older than the table's retention, so an orphan may have been part of a version up to then.
    """
    oldest = oldest_readable(snapshot.state)
    if plan.log_files:
        gone = {info.key for info in plan.log_files}
        left = read_listing(info.key.removeprefix(LOG_FOLDER) for info in objects if info.key not in gone).commits
        oldest = max(oldest, min(left, default=snapshot.version))
    moments = [] if plan.removed_ms is None else [plan.removed_ms]
    if plan.orphans and handle.log.checkpoint_version is not None:
        moments.append(handle.clock.now_ms() - snapshot.settings.file_retention_ms)
    exact = snapshot.settings.in_commit_timestamps and snapshot.settings.writers == "alluvia"
    if not exact and (plan.data_files or plan.orphans):
        moments.append(cutoffs.removed)
    return max(oldest, _version_at(handle, max(moments))) if moments else oldest


def _version_at(handle: TableHandle, moment_ms: int) -> int:
    """Return the version that was current at a moment; 0 before the oldest that the log still holds."""
    try:
        return handle.log.version_at(moment_ms)
    except (VersionExpired, VersionNotFound):
        return 0


def _milliseconds(retention: timedelta) -> int:
    if retention < timedelta(0):
        msg = f"retention: {retention} is negative; give how long removed files are kept"
        raise Invalid(msg)
    return int(retention / timedelta(milliseconds=1))


def _record_oldest(handle: TableHandle, oldest: int, *, fence: bool) -> None:
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
            handle.transaction(snapshot).commit(_record(snapshot, max(oldest, known)))
        except (ConcurrentDomain, MetadataChanged):
            if tries == TRIES_MAX:
                raise
        else:
            return


def _record(snapshot: Snapshot, oldest: int) -> Changes:
    changes = Changes("VACUUM", {"oldestReadableVersion": str(oldest)})
    if has_domains(snapshot.protocol):
        changes.domains = [DomainMetadata(OLDEST_READABLE, str(oldest))]
    else:
        metadata = snapshot.state.metadata
        configuration = {**metadata.configuration, OLDEST_READABLE: str(oldest)}
        changes.metadata = replace(metadata, configuration=configuration)
    return changes


def _delete_indexes(handle: TableHandle, plan: VacuumPlan) -> None:
    """Delete the windows of event ids beside checkpoints that are gone."""
    gone = {
        file.version
        for info in plan.log_files
        if (file := parse_name(info.key.removeprefix(LOG_FOLDER))) is not None and info.key.endswith(".parquet")
    }
    if gone:
        handle.store.delete([handle.root + index_name(version) for version in sorted(gone)])
