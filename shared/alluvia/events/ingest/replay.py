"""Ingest rejected events again, after what they did not fit was changed: each becomes a row once.

The rows go in and the rejects go out in one transaction over both tables, so a crash, and a second replay at the same
time, neither lose nor double an event. Events keep the time of their arrival, and the ids that they would have got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Conflict, Invalid, TableNotFound
from alluvia.events.ingest.event_rows import to_rows
from alluvia.events.ingest.event_tables import find_events, missing
from alluvia.events.ingest.identity import contents_of
from alluvia.events.ingest.rejects import reject_of, reject_rows
from alluvia.events.ingest.values import (
    EventRows,
    Fields,
    OddTimes,
    Origin,
    RawEvent,
    Reject,
    Split,
    all_but,
    counted,
    odd_times_said,
    summed,
)
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.append.ingest import ingest, refusals
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.reading.scan import scan
from alluvia.operations.rows.keyed_merge import merge
from alluvia.operations.rows.merge import MATCHED, MergeClause, MergeRules
from alluvia.operations.transactions.lake_commit import WRITE_SERIALIZABLE
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia.operations.transactions.staging import StagedTable
from alluvia.table_names import REJECTS

Reread = Callable[[Mapping[str, Any]], Split]
"""From a row of the rejects' table, `received_at` in µs, to the events that it is now, and what of it is none."""
BATCH_ROWS = 20_000
BATCH_BYTES = 64 << 20
_TRIES = 10
_KEYS = ("event_id", "received_at")
_DELETE = MergeRules(
    "rejects", "settled", " AND ".join(f"rejects.{name} = settled.{name}" for name in _KEYS),
    [MergeClause(MATCHED, "delete")],
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Replayed:
    """The report of a replay: rejects that it looked at, those that went away, and those that stay rejected.

    stored: rows added. duplicates: events that the table held already, because their sender has sent them again.
    odd_times: by kind, those of both.
    """

    looked_at: int = 0
    settled: int = 0
    stored: int = 0
    duplicates: int = 0
    remaining: int = 0
    odd_times: Mapping[str, OddTimes] = field(default_factory=dict)

    def plus(self, other: Replayed) -> Replayed:
        """Return the sums of two."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        return Replayed(**sums, odd_times=summed(self.odd_times, other.odd_times))

    def said(self) -> dict[str, object]:
        """Return the report of a command, with `unreadable_times` and `future_times` if there are any."""
        return {name: getattr(self, name) for name in _COUNTS} | odd_times_said(self.odd_times)


_COUNTS = ("looked_at", "settled", "stored", "duplicates", "remaining")


def replay(catalog: WritableCatalog, name: str, reread: Reread, where: str | None = None) -> Replayed:
    """Ingest a table's rejects again, or those for which an SQL condition on their columns holds.

    reread: as each was sent and its source says now (`events.sources.receiving`). An event that still does not fit
    stays a reject. One commit of both tables for 20,000 rejects or 64 MB of them. Raises `TableNotFound`, `Invalid` for
    a bad condition, and `Conflict` where others change the tables all the time; what was committed before stays, and a
    second call goes on with the rest.
    """
    if find_events(catalog, name) is None:
        raise TableNotFound(f"there is no table {name!r}")
    try:
        rejects = catalog.handle(f"{name}/{REJECTS}").newest()
    except TableNotFound:
        return Replayed()
    total = Replayed()
    for batch in _batches(scan(rejects, catalog.store, None, where)):
        total = total.plus(_replay(catalog, name, reread, batch))
    return total


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield rows in bigger tables, as far as memory allows."""
    held: list[pa.RecordBatch] = []
    for batch in reader:
        for start in range(0, len(batch), 1000):
            held.append(batch.slice(start, 1000))
            if sum(map(len, held)) >= BATCH_ROWS or sum(each.nbytes for each in held) >= BATCH_BYTES:
                yield pa.Table.from_batches(held)
                held = []
    if held:
        yield pa.Table.from_batches(held)


def _replay(catalog: WritableCatalog, name: str, reread: Reread, rejects: pa.Table) -> Replayed:
    """Replay some rejects in one transaction, again where another writer was first."""
    place = f"{name}/{REJECTS}"
    for tries_left in reversed(range(_TRIES)):
        tables = StagedTables(catalog, [name, place])
        attempt = _Attempt(catalog, tables.handle(name), tables.handle(place), reread, rejects)
        try:
            if attempt.done():
                tables.commit(WRITE_SERIALIZABLE)
                return attempt.report()
        except Conflict:
            if not tries_left:
                raise
        rejects = _present(catalog.handle(place).newest(), catalog, rejects)
    raise Conflict(f"{place}: other writers change the rejects all the time: replay them again later")


def _present(snapshot: Snapshot, catalog: WritableCatalog, rejects: pa.Table) -> pa.Table:
    """Return those of some rejects that a version still has."""
    there = scan(snapshot, catalog.store, ["event_id"]).read_all()
    return rejects.filter(pc.is_in(rejects["event_id"], value_set=there["event_id"]))


class _Attempt:
    """One try: `owners` are the numbers of the rejects that events come from."""

    def __init__(
        self, catalog: WritableCatalog, table: StagedTable, place: StagedTable, reread: Reread, rejects: pa.Table
    ) -> None:
        self._catalog = catalog
        self._table = table
        self._place = place
        self._before = place.newest()
        self._rejects = rejects
        self._events: list[RawEvent] = []
        self._owners: list[int] = []
        self._unread: list[tuple[int, Reject, Origin]] = []
        plain = rejects.set_column(
            rejects.schema.get_field_index("received_at"), "received_at", rejects["received_at"].cast(pa.int64())
        )
        for number, row in enumerate(plain.to_pylist()):
            reread_row = reread(row)
            self._events += reread_row.events
            self._owners += [number] * len(reread_row.events)
            origin = next((each.origin for each in reread_row.events if each.origin), Origin(row["received_at"]))
            self._unread += [(number, each, origin) for each in reread_row.rejects]
        self._stored = self._duplicates = 0
        self._odd_times: Mapping[str, OddTimes] = {}
        self._settled: set[int] = set()

    def done(self) -> bool:
        """Stage the outcome of the rejects. False if some of them are gone by now."""
        refused = self._ingest()
        if not self._settled:
            return True
        self._keep([each for each in refused if each[0] in self._settled])
        rows = self._rejects.select(_KEYS).take(pa.array(sorted(self._settled), pa.int64()))
        settled = rows.group_by(list(_KEYS)).aggregate([])  # a reject may have been kept twice
        deleted = merge(self._place, settled, _DELETE).rows_deleted
        return deleted == len(rows) == len(settled) or len(_present(self._before, self._catalog, settled)) == len(
            settled
        )

    def report(self) -> Replayed:
        """Return what was done."""
        count, settled = len(self._rejects), len(self._settled)
        return Replayed(count, settled, self._stored, self._duplicates, count - settled, self._odd_times)

    def _ingest(self) -> list[tuple[int, RawEvent, str]]:
        """Stage the rows of what fits now. Returns the other events, with their owners and the reasons."""
        snapshot = self._table.newest()
        fields = Fields.of(snapshot.settings)
        reasons: Mapping[int, str] = {}
        refused: list[tuple[int, RawEvent, str]] = []
        events, owners = self._events, self._owners
        while True:
            rows = self._rows(events, reasons)
            for index, reject in zip(rows.refused, rows.rejects, strict=True):
                refused.append((owners[index], events[index], reject.reason))
            owners = [owners[index] for index in rows.taken]
            events = [events[index] for index in rows.taken]
            if not events:
                return refused
            try:
                kinds = {row: odd.kind for row, odd in rows.odd_times.items()}
                done = ingest(self._table, rows.table, contents_of(events), odd_times=kinds)
                break
            except Invalid:
                reasons = refusals(snapshot, rows.table)
                if not reasons:
                    raise
        clashes = set(done.clashes)
        refused += [(owners[at], events[at], "another event has its id") for at in sorted(clashes)]
        self._settled = {owner for at, owner in enumerate(owners) if at not in clashes}
        self._stored, self._duplicates = done.appended, done.duplicates
        self._odd_times = counted(odd for row, odd in sorted(rows.odd_times.items()) if row not in clashes)
        self._fields = fields
        return refused

    def _rows(self, events: Sequence[RawEvent], reasons: Mapping[int, str]) -> EventRows:
        snapshot = self._table.newest()
        return to_rows(
            events, snapshot.schema, arrival_us=0, idempotency_key=None, new_id=self._catalog.clock.new_id,
            fields=Fields.of(snapshot.settings), refused=reasons,
        )  # fmt: skip

    def _keep(self, refused: Sequence[tuple[int, RawEvent, str]]) -> None:
        """Stage rejects of their own for what else was in a body of which events have become rows."""
        kept = [(reject, origin) for owner, reject, origin in self._unread if owner in self._settled]
        for _, event, reason in refused:
            origin = event.origin or Origin(0)
            kept.append((reject_of(event, reason, origin, self._fields), origin))
        if kept:
            rejects, origins = zip(*kept, strict=True)
            rows = reject_rows(rejects, origins)
            known = all_but(ingest(self._place, rows).new, len(rows))
            there = self._place.newest()
            if gone := missing(there, self._place.store, rows, known):
                ingest(self._place, rows.take(pa.array(gone, pa.int64())), gone_until=there.version)
