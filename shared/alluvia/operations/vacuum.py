"""Vacuum: delete what no retained version needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from alluvia.errors import (
    ConcurrentDomain,
    Invalid,
    MetadataChanged,
    TransactionExpired,
    Unavailable,
    VersionExpired,
    VersionNotFound,
)
from alluvia.log.actions import DomainMetadata, RemoveFile
from alluvia.log.features import GUARD
from alluvia.log.paths import LOG_FOLDER, parse_name
from alluvia.log.segment import read_listing
from alluvia.log.time_travel import version_at
from alluvia.operations.checkpoint import checkpoint, tombstones_after_ms
from alluvia.operations.drop import old_hints
from alluvia.operations.log_cleanup import expired_log, named_sidecars
from alluvia.operations.vacuum_plan import Cutoffs, VacuumPlan, plan_vacuum
from alluvia.store import ObjectInfo
from alluvia.table.event_window.index import index_name
from alluvia.table.handle import TableHandle, oldest_readable
from alluvia.table.lineage import is_dropped
from alluvia.table.properties import OLDEST_READABLE
from alluvia.table.protocols import check_writable, has_domains
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Changes

ORPHAN_AGE_MS_MIN = 24 * 60 * 60 * 1000
"""A file that no commit names is kept at least this long: longer than any transaction may take to commit it."""
LOG_AGE_MS_MIN = 24 * 60 * 60 * 1000
"""Commits are kept this long at least, whatever the property says: longer than a handle follows the log from one
version, and a transaction lasts, which could otherwise write a version that has come and gone."""
PLAN_AGE_MS_MAX = 12 * 60 * 60 * 1000
"""A plan older than this is not executed: files added and removed since may be in no checkpoint any more."""
PLANS_MAX = 5
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
class _Work:
    """What a vacuum means to do: `oldest` is the version that will be the oldest to be read."""

    planned_ms: int
    snapshot: Snapshot
    cutoffs: Cutoffs
    plan: VacuumPlan
    oldest: int
    hints: list[str]


def vacuum(handle: TableHandle, retention: timedelta | None = None, *, dry_run: bool = False) -> VacuumReport:
    """Delete data files that were removed longer ago than `retention` (the table's own by default), orphans, old log.

    Orphans, files that no commit names, are kept for at least a day, because a transaction may be about to name them.
    Before anything is deleted, a commit records the oldest version that stays readable. Before orphans are deleted,
    there is always such a commit, so that a transaction that means to name one loses a race and learns that it is too
    old. One LIST request per 1,000 objects, one DELETE per 1,000 deleted ones. Raises `Invalid` for a negative
    retention, and `Unavailable` if planning alone takes half a day.
    """
    for _ in range(PLANS_MAX):
        work = _planned(handle, retention)
        plan = work.plan
        if dry_run:
            return _report(work, plan, dry_run=True)
        if plan.objects or work.hints:
            _record_oldest(handle, work.oldest, fence=bool(plan.orphans or work.hints))
            newest = handle.newest(dropped=True)
            if handle.clock.now_ms() - work.planned_ms > PLAN_AGE_MS_MAX:
                continue
            plan = plan.without(newest)
            handle.store.delete([handle.root + info.key for info in plan.objects])
            _delete_indexes(handle, plan)
        handle.store.sweep(handle.root, work.cutoffs.orphans)
        if is_dropped(work.snapshot.properties):
            checkpoint(handle, dropped=True)
        else:
            handle.store.delete([handle.root + key for key in work.hints])
        return _report(work, plan, dry_run=False)
    msg = f"vacuum of {handle.name} took longer than {PLAN_AGE_MS_MAX // 3_600_000} hours to plan, {PLANS_MAX} times"
    raise Unavailable(msg)


def _planned(handle: TableHandle, retention: timedelta | None) -> _Work:
    now_ms = handle.clock.now_ms()
    # The listing comes first: whatever it holds that was ever committed, the version read after it knows.
    objects = [replace(info, key=info.key[len(handle.root) :]) for info in handle.store.list(handle.root)]
    snapshot = handle.newest(dropped=True)
    check_writable(snapshot.state.protocol, snapshot.state.metadata)
    retention_ms = snapshot.settings.file_retention_ms if retention is None else _milliseconds(retention)
    cutoffs = Cutoffs(
        removed=now_ms - retention_ms if retention_ms else max(now_ms, snapshot.timestamp_ms) + 1,
        orphans=now_ms - max(retention_ms, ORPHAN_AGE_MS_MIN),
        log=now_ms - max(snapshot.settings.log_retention_ms, LOG_AGE_MS_MIN) if snapshot.settings.cleans_log else 0,
    )
    log_files = [info for info in objects if info.key.startswith(LOG_FOLDER)]
    named = named_sidecars(handle.log, log_files, expired_log(log_files, cutoffs.log))
    forgotten = _forgotten_removes(handle, snapshot, log_files, cutoffs.removed)
    plan = plan_vacuum(snapshot, objects, cutoffs, named, forgotten)
    if plan.data_files:
        cutoffs = replace(cutoffs, removed=_in_effect(handle, snapshot, log_files, cutoffs.removed))
        plan = plan_vacuum(snapshot, objects, cutoffs, named, forgotten)
    oldest = _oldest_after(handle, snapshot, objects, plan, cutoffs)
    return _Work(now_ms, snapshot, cutoffs, plan, oldest, old_hints(objects, cutoffs.orphans))


def _report(work: _Work, plan: VacuumPlan, *, dry_run: bool) -> VacuumReport:
    return VacuumReport(
        dry_run,
        tuple(info.key for info in plan.data_files),
        tuple(info.key for info in plan.orphans),
        tuple(info.key for info in plan.log_files),
        sum(info.size for info in plan.objects),
        work.oldest,
        tuple(info.key for info in plan.change_files),
    )


def _forgotten_removes(
    handle: TableHandle, snapshot: Snapshot, log_files: Sequence[ObjectInfo], since_ms: int
) -> list[RemoveFile]:
    """Return the removes since a moment that checkpoints have dropped: those older than the table's own retention.

    None, and no request, unless more is asked for than the table's own retention keeps.
    """
    if tombstones_after_ms(snapshot, handle.clock.now_ms()) <= since_ms:
        return []
    commits = handle.log.read_commits(_put_since(log_files, since_ms))
    return [remove for commit in commits for remove in commit.removes]


def _in_effect(handle: TableHandle, snapshot: Snapshot, log_files: Sequence[ObjectInfo], before_ms: int) -> int:
    """Return the moment, by what commits say, before which removals had taken effect at another.

    A commit that was made then may have been put hours later: files that it removed were live until then. One GET,
    where a commit was put since.
    """
    young = _put_since(log_files, before_ms) if _is_exact(snapshot) else []
    commit = handle.log.read_commit(young[0]) if young else None
    return before_ms if commit is None else min(before_ms, commit.timestamp_ms)


def _put_since(log_files: Sequence[ObjectInfo], since_ms: int) -> list[int]:
    times = {info.key.removeprefix(LOG_FOLDER): info.modified_ms for info in log_files}
    return [version for version, file in sorted(read_listing(times).commits.items()) if times[file.name] >= since_ms]


def _is_exact(snapshot: Snapshot) -> bool:
    """Whether tombstones have the times of the commits that made them: nobody writes the table but this library."""
    return snapshot.settings.in_commit_timestamps and GUARD in (snapshot.protocol.writer_features or ())


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
        moments.append(tombstones_after_ms(snapshot, handle.clock.now_ms()))
    if not _is_exact(snapshot) and (plan.data_files or plan.orphans):
        moments.append(cutoffs.removed)
    return max(oldest, _version_at(handle, max(moments))) if moments else oldest


def _version_at(handle: TableHandle, moment_ms: int) -> int:
    """Return the version that was current at a moment; 0 before the oldest that the log still holds."""
    try:
        return version_at(handle.log, moment_ms)
    except (VersionExpired, VersionNotFound):
        return 0


def _milliseconds(retention: object) -> int:
    if not isinstance(retention, timedelta):
        raise Invalid(f"retention: expected a timedelta, such as timedelta(days=7), got {retention!r:.100}")
    if retention < timedelta(0):
        raise Invalid(f"retention: {retention} is negative; set how long to keep removed files")
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
        except (ConcurrentDomain, MetadataChanged, TransactionExpired):
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
    """Delete the windows of event ids of checkpoints that are gone."""
    gone = {
        file.version
        for info in plan.log_files
        if (file := parse_name(info.key.removeprefix(LOG_FOLDER))) is not None and info.key.endswith(".parquet")
    }
    if gone:
        handle.store.delete([handle.root + index_name(version) for version in sorted(gone)])
