"""Append events exactly once. An event is identified by its `event_id` and source within the table's window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

import pyarrow as pa

from alluvia.commit.changes import Changes
from alluvia.commit.commit_offers import offers_in
from alluvia.commit.commit_records import table_at
from alluvia.commit.event_window.id_runs import CONTENT_BYTES, EVENT_ID, SOURCE, content_hashes
from alluvia.commit.event_window.window import UNKNOWN, encode_event_ids, event_id_pairs, event_ids_of, fingerprints
from alluvia.commit.handle import TableHandle
from alluvia.commit.versions import version_with
from alluvia.delta.lineage import is_dropped, undone_versions, version_gaps
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.odd_times import with_odd_times
from alluvia.delta.partitioning.partition import misfits
from alluvia.delta.schema.caller_rows import conform
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, MetadataChanged, TableDropped
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.append.group_commit import commit_together, is_crowded, look, may_offer
from alluvia.operations.dedup import follow_window, held_events
from alluvia.operations.planning.layout import row_check
from alluvia.operations.planning.optimistic_retry import check_not_derived, discarding

_LIKE_UNKNOWN = bytes([*UNKNOWN[1:], 1])
"""Replaces a content hash that by chance equals the one for unknown."""

LOSSES = 2
"""A writer that has lost this many races for one commit offers its rows."""


@dataclass(frozen=True, slots=True)
class Ingested:
    """The outcome of a batch: the version that holds its events, the rows added, and the events known before.

    `clashes` are the positions of rows that bring other content under an id that is known: from the window, from an
    earlier row of the batch, or from a commit that won. They are not stored; the caller keeps them as rejects. `new`
    are the positions of the rows added, `repeated` those of the events known before.
    """

    version: int
    appended: int
    duplicates: int
    clashes: tuple[int, ...] = ()
    new: Sequence[int] = field(default=(), repr=False)
    repeated: Sequence[int] = field(default=(), repr=False)


def ingest(
    handle: TableHandle,
    rows: pa.Table,
    contents: Sequence[bytes] | None = None,
    made_for: Snapshot | None = None,
    gone_until: int = -1,
    odd_times: Mapping[int, str] = MappingProxyType({}),
) -> Ingested:
    """Append rows whose `event_id` is new to their `source`, in one commit; the others are duplicates or clashes.

    New means: neither earlier in `rows` nor in a commit of the table's window (`alluvia.dedup_window`), those of
    concurrent writers included, unless a restore took it back. A writer that lost a race looks its ids up among the
    winners', writes the rows that are still new again, and goes on. One that meets many others has its rows committed
    together with theirs. `contents` are hashes of `CONTENT_BYTES` bytes, one for each row; without them, the rows' own
    columns count. `made_for` is the version whose columns the rows were made for, where other columns would have made
    other rows. `gone_until` is the version up to which the table is known to have lost the rows, however it knows their
    ids: only later commits count. `odd_times` are the kinds of odd times by the numbers of rows, which the table
    counts (`delta.odd_times`). Raises `Invalid` for rows that do not fit the table, and `MetadataChanged` where it
    has other columns than `made_for`.
    """
    names = rows.schema.names
    if EVENT_ID not in names:
        raise Invalid(f"{handle.name}: ingestion needs a column {EVENT_ID}, which identifies an event")
    while True:
        with handle.lock:
            snapshot = version_with(handle, names)
            check_not_derived(snapshot, "ingest")
            if made_for is not None and not snapshot.schema.equals(made_for.schema):
                raise _other_columns(handle)
            fitting = conform(rows, snapshot.schema)
            hashes = _contents(fitting, contents, handle.name)
            batch = _NewRows(handle, snapshot, fitting, hashes, gone_until, odd_times, as_made=made_for is not None)
        if not batch.new:
            if _knows_other_events(handle, snapshot):
                continue
            return batch.ingested(snapshot.version)
        if is_crowded(handle) and batch.may_offer():
            version = None if look(handle) else batch.offered()
            if version is None:
                continue
            return batch.ingested(version)
        changes = batch.changes()
        with discarding(handle, snapshot, batch.written):
            commit = handle.transaction(snapshot).commit(changes, batch.after_loss)
        if batch.again:
            continue
        if commit is None:
            handle.store.check_lasts()
        return batch.ingested(handle.at_hand().version if commit is None else commit.version)


def foresee(
    handle: TableHandle, rows: pa.Table, contents: Sequence[bytes], odd_times: Mapping[int, str] = MappingProxyType({})
) -> Ingested:
    """Return the outcome that `ingest` would have, by the newest version. Writes nothing, and takes the same errors."""
    with handle.lock:
        snapshot = version_with(handle, rows.schema.names)
        fitting = conform(rows, snapshot.schema)
        hashes = _contents(fitting, contents, handle.name)
        batch = _NewRows(handle, snapshot, fitting, hashes, -1, odd_times, as_made=False)
    if refused := refusals(snapshot, fitting):
        raise Invalid(f"{handle.name}: {next(iter(refused.values()))}")
    return batch.ingested(snapshot.version)


def _other_columns(handle: TableHandle) -> MetadataChanged:
    return MetadataChanged(f"the columns of {handle.name} changed: make the rows of the events again")


def _knows_other_events(handle: TableHandle, snapshot: Snapshot) -> bool:
    """Whether the table that is known to hold the events was restored or replaced: only a commit would notice that.

    Raises `TableDropped` if it is gone.
    """
    with handle.lock:
        newest = handle.newest(dropped=True).properties
    if is_dropped(newest) or version_gaps(newest) != version_gaps(snapshot.properties):
        raise TableDropped(f"{handle.name} was dropped, and its event ids with it: send the events again")
    handle.store.check_lasts()
    return undone_versions(newest) != undone_versions(snapshot.properties)


def known_events(handle: TableHandle, rows: pa.Table, contents: Sequence[bytes]) -> list[bool]:
    """Return which events a table knows with the same content: by its window, or by transactions that have happened.

    These are not in the log yet: one GET for each that stands there. What counts is the version that the handle knows.
    Of `rows` only `event_id` and `source` count; one without an id is not known. `contents` are those of `ingest`.
    """
    with handle.lock:
        snapshot = handle.at_hand()
        prints = fingerprints([event_id or "" for event_id in rows[EVENT_ID].to_pylist()], _sources(rows))
        held = held_events(handle, follow_window(handle), prints, undone_versions(snapshot.properties))
    for commit in table_at(handle.log, snapshot.state).ahead:
        for fingerprint, content in event_id_pairs(event_ids_of(commit)):
            held.setdefault(fingerprint, set()).add(content)
    contents = _contents(rows, contents, handle.name)
    return [not {content, UNKNOWN}.isdisjoint(held.get(at, ())) for at, content in zip(prints, contents, strict=True)]


def refusals(snapshot: Snapshot, rows: pa.Table) -> dict[int, str]:
    """Return why rows cannot be written, by their numbers, once an ingestion has raised `Invalid`.

    Every row is judged, all of them at once: it takes no longer where many are bad.
    """
    check = row_check(snapshot.settings.constraints, snapshot.schema)
    refused = misfits(rows, snapshot.partition_spec) | ({} if check is None else check.broken(rows))
    return refused | snapshot.file_form.refusals(rows)


class _NewRows:
    """The rows of one call, and the files that hold those that are still new. `again`: look up all again.

    `as_made` says that the rows would be others if the table had other columns.
    """

    def __init__(
        self,
        handle: TableHandle,
        snapshot: Snapshot,
        rows: pa.Table,
        contents: Sequence[bytes],
        gone_until: int,
        odd_times: Mapping[int, str],
        *,
        as_made: bool,
    ) -> None:
        self.again = False
        self.written: list[AddFile] = []
        self._as_made = as_made
        self._odd_times = odd_times
        self._losses = 0
        self._handle = handle
        self._snapshot = snapshot
        self._writer = handle.writer(snapshot, row_check(snapshot.settings.constraints, snapshot.schema))
        self._undone_before = undone_versions(snapshot.properties)
        self._come_again = gone_until >= 0
        self._uncounted = (*self._undone_before, (0, gone_until)) if self._come_again else self._undone_before
        self._rows = rows
        self._contents = contents
        self._ids = _ids(rows, handle.name)
        self._prints = fingerprints(self._ids, _sources(rows))
        self._held: dict[bytes, set[bytes]] = {}
        self._looked_up = -1
        self._look_up(self._prints)

    def changes(self) -> Changes:
        """Write the rows that are new and return what to commit."""
        ids = encode_event_ids(*self._new_ids())
        rows = self._new_rows()
        adds = with_odd_times(self._writer.write(rows), self._odd(), rows, self._snapshot.physical_name("ts"))
        self.written += adds
        self._changes = Changes("WRITE", {"mode": "Append"}, adds=adds, info=ids)
        return self._changes

    def may_offer(self) -> bool:
        """Whether the rows that are new may be committed by others, who would know the ids of those that come again."""
        if self._come_again:
            return False
        rows = self._new_rows()
        return may_offer(self._handle, self._snapshot, rows) and not refusals(self._snapshot, rows)

    def offered(self) -> int | None:
        """Have others commit the rows that are new, or commit theirs too. Returns the version, None to start again."""
        return commit_together(self._handle, self._snapshot, self._new_rows(), *self._new_ids(), self._odd())

    def _new_rows(self) -> pa.Table:
        return self._rows if len(self.new) == len(self._rows) else self._rows.take(pa.array(self.new, pa.int64()))

    def _new_ids(self) -> tuple[Sequence[bytes], Sequence[bytes]]:
        if len(self.new) == len(self._rows):
            return self._prints, self._contents
        return [self._prints[at] for at in self.new], [self._contents[at] for at in self.new]

    def _odd(self) -> Counter[str]:
        """Return how many of the rows that are new have odd times, by kind."""
        if not self._odd_times:
            return Counter()
        return Counter(self._odd_times[at] for at in self.new if at in self._odd_times)

    def after_loss(self, winners: Sequence[CommitActions]) -> Changes | None:
        """Drop what the window holds by now. Files written before stay behind for vacuum, since ingestion need not be
        allowed to delete; where the table itself has changed, it tries to.

        Where a restore won, `again` is set: what was known before it may not be known any more. So it is where there
        are so many others that the rows are better offered to them. Raises `MetadataChanged` where a winner changed
        the columns that the rows were made for.
        """
        changed = [winner.metadata for winner in winners if winner.metadata is not None]
        if changed and undone_versions(changed[-1].configuration) != self._undone_before:
            self.again = True
            return None
        if self._as_made and any(each.schema_string != self._snapshot.state.metadata.schema_string for each in changed):
            raise _other_columns(self._handle)
        self._losses += 1
        if (self._losses >= LOSSES or any(len(offers_in(winner)) > 1 for winner in winners)) and self.may_offer():
            self._handle.contention.note(self._handle.clock.now_ms())
            self.again = True
            return None
        before = self.new
        self._look_up([self._prints[at] for at in before])
        if len(self.new) == len(before):
            return self._changes
        return self.changes() if self.new else None

    def _look_up(self, prints: Sequence[bytes]) -> None:
        """Look the fingerprints of some rows up in the window as it is by now, and sort all rows out.

        Commits of earlier versions of this library know an id whatever its source.
        """
        window = follow_window(self._handle)
        self._held |= held_events(self._handle, window, prints, self._uncounted, self._looked_up)
        self._looked_up = window.version
        self._held |= self._handle.waiting_events()
        if window.has_bare_ids:
            bare = fingerprints(self._ids)
            for at, contents in enumerate(map(window.held(bare, self._uncounted).get, bare)):
                if contents is not None and UNKNOWN in contents:
                    self._held.setdefault(self._prints[at], set()).add(UNKNOWN)
        self.new, self.repeated, self.clashes = sort_out(self._prints, self._contents, self._held)

    def ingested(self, version: int) -> Ingested:
        """Return the outcome of the rows."""
        counts = len(self.new), len(self.repeated), len(self.clashes)
        if sum(counts) != len(self._rows):
            raise AssertionError(f"{self._handle.name}: {len(self._rows)} rows are not {counts}")
        return Ingested(version, len(self.new), len(self.repeated), tuple(self.clashes), self.new, self.repeated)


def sort_out(
    prints: Sequence[bytes], contents: Sequence[bytes], held: Mapping[bytes, Collection[bytes]]
) -> tuple[Sequence[int], list[int], list[int]]:
    """Return the positions of the events that are new, of those known before, and of those that clash.

    The latter are known by other content. `held` gives the contents of known ids; what is unknown clashes with nothing.
    """
    if not held and len(set(prints)) == len(prints):
        return range(len(prints)), [], []
    first: dict[bytes, bytes] = {}
    new, repeated, clashes = [], [], []
    for at, (fingerprint, content) in enumerate(zip(prints, contents, strict=True)):
        known = held.get(fingerprint)
        if known is None:
            if fingerprint not in first:
                first[fingerprint] = content
                new.append(at)
            elif first[fingerprint] != content:
                clashes.append(at)
            else:
                repeated.append(at)
        elif content not in known and UNKNOWN not in known:
            clashes.append(at)
        else:
            repeated.append(at)
    return new, repeated, clashes


def _ids(rows: pa.Table, name: str) -> list[str]:
    column = rows[EVENT_ID]
    if not pa.types.is_string(column.type) or column.null_count:
        raise Invalid(f"{name}.{EVENT_ID}: every event needs an id, a string")
    return column.to_pylist()


def _sources(rows: pa.Table) -> list[str | None] | None:
    at = rows.schema.get_field_index(SOURCE)
    if at < 0:
        return None
    column = rows.column(at)
    return column.to_pylist() if pa.types.is_string(column.type) and column.null_count < len(column) else None


def _contents(rows: pa.Table, contents: Sequence[bytes] | None, name: str) -> Sequence[bytes]:
    if contents is None:
        contents = content_hashes(rows)
    elif len(contents) != len(rows) or not {CONTENT_BYTES}.issuperset(map(len, contents)):
        raise Invalid(f"{name}: contents: expected {len(rows)} hashes of {CONTENT_BYTES} bytes, one for each row")
    if UNKNOWN not in contents:
        return contents
    return [_LIKE_UNKNOWN if each == UNKNOWN else each for each in contents]
