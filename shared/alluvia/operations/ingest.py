"""Appending events exactly once: an event is its `event_id`, within the table's window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from alluvia.errors import Invalid, TableDropped
from alluvia.log.commit import CommitActions
from alluvia.operations.event_window import follow_window
from alluvia.table.handle import TableHandle
from alluvia.table.lineage import is_dropped, undone_versions, version_gaps
from alluvia.table.rows import conform
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Changes
from alluvia.table.window import DedupWindow, encode_fingerprints, fingerprints, fingerprints_of

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
    concurrent writers included, unless a restore took it back. A writer that lost a race looks at the winners' ids,
    writes the rows that are still new again, and goes on. Raises `Invalid` for rows that do not fit the table.
    """
    if EVENT_ID not in rows.column_names:
        msg = f"{handle.name}: ingestion needs a column {EVENT_ID}, by which an event is known"
        raise Invalid(msg)
    while True:
        with handle.lock:
            snapshot = handle.fitting(rows.column_names)
            window = follow_window(handle)
            fitting = conform(rows, snapshot.schema)
            prints = fingerprints(_ids(fitting, handle.name))
            new = _new_rows(prints, window)
        if not new:
            _check_still_there(handle, snapshot)
            return Ingested(snapshot.version, 0, len(rows))
        batch = _Batch(handle, snapshot, fitting, prints, new)
        commit = handle.transaction(snapshot).commit(batch.changes(), batch.after_loss)
        if batch.undone:
            continue
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
    """The rows of one call that are still new, and the files that hold them. `undone`: all is to be looked up anew."""

    def __init__(
        self, handle: TableHandle, snapshot: Snapshot, rows: pa.Table, prints: Sequence[bytes], new: Sequence[int]
    ) -> None:
        self.undone = False
        self._writer = handle.writer(snapshot)
        self._undone_before = undone_versions(snapshot.properties)
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
        """Drop what the winners hold. Files written before stay behind for vacuum: ingestion may not delete.

        Where a restore won, `undone` is set: what was known before it may not be known any more.
        """
        changed = [winner.metadata.configuration for winner in winners if winner.metadata is not None]
        if changed and undone_versions(changed[-1]) != self._undone_before:
            self.undone = True
            return None
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
