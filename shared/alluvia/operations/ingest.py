"""Appending events exactly once: an event is its `event_id`, within the table's window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from alluvia.errors import Invalid, ObjectNotFound, TableDropped
from alluvia.log.commit import CommitActions
from alluvia.log.log import Log
from alluvia.table.handle import TableHandle
from alluvia.table.lineage import Gaps, below_gap, in_gap, is_dropped, version_gaps
from alluvia.table.properties import read_properties
from alluvia.table.rows import conform
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Changes
from alluvia.table.window import (
    WINDOW_FOLDER,
    DedupWindow,
    encode_fingerprints,
    fingerprints,
    fingerprints_of,
    index_name,
    index_version,
    read_index,
)

EVENT_ID = "event_id"


@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of a batch: the version that holds its events, the rows added, and the events known before."""

    version: int
    rows: int
    duplicates: int


def ingest(handle: TableHandle, rows: pa.Table) -> Ingested:
    """Append rows whose `event_id` is new, in one commit; the others are counted as duplicates.

    New means: neither earlier in `rows` nor in a commit of the table's window (`alluvia.dedup_window`), those of
    concurrent writers included. A writer that lost a race looks at the winners' ids, writes the rows that are still new
    again, and goes on. Raises `Invalid` for rows that do not fit the table.
    """
    if EVENT_ID not in rows.column_names:
        msg = f"{handle.name}: ingestion needs a column {EVENT_ID}, by which an event is known"
        raise Invalid(msg)
    with handle.lock:
        snapshot = handle.fitting(rows.column_names)
        window = follow_window(handle)
        rows = conform(rows, snapshot.schema)
        prints = fingerprints(_ids(rows, handle.name))
        new = _new_rows(prints, window)
    if not new:
        _check_still_there(handle, snapshot)
        return Ingested(snapshot.version, 0, len(rows))
    batch = _Batch(handle, snapshot, rows, prints, new)
    commit = handle.transaction(snapshot).commit(batch.changes(), batch.after_loss)
    with handle.lock:
        follow_window(handle)
        version = handle.at_hand().version if commit is None else commit.version
    return Ingested(version, len(batch.new), len(rows) - len(batch.new))


def _check_still_there(handle: TableHandle, snapshot: Snapshot) -> None:
    """Raise `TableDropped` if the table that is known to hold the events is gone: only a commit would notice that."""
    with handle.lock:
        newest = handle.newest(dropped=True).properties
    if is_dropped(newest) or version_gaps(newest) != version_gaps(snapshot.properties):
        msg = f"{handle.name} was dropped, and with it what it knew of the events: send them again"
        raise TableDropped(msg)


class _Batch:
    """The rows of one call that are still new, and the files that hold them."""

    def __init__(
        self, handle: TableHandle, snapshot: Snapshot, rows: pa.Table, prints: Sequence[bytes], new: Sequence[int]
    ) -> None:
        self._writer = handle.writer(snapshot)
        self._rows = rows
        self._prints = prints
        self.new = new

    def changes(self) -> Changes:
        """Write the rows that are new and return what to commit."""
        rows = self._rows if len(self.new) == len(self._rows) else self._rows.take(pa.array(self.new, pa.int64()))
        ids = encode_fingerprints([self._prints[at] for at in self.new])
        self._changes = Changes("WRITE", {"mode": "Append"}, adds=self._writer.write(rows), event_ids=ids)
        return self._changes

    def after_loss(self, winners: Sequence[CommitActions]) -> Changes | None:
        """Drop what the winners hold. Files written before stay behind for vacuum: ingestion may not delete."""
        theirs = {fingerprint for winner in winners for fingerprint in fingerprints_of(winner)}
        still_new = [at for at in self.new if self._prints[at] not in theirs]
        if len(still_new) == len(self.new):
            return self._changes
        self.new = still_new
        return self.changes() if still_new else None


def _ids(rows: pa.Table, name: str) -> list[str]:
    column = rows[EVENT_ID]
    if not pa.types.is_string(column.type) or column.null_count:
        msg = f"{name}.{EVENT_ID}: every event needs an id, as text"
        raise Invalid(msg)
    ids: list[str] = column.to_pylist()
    return ids


