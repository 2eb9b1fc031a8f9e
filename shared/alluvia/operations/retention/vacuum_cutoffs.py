"""From when on vacuum may take what: by retention, by the times of commits, and by who owns the files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from alluvia.commit.handle import TableHandle
from alluvia.commit.versions import oldest_readable
from alluvia.delta.log.actions import RemoveFile
from alluvia.delta.log.features import GUARD
from alluvia.delta.log.log import version_at
from alluvia.delta.log.paths import LOG_FOLDER
from alluvia.delta.log.replay import read_listing, taken_ms
from alluvia.delta.properties import CLONE_OF
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, VersionExpired, VersionNotFound
from alluvia.operations.checkpointing import tombstones_after_ms
from alluvia.operations.retention.vacuum_plan import Cutoffs, LogPlan, VacuumPlan
from alluvia.store import ObjectInfo

ORPHAN_AGE_MS_MIN = 24 * 60 * 60 * 1000
"""A file that no commit names is kept at least this long: longer than any transaction may take to commit it."""
LOG_AGE_MS_MIN = 24 * 60 * 60 * 1000
"""Commits are kept this long at least, whatever the property says: longer than a handle follows the log from one
version, and a transaction lasts, which could otherwise write a version that has come and gone."""


def cutoffs_of(snapshot: Snapshot, retention: timedelta | None, now_ms: int) -> Cutoffs:
    """Return the moments that `retention`, by default the table's own, makes. Raises `Invalid` for a negative one."""
    settings = snapshot.settings
    retention_ms = settings.file_retention_ms if retention is None else _milliseconds(retention)
    return Cutoffs(
        removed=now_ms - retention_ms if retention_ms else max(now_ms, snapshot.timestamp_ms) + 1,
        orphans=now_ms - max(retention_ms, ORPHAN_AGE_MS_MIN),
        ids=now_ms - ORPHAN_AGE_MS_MIN - settings.dedup_window_ms,
        log=now_ms - max(settings.log_retention_ms, LOG_AGE_MS_MIN) if settings.cleans_log else 0,
        now=now_ms,
    )


def forgotten_removes(
    handle: TableHandle, snapshot: Snapshot, log_files: Sequence[ObjectInfo], since_ms: int, ahead_ms: int
) -> list[RemoveFile]:
    """Return the removes since a moment that checkpoints have dropped: those older than the table's own retention.

    `ahead_ms` is how much longer there may be new checkpoints. None, and no request, unless more is asked for than the
    table's own retention keeps.
    """
    if tombstones_after_ms(snapshot, handle.clock.now_ms() + ahead_ms) <= since_ms:
        return []
    commits = handle.log.read_commits(_put_since(log_files, since_ms))
    return [remove for commit in commits for remove in commit.removes]


def in_effect(handle: TableHandle, snapshot: Snapshot, log_files: Sequence[ObjectInfo], before_ms: int) -> int:
    """Return the moment, by what commits say, before which removals had taken effect at another.

    A commit that was made then may have been put hours later: files that it removed were live until then. One GET,
    where a commit was put since.
    """
    young = _put_since(log_files, before_ms) if _is_exact(snapshot) else []
    commit = handle.log.read_commit(young[0]) if young else None
    return before_ms if commit is None else min(before_ms, commit.timestamp_ms)


def _put_since(log_files: Sequence[ObjectInfo], since_ms: int) -> list[int]:
    times = {info.key.removeprefix(LOG_FOLDER): info.modified_ms for info in log_files}
    every = taken_ms({version: times[file.name] for version, file in read_listing(times).commits.items()})
    return [version for version, ms in sorted(every.items()) if ms >= since_ms]


def _is_exact(snapshot: Snapshot) -> bool:
    """Whether tombstones have the times of the commits that made them: only this library writes the table."""
    return snapshot.settings.in_commit_timestamps and GUARD in (snapshot.protocol.writer_features or ())


def oldest_after(
    handle: TableHandle,
    snapshot: Snapshot,
    log_files: Sequence[ObjectInfo],
    plan: VacuumPlan,
    log_plan: LogPlan,
    cutoffs: Cutoffs,
) -> int:
    """Return the oldest version that can be read once the plans are done.

    Our commits give a tombstone their own timestamp, so the time of the last removal names its version. Where others
    write too, their tombstones say less: then whatever is older than the retention has expired. A checkpoint drops
    tombstones that are older than the table's retention, so an orphan may have been part of a version up to then. Of a
    shallow clone, whatever is older than the retention has expired: it may need files that others delete.
    """
    oldest = oldest_readable(snapshot.state)
    data_files, orphans = len(plan.data_files), len(plan.orphans)
    if log_plan.log_files:
        gone = {info.key for info in log_plan.log_files} | log_plan.spared
        left = read_listing(info.key.removeprefix(LOG_FOLDER) for info in log_files if info.key not in gone).commits
        oldest = max(oldest, min(left, default=snapshot.version))
    moments = [] if plan.removed_ms is None else [plan.removed_ms]
    if orphans and handle.log.checkpoint_version is not None:
        moments.append(tombstones_after_ms(snapshot, handle.clock.now_ms()))
    if (not _is_exact(snapshot) and (data_files or orphans)) or CLONE_OF in snapshot.properties:
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
