"""Execute an edit file by file: a file that changes is rewritten, gets a deletion vector, or is removed completely.

One file is encoded while the next is read. Memory holds one row group of each and the new rows not yet written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.handle import TableHandle
from alluvia.delta.deletion_vectors.descriptors import cardinality_of
from alluvia.delta.deletion_vectors.roaring import sorted_positions
from alluvia.delta.deletion_vectors.storage import NO_POSITIONS, positions_of, write_deletions
from alluvia.delta.log.actions import AddFile
from alluvia.delta.odd_times import TIME_COLUMNS, with_counts, with_odd_times
from alluvia.delta.snapshot import Snapshot
from alluvia.delta.statistics.written import loose_statistics
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.planning.layout import row_check
from alluvia.operations.reading.change_files import ChangeWriter
from alluvia.operations.reading.datafile import Background, DataFile, FileSink, opened
from alluvia.operations.rows.edits import Edit, Hits, interleaved
from alluvia.operations.rows.odd_time_counts import OddTimeCounts, counts_of
from alluvia.operations.rows.parts import Outcome, Part, files_left, outcomes_of, part_of, still_good
from alluvia.progress import report

WAITING_BYTES = 64 << 20
"""Once this many bytes of new rows are collected, they are written to files of their own."""
REMEMBERED_BYTES = 64 << 20
"""So much is kept of which rows were found in which file, for when a concurrent commit deletes others of it."""


@dataclass(frozen=True, slots=True)
class _FoundRows:
    """What was found in a file with `rows` rows, some of which were deleted then."""

    rows: int
    deleted: pa.Int64Array
    hits: Hits | None

    @property
    def nbytes(self) -> int:
        return int(self.deleted.nbytes) + (0 if self.hits is None else self.hits.nbytes)


class Rewriter:
    """Works on the files of a table for one edit, and keeps what it did: a second plan pays for what is new.

    Good for snapshots that share the metadata of the first. `with_others` says that other rewriters work for the same
    commit: rows that are inserted then go into its change files, whatever this one changes.
    """

    def __init__(self, handle: TableHandle, snapshot: Snapshot, edit: Edit, *, with_others: bool = False) -> None:
        self.edit = edit
        self.parts: list[Part] = []
        self._handle = handle
        self._snapshot = snapshot
        self._check = row_check(snapshot.settings.constraints, snapshot.schema)
        self._writer = handle.writer(snapshot, self._check)
        self._vectors = snapshot.settings.deletion_vectors and not edit.erases
        feeds = snapshot.settings.change_data_feed and not edit.erases
        self._changes = ChangeWriter(handle, snapshot) if feeds else None
        self._open = self._new_part()
        self._encoded: tuple[Outcome, FileSink] | None = None
        self._waiting: list[pa.Table] = []
        self._with_others = with_others
        self._found: dict[str, _FoundRows] = {}
        self._found_bytes = 0
        self._odd_times: OddTimeCounts | None = None

    def work(self, snapshot: Snapshot, candidates: Sequence[AddFile]) -> list[Outcome]:
        """Bring the outcomes up to a snapshot, of which `candidates` are the files that can match.

        Parts whose files vacuum may have deleted since an earlier plan are made again.
        """
        self._snapshot = snapshot
        self._open = self._new_part()
        self.parts = still_good(self.parts, candidates, self._handle.clock.now_ms())
        pending = files_left(self.parts, candidates)
        whole = [file for file in pending if self.edit.goes_whole(file)]
        for file in whole:
            self.parts.append(self._new_part(_whole(file)))
        known = {file.key for file in whole}
        try:
            with Background() as self._background:
                self._read([file for file in pending if file.key not in known])
                if self._changes is not None:
                    self._read_whole()
                self._insert()
                self._settle()
                self._close()
        finally:
            self._abandon()
            self._open, self._waiting = self._new_part(), []
            if self._changes is not None:
                self._changes.clear()
        return outcomes_of(self.parts)

    def _new_part(self, *outcomes: Outcome) -> Part:
        return part_of(self._handle.clock.now_ms(), *outcomes)

    def _read(self, files: Sequence[AddFile]) -> None:
        known = {path: remembered.rows for path, remembered in self._found.items()}
        for number, data in enumerate(opened(self._handle, self._snapshot, files, known)):
            report(f"changing {self._handle.name}", number, len(files), "files")
            with data:
                outcome = self._process(data)
            if not outcome.changed:
                self.parts.append(self._new_part(outcome))
                continue
            self._open.outcomes[outcome.file.key] = outcome
            waiting = self._waiting_bytes()
            if not waiting or waiting >= WAITING_BYTES:
                self._close()

    def _insert(self) -> None:
        """Add the new rows to the open part; those of an earlier plan do where they are the same."""
        outcomes = outcomes_of([*self.parts, self._open])
        matched = [outcome.sources for outcome in outcomes if outcome.sources is not None]
        new = self.edit.inserts(pa.concat_arrays([NO_POSITIONS, *matched]))
        earlier = next((part for part in self.parts if part.inserted is not None), None)
        feed = self._feeds()
        if earlier is not None:
            if earlier.inserted == new.numbers and bool(earlier.cdc) == feed:
                return
            self.parts.remove(earlier)
            self._read([outcome.file for outcome in earlier.outcomes.values()])
        if len(new.numbers):
            self._open.inserted, self._open.rows_inserted = new.numbers, len(new.numbers)
            done = 0
            for rows in new.rows():
                report(f"inserting into {self._handle.name}", done, len(new.numbers), "rows")
                done += len(rows)
                self._waiting.append(rows)
                if self._changes is not None and feed:
                    self._changes.inserted(rows)
                if self._waiting_bytes() >= WAITING_BYTES:
                    self._write(self._open)

    def _feeds(self) -> bool:
        """Whether the commit holds change files, which then must hold all changes."""
        if self._changes is None:
            return False
        return self._with_others or self._changes.waiting_bytes > 0 or any(part.cdc for part in self.parts)

    def _waiting_bytes(self) -> int:
        """Return how much of the open part waits to share a file with what comes next; 0 if it is complete."""
        vectors = sum(each.vector.nbytes for each in self._open.outcomes.values() if each.vector is not None)
        changes = 0 if self._changes is None else self._changes.waiting_bytes
        return changes + vectors + sum(rows.nbytes for rows in self._waiting)

    def _read_whole(self) -> None:
        """A commit with change files must hold all its changes in them, including those of completely removed files."""
        if not self._feeds():
            return
        silent = [part for part in self.parts if not part.cdc and any(each.changed for each in part.outcomes.values())]
        self.parts = [part for part in self.parts if part not in silent]
        self._read([each.file for part in silent for each in part.outcomes.values()])

    def _process(self, data: DataFile) -> Outcome:
        matched = self._find(data)
        if matched is None:
            return Outcome(data.file, changed=False)
        hits = matched.changing()
        if not hits.changed and not self.edit.erases:
            return Outcome(data.file, changed=False, sources=matched.sources)
        live = data.live.true_count
        outcome = Outcome(
            data.file,
            changed=True,
            rows=data.rows,
            deleted=hits.changed - hits.rows_updated,
            updated=hits.rows_updated,
            sources=matched.sources,
        )
        self._odd_times = self._counted(data, hits)
        if hits.changed == live and not (hits.rows_updated and self.edit.in_place and not self._vectors):
            self._take(data, hits)
        elif self._vectors:
            outcome.vector = sorted_positions(pa.concat_arrays([data.deleted, positions_of(hits.mask)]))
            self._take(data, hits)
        else:
            outcome.copied = live - hits.changed
            self._rewrite(data, hits, outcome)
        if self._odd_times is not None:
            in_place = outcome.vector is None and self.edit.in_place and not self._vectors
            outcome.odd_times = self._odd_times.left(in_place=in_place)
            self._open.odd_times += Counter() if in_place else self._odd_times.moved()
        return outcome

    def _counted(self, data: DataFile, hits: Hits) -> OddTimeCounts | None:
        """Return the odd times of a file that counts some, with all its rows seen."""
        counts = counts_of(data.file, self._snapshot.schema.names)
        if counts is None:
            return None
        start = 0
        for batch in data.batches(TIME_COLUMNS):
            here = hits.mask.slice(start, len(batch))
            counts.seen(batch, data.live.slice(start, len(batch)), here)
            start += len(batch)
        return counts

    def _find(self, data: DataFile) -> Hits | None:
        """Return the rows to change: remembered where only the file's deletion vector is new."""
        known = self._found.get(data.file.path)
        if known is not None and pc.all(pc.is_in(known.deleted, value_set=data.deleted), min_count=0).as_py():
            return None if known.hits is None else known.hits.among(data.live)
        hits = self.edit.find(data)
        remembered = _FoundRows(data.rows, data.deleted, hits)
        if self._vectors and self._found_bytes + remembered.nbytes <= REMEMBERED_BYTES:
            self._found[data.file.path] = remembered
            self._found_bytes += remembered.nbytes
        return hits

    def _rewrite(self, data: DataFile, hits: Hits, outcome: Outcome) -> None:
        """Write the rows that stay into a new file, updated ones in place where they may stay too.

        The file goes into the store with the next one, or in the end.
        """
        sink = FileSink(self._handle, self._snapshot, data.file, self._background)
        try:
            for rows in self._kept(data, hits):
                sink.write(rows)
            sink.flush()
            self._settle()
        except BaseException:
            sink.close()
            raise
        self._encoded = outcome, sink

    def _kept(self, data: DataFile, hits: Hits) -> Iterator[pa.Table]:
        """Yield the rows that a file keeps, a part at a time."""
        start = 0
        for batch in data.batches(self._snapshot.schema.names, rows=self.edit.rows_at_once):
            rows, here = pa.Table.from_batches([batch]), hits.slice(start, len(batch))
            live = data.live.slice(start, len(batch))
            start += len(batch)
            new = self._renew(rows, here)
            if new is None or not self.edit.in_place:
                yield _filtered(rows, pc.and_not(live, here.mask))
                continue
            if self._check is not None:
                self._check(new)
            updated = _spread(here)
            rows = interleaved(rows, updated, new.select(self.edit.columns_set))
            yield _filtered(rows, pc.or_(pc.and_not(live, here.mask), updated))

    def _settle(self) -> None:
        """Put the file into the store that was encoded last, if any."""
        if self._encoded is None:
            return
        outcome, sink = self._encoded
        add = sink.finish()
        outcome.add = add if add is None or not outcome.odd_times else with_counts(add, outcome.odd_times)
        sink.close()
        self._encoded = None

    def _abandon(self) -> None:
        """Leave a file to a later plan that was encoded, and is not in the store."""
        if self._encoded is None:
            return
        outcome, sink = self._encoded
        sink.close()
        self._encoded = None
        self.parts = [part for part in self.parts if outcome.file.key not in part.outcomes]

    def _take(self, data: DataFile, hits: Hits) -> None:
        """Read the rows that change, where anything must be known of them but their positions."""
        if not hits.rows_updated and self._changes is None:
            return
        start = 0
        for batch in data.batches(self._snapshot.schema.names):
            here = hits.slice(start, len(batch))
            start += len(batch)
            if here.changed:
                self._renew(pa.Table.from_batches([batch]), here)

    def _renew(self, rows: pa.Table, hits: Hits) -> pa.Table | None:
        """Return what the updated rows of a batch become, and leave word of all that change.

        New rows that cannot stay in place wait for a file of their own.
        """
        if not hits.changed:
            return None
        old = pc.filter(rows, hits.mask)
        new = None
        if hits.updated is not None and hits.rows_updated:
            new = self.edit.renew(pc.filter(old, hits.updated), hits.updating())
            if self._odd_times is not None:
                self._odd_times.renewed(new)
            if not self.edit.in_place or self._vectors:
                self._waiting.append(new)
        if self._changes is not None:
            self._changes.changed(old, hits.updated, new)
        return new

    def _close(self) -> None:
        part = self._open
        if not part.outcomes and part.inserted is None:
            return
        self._write(part)
        vectors = [outcome for outcome in part.outcomes.values() if outcome.vector is not None]
        positions = [outcome.vector for outcome in vectors if outcome.vector is not None]
        descriptors = write_deletions(self._handle.store, self._snapshot.root, self._handle.clock, positions)
        for outcome, vector in zip(vectors, descriptors, strict=True):
            stats = loose_statistics(outcome.file.stats, outcome.rows)
            outcome.vector = None
            add = replace(outcome.file, deletion_vector=vector, stats=stats, data_change=True)
            outcome.add = add if outcome.odd_times is None else with_counts(add, outcome.odd_times)
        self.parts.append(part)
        self._open = self._new_part()

    def _write(self, part: Part) -> None:
        """Write the rows that wait for files of their own, and the changes."""
        if self._waiting:
            rows = pa.concat_tables(self._waiting)
            written = self._writer.write(rows)
            part.adds += with_odd_times(written, part.odd_times, rows, self._snapshot.physical_name("ts"))
            self._waiting, part.odd_times = [], Counter()
        if self._changes is not None:
            part.cdc += self._changes.finish()


def _whole(file: AddFile) -> Outcome:
    rows = file.num_records
    gone = 0 if file.deletion_vector is None else cardinality_of(file.deletion_vector)
    return Outcome(file, changed=True, deleted=None if rows is None else rows - gone)


def _filtered(rows: pa.Table, mask: pa.BooleanArray) -> pa.Table:
    return rows if mask.true_count == len(rows) else pc.filter(rows, mask)


def _spread(hits: Hits) -> pa.BooleanArray:
    if hits.updated is None:
        return pc.and_not(hits.mask, hits.mask)
    return pc.replace_with_mask(hits.mask, hits.mask, hits.updated)
