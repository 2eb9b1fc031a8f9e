"""What vacuum deletes: data files by reference, log files by age, and nothing because of a clock alone. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from alluvia.errors import Unsupported
from alluvia.log.actions import AddFile, RemoveFile
from alluvia.log.paths import LOG_FOLDER
from alluvia.operations.change_files import CHANGE_FOLDER
from alluvia.operations.log_cleanup import expired_log, unnamed_sidecars
from alluvia.store import ObjectInfo
from alluvia.table.deletion_vectors.descriptors import stored_vector
from alluvia.table.partitioning.hive import is_hidden
from alluvia.table.snapshot import Snapshot


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
        """Return everything to delete, the log last: whatever names a file outlives the file."""
        return (*self.data_files, *self.orphans, *self.change_files, *self.log_files)

    def without(self, newest: Snapshot) -> VacuumPlan:
        """Return the plan without files that came back since it was made, even temporarily.

        A restore may have won before its record, or the commit that an orphan was written for.
        """
        kept = live_keys(newest)
        removed_ms = self.removed_ms or 0
        dead = _removed(newest, newest.state.tombstones)
        kept |= {key for key, deleted_ms in dead.items() if deleted_ms > removed_ms}
        data_files = tuple(info for info in self.data_files if newest.root + info.key not in kept)
        orphans = tuple(
            info for info in self.orphans if newest.root + info.key not in kept and newest.root + info.key not in dead
        )
        return replace(self, data_files=data_files, orphans=orphans)


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Times in ms: files removed, orphans last written, and log files written before them are deleted."""

    removed: int
    orphans: int
    log: int


def plan_vacuum(
    snapshot: Snapshot,
    objects: Iterable[ObjectInfo],
    cutoffs: Cutoffs,
    sidecars_named: Collection[str] | None = None,
    forgotten: Iterable[RemoveFile] = (),
) -> VacuumPlan:
    """Choose what to delete from all objects below a table's root (their keys relative to it).

    A data file is deleted if it was removed before its cut-off, an orphan if it was last written before its own.
    `forgotten` are removes that are no longer tombstones. Files of changes have the retention of removed files, but are
    deleted no sooner than orphans. Other folders whose name starts with `_` or `.` hold no data files. Sidecars of
    checkpoints are deleted unless they are among `sidecars_named`; if that is not known, all of them stay.
    """
    live = live_keys(snapshot)
    dead = _removed(snapshot, (*snapshot.state.tombstones, *forgotten))
    data_files, orphans, log_files, change_files = [], [], [], []
    for info in objects:
        key = snapshot.root + info.key
        if info.key.startswith(LOG_FOLDER):
            log_files.append(info)
        elif info.key.startswith(CHANGE_FOLDER):
            if info.modified_ms < min(cutoffs.removed, cutoffs.orphans):
                change_files.append(info)
        elif is_hidden(info.key) or key in live:
            continue
        elif key in dead:
            if dead[key] < cutoffs.removed:
                data_files.append(info)
        elif info.modified_ms < cutoffs.orphans:
            orphans.append(info)
    expired = expired_log(log_files, cutoffs.log)
    if sidecars_named is not None:
        expired += unnamed_sidecars(log_files, sidecars_named, cutoffs.log)
    removed_ms = max((dead[snapshot.root + info.key] for info in data_files), default=None)
    return VacuumPlan(tuple(data_files), tuple(orphans), tuple(expired), removed_ms, tuple(change_files))


def live_keys(snapshot: Snapshot) -> set[str]:
    """Return the keys in the store of what a version needs, in the one form that a listing has.

    Raises `Unsupported` for a file that may lie anywhere.
    """
    return {snapshot.locate(path) for file in snapshot.files for path in _paths(file)}


def _removed(snapshot: Snapshot, files: Iterable[RemoveFile]) -> dict[str, int]:
    """Return when the files of some tombstones were removed, in ms, by their keys in the store."""
    found: dict[str, int] = {}
    for file in files:
        for path in _paths(file):
            try:
                key = snapshot.locate(path)
            except Unsupported:  # it is outside the lake, and so of what vacuum lists
                continue
            found[key] = max(found.get(key, 0), file.deletion_timestamp)
    return found


def _paths(file: AddFile | RemoveFile) -> list[str]:
    """Return the path of a data file, and that of its deletion vector if that is in a file of its own."""
    stored = None if file.deletion_vector is None else stored_vector(file.deletion_vector)
    return [file.path] if stored is None else [file.path, stored.path]