def _new_rows(prints: Sequence[bytes], window: DedupWindow) -> list[int]:
    first: dict[bytes, int] = {}
    for at, fingerprint in enumerate(prints):
        first.setdefault(fingerprint, at)
    return [at for fingerprint, at in first.items() if fingerprint not in window]


def follow_window(handle: TableHandle) -> DedupWindow:
    """Bring a handle's window up to the version that it knows; the commits that it followed hold all that is new."""
    state = handle.log.state or handle.at_hand().state
    window_ms = read_properties(state.metadata.configuration).dedup_window_ms
    gaps = version_gaps(state.metadata.configuration)
    if handle.window is not None and (handle.window.window_ms, handle.window.gaps) == (window_ms, gaps):
        commits = handle.log.since(handle.window.version)
        if commits is not None:
            handle.window.follow(commits)
            return handle.window
    handle.window = open_window(handle.log)
    handle.window.version = max(handle.window.version, state.version)
    return handle.window


def open_window(log: Log) -> DedupWindow:
    """Build the window at the version that a log knows: the checkpoint's index in one GET, and the commits after it.

    Where there is no index, for example beside another writer's checkpoint, the window's commits are read one by one.
    A checkpoint that was written when another table had the name has the index of that one. Clean-up may take the index
    of a log that was opened a moment before, and commits of the window too: then the log is opened again, on the
    checkpoint that made them needless.
    """
    while True:
        window, whole = _window_of(log)
        start = log.checkpoint_version
        if whole:
            return window
        log.open()
        if log.checkpoint_version == start:
            return window


def _window_of(log: Log) -> tuple[DedupWindow, bool]:
    """Return the window of a log as it is at hand, and whether all that it is made from was there."""
    state = log.state or log.open()
    window_ms = read_properties(state.metadata.configuration).dedup_window_ms
    gaps = version_gaps(state.metadata.configuration)
    after_ms = state.timestamp_ms - window_ms
    start = log.checkpoint_version
    commits = log.since(-1 if start is None else start)
    if commits is None:
        return _from_commits(log, state.version, after_ms, window_ms, gaps)
    whole = True
    if start is None:
        window = DedupWindow(window_ms, gaps=gaps)
    elif in_gap(gaps, start):
        window, whole = _from_commits(log, start, after_ms, window_ms, gaps)
    else:
        name = index_name(start)
        try:
            window = read_index(log.store.get(log.root + name), name, window_ms, start, gaps)
        except ObjectNotFound:
            window, whole = _from_commits(log, start, after_ms, window_ms, gaps)
    window.follow(commits)
    return window, whole


def _from_commits(log: Log, version: int, after_ms: int, window_ms: int, gaps: Gaps) -> tuple[DedupWindow, bool]:
    """Return the window that the commits up to a version make, and whether all that it needs was there.

    Where clean-up has taken a commit, an index stands for it and those before it: that of a checkpoint which is not the
    newest any more, or which was written before another table had the name.
    """
    found: list[CommitActions] = []
    window, whole = DedupWindow(window_ms, gaps=gaps), True
    at = below_gap(gaps, version)
    while at >= 0:
        commit = log.read_commit(at)
        if commit is None:
            window, whole = _from_index(log, at, version, window_ms, gaps)
            break
        if commit.timestamp_ms < after_ms:
            break
        found.append(commit)
        at = below_gap(gaps, at - 1)
    window.follow(reversed(found))
    return window, whole


def _from_index(log: Log, missing: int, version: int, window_ms: int, gaps: Gaps) -> tuple[DedupWindow, bool]:
    """Return the newest index of the table's own up to a version, and whether it holds the missing commit's ids."""
    keys = (info.key.removeprefix(log.root) for info in log.store.list(log.root + WINDOW_FOLDER))
    versions = [at for key in keys if (at := index_version(key)) is not None]
    own = [at for at in versions if at <= version and not in_gap(gaps, at)]
    newest = max(own, default=-1)
    try:
        data = log.store.get(log.root + index_name(newest)) if own else None
    except ObjectNotFound:  # clean-up was faster
        data = None
    if data is None:
        return DedupWindow(window_ms, gaps=gaps), False
    return read_index(data, index_name(newest), window_ms, newest, gaps), newest >= missing
