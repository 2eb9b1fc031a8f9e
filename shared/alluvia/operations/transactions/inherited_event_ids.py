"""Events of a table that is replaced whose rows are in the new one: their ids go with the commit that replaces it.

The new table knows none of the old one's commits (docs/decisions/0012-restores-and-event-ids.md). An event whose row
`CREATE OR REPLACE TABLE t AS SELECT * FROM t …` has taken over is a duplicate when it comes again, and any other is
new. What an event says, by which another one with its id is told apart, is not in its row but in the old window.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.event_window.id_files import (
    ID_FOLDER,
    IDS_IN_COMMIT_MAX,
    CommitFiles,
    contents_of,
    encode_range,
    files_info,
    files_of,
    heads_of,
    parts_of,
    plan_files,
    prints_of,
    range_contents,
    range_prints,
    sorted_columns,
)
from alluvia.commit.event_window.id_runs import EVENT_ID, SOURCE, identity_columns
from alluvia.commit.event_window.window import encode_event_ids, event_ids_of, fingerprints
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import FILE_AGE_MS_MAX
from alluvia.delta.data_files.scan import read_file
from alluvia.delta.lineage import in_gap, undone_versions
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.snapshot import Snapshot
from alluvia.operations.dedup import follow_window
from alluvia.operations.dedup import read_file as read_ids

_PRINT, _CONTENT = "print", "content"


class _Rows(NamedTuple):
    """Fingerprints of rows: by what identified events in the old table, and by what does in the new one."""

    before: pa.Array
    now: pa.Array


class TakenOver:
    """The events that a table knows when it is replaced.

    `base` is its last version, which holds what `claimed` commits do before the log of `handle` does.
    """

    def __init__(self, handle: TableHandle, base: Snapshot, claimed: Sequence[CommitActions] = ()) -> None:
        self._handle = handle
        self._base = base
        self._identity = identity_columns(base.schema)
        undone = undone_versions(base.properties)
        with handle.lock:
            window = follow_window(handle)
            known = [*(each for each in window.entries() if each.version <= base.version), *map(event_ids_of, claimed)]
            files = [each for each in window.files(undone) if each.version <= base.version]
        known = [each for each in known if not in_gap(undone, each.version)]
        self._files = files + [
            CommitFiles(at.version, at.timestamp_ms, each) for at in claimed for each in files_of(at)
        ]
        times_ms = [*(each.timestamp_ms for each in known), *(each.timestamp_ms for each in self._files)]
        self._oldest_ms = min(times_ms, default=0)
        self._prints = prints_of(b"".join(each.prints for each in known))
        self._contents = contents_of(b"".join(each.contents for each in known))

    def info(self, now: Snapshot, adds: Sequence[AddFile], known: Collection[bytes]) -> dict[str, Any]:
        """Return the ids of events of the old table that some files of the new one hold, as a commit carries them.

        Those that are `known` by now are left out. One GET for each file, where the old table knows any event, and for
        each range of its id files; one PUT for each range where there are more than a commit can carry.
        """
        identity = identity_columns(now.schema)
        if not self._identity or not identity or not (len(self._prints) or self._files):
            return {}
        rows = self._rows(now, adds, identity)
        ids = pa.concat_tables(self._found(rows)).group_by([_PRINT, _CONTENT]).aggregate([])
        if known:
            ids = ids.filter(pc.invert(pc.is_in(ids[_PRINT], value_set=prints_of(b"".join(known)))))
        return self._put(ids) if len(ids) > IDS_IN_COMMIT_MAX else _carried(ids)

    def _rows(self, now: Snapshot, adds: Iterable[AddFile], identity: Sequence[str]) -> _Rows:
        if SOURCE in identity or SOURCE not in self._identity:
            return self._read(now, adds, identity, (self._identity, identity))
        # The rows have lost their sources: those of the old table tell by what it knew them.
        there = self._read(now, adds, identity, (identity, identity)).now
        young_ms = self._oldest_ms - FILE_AGE_MS_MAX
        young = (file for file in self._base.files if file.modification_time >= young_ms)
        rows = self._read(self._base, young, self._identity, (self._identity, identity))
        taken = pc.is_in(rows.now, value_set=there)
        return _Rows(rows.before.filter(taken), rows.now.filter(taken))

    def _read(
        self,
        snapshot: Snapshot,
        files: Iterable[AddFile],
        columns: Sequence[str],
        identities: tuple[Sequence[str], Sequence[str]],
    ) -> _Rows:
        schema = pa.schema([snapshot.schema.field(name) for name in columns])
        parts: tuple[list[bytes], list[bytes]] = [], []
        for file in files:
            for batch in read_file(snapshot, self._handle.store, file, schema):
                rows = batch.filter(pc.is_valid(batch[EVENT_ID]))
                ids = rows[EVENT_ID].to_pylist()
                sources = rows[SOURCE].to_pylist() if SOURCE in columns else None
                for part, identity in zip(parts, identities, strict=True):
                    part.append(b"".join(fingerprints(ids, sources if SOURCE in identity else None)))
        before = prints_of(b"".join(parts[0]))
        return _Rows(before, before if identities[0] == identities[1] else prints_of(b"".join(parts[1])))

    def _found(self, rows: _Rows) -> Iterator[pa.Table]:
        """Yield fingerprints in the new table's form, and contents of the events that are known and are rows."""
        yield _joined(rows, self._prints, self._contents)
        for commit in self._files:
            numbers = parts_of(heads_of(rows.before), commit.files.ranges)
            for number in sorted(pc.unique(numbers).to_pylist()):
                data = read_ids(self._handle, commit, number)
                if data is not None:
                    inside = pc.equal(numbers, pa.scalar(number, pa.uint64()))
                    some = _Rows(rows.before.filter(inside), rows.now.filter(inside))
                    yield _joined(some, range_prints(commit.files, data), range_contents(commit.files, data))

    def _put(self, event_ids: pa.Table) -> dict[str, Any]:
        """Put ids that are too many for a commit into objects, and return what names these."""
        layout = plan_files(f"{ID_FOLDER}{self._handle.clock.new_id()}/", len(event_ids))
        ids = sorted_columns(*(column.combine_chunks() for column in event_ids.columns))
        numbers = parts_of(ids["head"], layout.ranges)
        for number in range(layout.ranges):
            part = ids.filter(pc.equal(numbers, pa.scalar(number, pa.uint64())))
            self._handle.store.put(self._handle.root + layout.name(number), encode_range(layout, number, part))
        return files_info([layout])


def _joined(rows: _Rows, prints: pa.Array, contents: pa.Array) -> pa.Table:
    """Return the fingerprints of those rows that are among known ones, with the contents of these."""
    known = pa.table({"before": prints, _CONTENT: contents})
    taken = pa.table({"before": rows.before, _PRINT: rows.now}).join(known, "before", join_type="inner")
    return taken.select([_PRINT, _CONTENT])


def _carried(ids: pa.Table) -> dict[str, Any]:
    if not len(ids):
        return {}
    return encode_event_ids(ids[_PRINT].to_pylist(), ids[_CONTENT].to_pylist())
