"""What vacuum deletes: data files by reference, log files by age, and nothing because of a clock alone. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.clock import moment
from alluvia.commit.event_window.id_files import ID_FOLDER
from alluvia.commit.event_window.index import index_version
from alluvia.delta.deletion_vectors.storage import whole
from alluvia.delta.log.paths import LOG_FOLDER, CheckpointFile, CommitFile, parse_name
from alluvia.delta.partitioning.values import HOLDS_NO_DATA
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.reading.change_files import CHANGE_FOLDER
from alluvia.operations.retention.log_cleanup import expired_log, unnamed_sidecars
from alluvia.operations.retention.path_hashes import hashed
from alluvia.operations.retention.vacuum_keys import Needed, key_range
from alluvia.store import ListedPage, ObjectInfo
from alluvia.store.base import restarted

LIVE, CLAIMED, REMOVED, YOUNG = "live", "claimed", "removed", "young"
CHANGES, LOG, OTHER = "changes", "log", "other"
KEEPERS = "keepers"
SCRATCH_FOLDER = "_alluvia/scratch/"
"""What jobs keep for a day at most."""
_AFTER_SLASH = chr(ord("/") + 1)


@dataclass(frozen=True, slots=True)
class Kept:
    """Objects that stay, and why. `bytes` is their size; `until` is when the last of them may go, None if unknown.

    Reasons: `live` (the newest version needs them), `claimed` (a transaction over several tables will need them),
    `removed` (older versions need them, within the retention), `young` (no commit names them, but one may still),
    `changes` and `log` (within their retention), `keepers` (tags, clones or branches need them), `other` (not this
    table's data, such as rejects and windows of event ids).
    """

    reason: str
    objects: int
    bytes: int
    until: datetime | None = None

    def __add__(self, other: Kept) -> Kept:
        moments = [each for each in (self.until, other.until) if each is not None]
        return Kept(self.reason, self.objects + other.objects, self.bytes + other.bytes, max(moments, default=None))


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Times in ms: files removed, orphans, log files and id files last written before them are deleted."""

    removed: int
    orphans: int
    log: int
    now: int = 0
    ids: int = 0


@dataclass(frozen=True, slots=True)
class VacuumPlan:
    """Some objects below the table's root: which go, as tables of `key` and `size`, and why the others stay.

    `removed_ms` is when the last of the data files was removed, None if none was.
    """

    data_files: pa.Table
    orphans: pa.Table
    change_files: pa.Table
    removed_ms: int | None
    kept: Sequence[Kept] = ()

    @property
    def objects(self) -> pa.Table:
        """Return everything to delete."""
        return pa.concat_tables([self.data_files, self.orphans, self.change_files])

    def spared(self, live: pa.Array, needed: Needed) -> VacuumPlan:
        """Return the plan without what keepers need; `live` are the hashes of that."""
        keeps = [pc.is_in(_column(files, "hash"), value_set=live) for files in (self.data_files, self.orphans)]
        stay = pa.concat_tables(
            [pc.filter(files, mask) for files, mask in zip((self.data_files, self.orphans), keeps, strict=True)]
        )
        if not len(stay):
            return self
        data, orphans = (
            pc.filter(files, pc.invert(mask))
            for files, mask in zip((self.data_files, self.orphans), keeps, strict=True)
        )
        kept = Kept(KEEPERS, len(stay), pc.sum(stay["size"]).as_py() or 0)
        removed_ms = pc.max(needed.removed_ms(_column(data, "hash"))).as_py()
        return replace(self, data_files=data, orphans=orphans, removed_ms=removed_ms, kept=[*self.kept, kept])

    def without(self, newest: Needed) -> VacuumPlan:
        """Return the plan without files that came back since it was made, even temporarily.

        A restore may have won before its record, or the commit that an orphan was written for.
        """
        data, orphans = (_column(files, "hash") for files in (self.data_files, self.orphans))
        later = pc.fill_null(pc.greater(newest.removed_ms(data), whole(self.removed_ms or 0)), fill_value=False)
        came_back = pc.or_(newest.is_live(data), later)
        named = pc.or_(newest.is_live(orphans), pc.is_valid(newest.removed_ms(orphans)))
        return replace(
            self,
            data_files=pc.filter(self.data_files, pc.invert(came_back)),
            orphans=pc.filter(self.orphans, pc.invert(named)),
        )


@dataclass(frozen=True, slots=True)
class Listed:
    """Consecutive objects of a listing below `root`: keys in order, and columns `size`, `modified_ms` and `hash`."""

    root: str
    keys: pa.Array
    columns: pa.Table

    def live(self, needed: Needed) -> pa.BooleanArray:
        """Return which objects a version needs."""
        return needed.is_live(_column(self.columns, "hash"), key_range(self.keys))

    def chosen(self, mask: pa.BooleanArray) -> pa.Table:
        """Return some objects as columns, with `key` below the root."""
        keys = restarted(pc.filter(self.keys, mask), self.root, "")
        return pc.filter(self.columns, mask).add_column(0, "key", keys)

    def below(self, folder: str) -> list[ObjectInfo]:
        """Return the objects in a folder, with keys below the root."""
        ends = pa.array([self.root + text for text in (folder, folder[:-1] + _AFTER_SLASH)], pa.string())
        start, end = pc.search_sorted(self.keys, ends).to_pylist()
        names = restarted(self.keys.slice(start, end - start), self.root, "")
        numbers = (self.columns[name].slice(start, end - start).to_pylist() for name in ("size", "modified_ms"))
        return [ObjectInfo(*each) for each in zip(names.to_pylist(), *numbers, strict=True)]


def listed(pages: Iterable[ListedPage], root: str) -> Listed:
    """Return objects of a listing."""
    keys, sizes, modified_ms, _ = (pa.concat_arrays(columns) for columns in zip(ListedPage.of(()), *pages, strict=True))
    return Listed(root, keys, pa.table([sizes, modified_ms, hashed(keys)], ["size", "modified_ms", "hash"]))


def plan_vacuum(needed: Needed, listing: Listed, cutoffs: Cutoffs) -> VacuumPlan:
    """Choose what to delete of objects below a table's root; the log is not looked at.

    A data file is deleted if it was removed before its cut-off, an orphan if it was last written before its own. Files
    of changes have the retention of removed files, but are deleted no sooner than orphans. Other folders whose name
    starts with `_` or `.` hold no data files.
    """
    live = listing.live(needed)
    claimed = pc.is_in(_column(listing.columns, "hash"), value_set=needed.claimed)
    objects = listing.chosen(pc.invert(live))
    keys, hashes, modified_ms = (_column(objects, name) for name in ("key", "hash", "modified_ms"))
    change = pc.starts_with(keys, CHANGE_FOLDER)
    tables = pc.or_(pc.starts_with(keys, LOG_FOLDER), change)
    hidden = pc.and_not(
        pc.match_substring_regex(keys, HOLDS_NO_DATA), pc.or_(tables, pc.starts_with(keys, SCRATCH_FOLDER))
    )
    dead_ms = needed.removed_ms(hashes)
    unneeded = pc.invert(pc.or_(tables, hidden))
    dead = pc.and_(unneeded, pc.is_valid(dead_ms))
    unnamed = pc.and_(unneeded, pc.is_null(dead_ms))
    expired = pc.fill_null(pc.less(dead_ms, whole(cutoffs.removed)), fill_value=False)
    old = pc.less(modified_ms, whole(cutoffs.orphans))
    gone = pc.and_(dead, expired)
    orphaned = pc.and_(unnamed, old)
    change_cutoff = min(cutoffs.removed, cutoffs.orphans)
    change_gone = pc.and_(change, pc.less(modified_ms, whole(change_cutoff)))
    kept = [
        _kept(LIVE, listing.columns, pc.and_not(live, claimed)),
        _kept(CLAIMED, listing.columns, claimed),
        _kept(REMOVED, objects, pc.and_not(dead, expired), dead_ms, cutoffs.now - cutoffs.removed),
        _kept(YOUNG, objects, pc.and_not(unnamed, old), modified_ms, cutoffs.now - cutoffs.orphans),
        _kept(CHANGES, objects, pc.and_not(change, change_gone), modified_ms, cutoffs.now - change_cutoff),
        _kept(OTHER, objects, hidden),
    ]
    return VacuumPlan(
        _chosen(objects, gone),
        _chosen(objects, orphaned),
        _chosen(objects, change_gone),
        pc.max(pc.filter(dead_ms, gone)).as_py(),
        [each for each in kept if each.objects],
    )


@dataclass(frozen=True, slots=True)
class LogPlan:
    """Files of the log, windows and files of event ids that go, and the hints of drops, whose deletion is not told."""

    log_files: tuple[ObjectInfo, ...] = ()
    windows: tuple[ObjectInfo, ...] = ()
    id_files: tuple[ObjectInfo, ...] = ()
    hints: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    spared: frozenset[str] = frozenset()
    """Files below the log's oldest that stay because a keeper needs them."""

    @property
    def objects(self) -> tuple[ObjectInfo, ...]:
        """Return everything to delete, what names others last."""
        return (*self.windows, *self.id_files, *self.log_files)


def plan_log(
    log_files: Sequence[ObjectInfo],
    windows: Iterable[ObjectInfo],
    hints: Iterable[str],
    cutoffs: Cutoffs,
    sidecars_named: Collection[str],
    kept_log: frozenset[str] = frozenset(),
    broken: Collection[int] = (),
) -> LogPlan:
    """Choose what to delete of a table's log, and the windows of event ids of checkpoints that go or have gone.

    Files of event ids go by age: no commit that names them is in the table's window. Sidecars of checkpoints are
    deleted unless they are among `sidecars_named`, and other files unless keepers need them, `kept_log`. `broken` are
    versions whose checkpoints cannot be read.
    """
    below = expired_log(log_files, cutoffs.log, broken)
    expired = [info for info in below if info.key not in kept_log]
    expired += unnamed_sidecars(log_files, sidecars_named, cutoffs.log)
    gone = {info.key for info in expired}
    spared = frozenset(info.key for info in below if info.key in kept_log)
    left = [info for info in log_files if info.key not in gone]
    names = (parse_name(info.key.removeprefix(LOG_FOLDER)) for info in left if info.key not in spared)
    oldest = min((file.version for file in names if file is not None), default=0)
    checkpoints = {file.version for key in spared if isinstance(file := _log_file(key), CheckpointFile)}
    windows = list(windows)
    ids = [info for info in windows if info.key.startswith(ID_FOLDER) and info.modified_ms < cutoffs.ids]
    useless = [info for info in windows if index_version(info.key) not in checkpoints]
    useless = [info for info in useless if _is_useless(info, oldest, gone, cutoffs)]
    kept = [
        Kept(reason, len(infos), sum(info.size for info in infos))
        for reason, infos in (
            (LOG, [info for info in left if info.key not in spared]),
            (KEEPERS, [info for info in left if info.key in spared]),
        )
        if infos
    ]
    return LogPlan(tuple(expired), tuple(useless), tuple(ids), tuple(hints), tuple(kept), spared)


def _log_file(key: str) -> CommitFile | CheckpointFile | None:
    return parse_name(key.removeprefix(LOG_FOLDER))


def _is_useless(window: ObjectInfo, oldest: int, gone: Collection[str], cutoffs: Cutoffs) -> bool:
    """Whether the checkpoint that a window was written for goes, or went long ago."""
    version = index_version(window.key)
    if version is None or version >= oldest:
        return False
    going = (parse_name(key.removeprefix(LOG_FOLDER)) for key in gone)
    return window.modified_ms < cutoffs.orphans or any(
        isinstance(file, CheckpointFile) and file.version == version for file in going
    )


def _kept(
    reason: str, objects: pa.Table, mask: pa.BooleanArray, times: pa.Array | None = None, retention_ms: int = 0
) -> Kept:
    size = pc.sum(pc.filter(_column(objects, "size"), mask)).as_py() or 0
    last = None if times is None else pc.max(pc.filter(times, mask)).as_py()
    until = None if last is None else moment(last + retention_ms)
    return Kept(reason, mask.true_count, size, until)


def _chosen(objects: pa.Table, mask: pa.BooleanArray) -> pa.Table:
    return pc.filter(objects, mask).select(["key", "size", "hash"])


def _column(objects: pa.Table, name: str) -> pa.Array:
    return objects[name].combine_chunks()
