"""Ingest rejected events again, after what they did not fit was changed: each becomes a row once.

The rows go in and the rejects go out in one transaction over both tables, so a crash, and a second replay at the same
time, neither lose nor double an event. Events keep the time of their arrival, and the ids that they would have got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.handle import TableHandle
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Conflict, Invalid, TableNotFound, cut
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
from alluvia.operations.append.ingest import Ingested, foresee, ingest, refusals
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.reading.scan import scan
from alluvia.operations.rows.keyed_merge import merge
from alluvia.operations.rows.merge import MATCHED, MergeClause, MergeRules
from alluvia.operations.transactions.lake_commit import WRITE_SERIALIZABLE
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia.operations.transactions.staging import StagedTable
from alluvia.table_names import REJECTS

if TYPE_CHECKING:
    from alluvia.events.ingest.repair import Repair

Reread = Callable[[Mapping[str, Any]], Split]
"""From a row of the rejects' table, `received_at` in µs, to the events that it is now, and what of it is none."""
BATCH_ROWS = 20_000
BATCH_BYTES = 64 << 20
REASONS_MAX = 20
ROWS_SHOWN = 5
SAMPLE_CHARS = 200
_CLASH = "the content differs: another event with its id came first"
_NO_EVENT = "it holds no event"
_TRIES = 10
_KEYS = ("event_id", "received_at")
_DELETE = MergeRules(
    "rejects", "settled", " AND ".join(f"rejects.{name} = settled.{name}" for name in _KEYS),
    [MergeClause(MATCHED, "delete")],
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Staying:
    """Why some rejects stay: how many for one reason, and the text of the first as sent, cut."""

    reason: str
    rejects: int
    sample: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """The report of a replay: rejects that it looked at, those that went away, and those that stay rejected.

    stored: rows added. duplicates: events that the table held already, because their sender has sent them again.
    odd_times: by kind, those of both. staying: the most frequent reasons of those that stay. In a dry run nothing has
    changed, and `rows` are some of the rows that would be added. unknown_fields: those that the expressions of a repair
    name and no event has. new_fields: those that it has set, and that neither an event nor the table had.
    """

    looked_at: int = 0
    settled: int = 0
    stored: int = 0
    duplicates: int = 0
    remaining: int = 0
    odd_times: Mapping[str, OddTimes] = field(default_factory=dict)
    staying: Sequence[Staying] = field(default=(), compare=False)
    rows: Sequence[Mapping[str, Any]] = field(default=(), compare=False)
    unknown_fields: Sequence[str] = ()
    new_fields: Sequence[str] = ()
    dry_run: bool = False

    def plus(self, other: Replayed) -> Replayed:
        """Return the sums of two."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        return Replayed(
            **sums,
            odd_times=summed(self.odd_times, other.odd_times),
            staying=_most([*self.staying, *other.staying]),
            rows=(*self.rows, *other.rows)[:ROWS_SHOWN],
            dry_run=other.dry_run,
        )

    def counts(self) -> dict[str, object]:
        """Return the numbers, as a command shows them, with `unreadable_times` and `future_times` if there are any."""
        return {name: getattr(self, name) for name in _COUNTS} | odd_times_said(self.odd_times)


_COUNTS = ("looked_at", "settled", "stored", "duplicates", "remaining")


def _most(staying: Iterable[Staying]) -> tuple[Staying, ...]:
    """Return the most frequent reasons, each once."""
    by_reason: dict[str, Staying] = {}
    for each in staying:
        known = by_reason.get(each.reason)
        by_reason[each.reason] = each if known is None else replace(known, rejects=known.rejects + each.rejects)
    return tuple(sorted(by_reason.values(), key=lambda each: -each.rejects)[:REASONS_MAX])


def replay(
    catalog: WritableCatalog,
    name: str,
    reread: Reread,
    where: str | None = None,
    sets: Mapping[str, str] = MappingProxyType({}),
    *,
    dry_run: bool = False,
) -> Replayed:
    """Ingest a table's rejects again, or those for which an SQL condition on their columns holds.

    reread: as each was sent and its source says now (`events.sources.receiving`). sets: SQL expressions over the fields
    of each event, by the fields that get their values first (`repair`); the rows know the content that was sent, so the
    broken event is a duplicate if it comes again. An event that still does not fit stays a reject, as it was sent.
    dry_run: change nothing. One commit of both tables for 20,000 rejects or 64 MB of them. Raises `TableNotFound`,
    `Invalid` for a bad condition or expression, and `Conflict` where others change the tables all the time; what was
    committed before stays, and a second call goes on with the rest.
    """
    table = find_events(catalog, name)
    if table is None:
        raise TableNotFound(f"there is no table {name!r}")
    repair = None
    if sets:
        from alluvia.events.ingest.repair import Repair  # loaded late: expressions need DuckDB

        newest = table.newest()
        repair = Repair(sets, Fields.of(newest), newest.schema.names)
    total = Replayed(dry_run=dry_run)
    try:
        rejects = catalog.handle(f"{name}/{REJECTS}").newest()
    except TableNotFound:
        return total
    run = _dry if dry_run else _replay
    for batch in _batches(scan(rejects, catalog.store, None, where)):
        total = total.plus(run(catalog, name, reread, batch, repair))
    if repair is None or not total.looked_at:
        return total
    return replace(total, unknown_fields=tuple(sorted(repair.unknown)), new_fields=tuple(sorted(repair.new)))


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


def _dry(catalog: WritableCatalog, name: str, reread: Reread, rejects: pa.Table, repair: Repair | None) -> Replayed:
    """Return the plan of a replay of some rejects."""
    attempt = _Attempt(catalog, catalog.handle(name), reread, rejects, repair)
    attempt.judge(foresee)
    return attempt.report(dry_run=True)


def _replay(catalog: WritableCatalog, name: str, reread: Reread, rejects: pa.Table, repair: Repair | None) -> Replayed:
    """Replay some rejects in one transaction, again where another writer was first."""
    place = f"{name}/{REJECTS}"
    for tries_left in reversed(range(_TRIES)):
        tables = StagedTables(catalog, [name, place])
        attempt = _Attempt(catalog, tables.handle(name), reread, rejects, repair)
        try:
            if attempt.done(tables.handle(place)):
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


class _Refused(NamedTuple):
    """An event that stays: the number of its reject, the event as sent, and why."""

    owner: int
    event: RawEvent
    reason: str


class _Attempt:
    """One try. The events are those of rejects, by whose numbers they go; `repaired` they become rows."""

    def __init__(
        self,
        catalog: WritableCatalog,
        table: TableHandle,
        reread: Reread,
        rejects: pa.Table,
        repair: Repair | None,
    ) -> None:
        self._catalog = catalog
        self._table = table
        self._rejects = rejects
        self._events: list[RawEvent] = []
        self._owners: list[int] = []
        self._unread: list[tuple[int, Reject, Origin]] = []
        plain = rejects.set_column(
            rejects.schema.get_field_index("received_at"), "received_at", rejects["received_at"].cast(pa.int64())
        )
        self._raws = plain["raw"].to_pylist()
        for number, row in enumerate(plain.to_pylist()):
            reread_row = reread(row)
            self._events += reread_row.events
            self._owners += [number] * len(reread_row.events)
            origin = next((each.origin for each in reread_row.events if each.origin), Origin(row["received_at"]))
            self._unread += [(number, each, origin) for each in reread_row.rejects]
        self._repaired, self._failed = repair.apply(self._events) if repair is not None else (self._events, {})
        self._stored = self._duplicates = 0
        self._odd_times: Mapping[str, OddTimes] = {}
        self._settled: set[int] = set()
        self._refused: list[_Refused] = []
        self._rows: list[dict[str, Any]] = []

    def done(self, place: StagedTable) -> bool:
        """Stage the outcome of the rejects. False if some of them are gone by now."""
        before = place.newest()
        self.judge(ingest)
        if not self._settled:
            return True
        self._keep(place, [each for each in self._refused if each.owner in self._settled])
        rows = self._rejects.select(_KEYS).take(pa.array(sorted(self._settled), pa.int64()))
        settled = rows.group_by(list(_KEYS)).aggregate([])  # a reject may have been kept twice
        deleted = merge(place, settled, _DELETE).rows_deleted
        return deleted == len(rows) == len(settled) or len(_present(before, self._catalog, settled)) == len(settled)

    def report(self, *, dry_run: bool = False) -> Replayed:
        """Return what was done."""
        count, settled = len(self._rejects), len(self._settled)
        reasons = {owner: reject.reason for owner, reject, _ in self._unread}
        reasons |= {each.owner: each.reason for each in reversed(self._refused)}
        staying = [Staying(reasons.get(at, _NO_EVENT), 1, self._sample(at)) for at in all_but(self._settled, count)]
        return Replayed(
            count, settled, self._stored, self._duplicates, count - settled, self._odd_times, _most(staying),
            tuple(self._rows) if dry_run else (), dry_run=dry_run,
        )  # fmt: skip

    def _sample(self, number: int) -> str:
        return cut((self._raws[number] or b"").decode("utf-8", "replace"), SAMPLE_CHARS)

    def judge(self, store: Callable[..., Ingested]) -> None:
        """Have the rows of events that fit stored, and keep the reasons of the others."""
        snapshot = self._table.newest()
        self._fields = Fields.of(snapshot)
        left = [at for at in range(len(self._events)) if at not in self._failed]
        self._refuse(self._failed)
        reasons: Mapping[int, str] = {}
        while left:
            rows = self._made([self._repaired[at] for at in left], snapshot, reasons)
            pairs = zip(rows.refused, rows.rejects, strict=True)
            self._refuse({left[index]: reject.reason for index, reject in pairs})
            left = [left[index] for index in rows.taken]
            if not left:
                return
            try:
                kinds = {row: odd.kind for row, odd in rows.odd_times.items()}
                contents = contents_of([self._events[at] for at in left])
                done = store(self._table, rows.table, contents, odd_times=kinds)
                break
            except Invalid:
                reasons = refusals(snapshot, rows.table)
                if not reasons:
                    raise
        else:
            return
        clashes = set(done.clashes)
        self._refuse({left[row]: _CLASH for row in sorted(clashes)})
        self._settled = {self._owners[at] for row, at in enumerate(left) if row not in clashes}
        self._stored, self._duplicates = done.appended, done.duplicates
        self._rows = rows.table.take(pa.array(list(done.new)[:ROWS_SHOWN], pa.int64())).to_pylist()
        self._odd_times = counted(odd for row, odd in sorted(rows.odd_times.items()) if row not in clashes)

    def _refuse(self, reasons: Mapping[int, str]) -> None:
        self._refused += [_Refused(self._owners[at], self._events[at], reason) for at, reason in reasons.items()]

    def _made(self, events: Sequence[RawEvent], snapshot: Snapshot, reasons: Mapping[int, str]) -> EventRows:
        return to_rows(
            events, snapshot.schema, arrival_us=0, idempotency_key=None, new_id=self._catalog.clock.new_id,
            fields=self._fields, refused=reasons,
        )  # fmt: skip

    def _keep(self, place: StagedTable, refused: Sequence[_Refused]) -> None:
        """Stage rejects of their own for what else was in a body of which events have become rows."""
        kept = [(reject, origin) for owner, reject, origin in self._unread if owner in self._settled]
        for _, event, reason in refused:
            origin = event.origin or Origin(0)
            kept.append((reject_of(event, reason, origin, self._fields), origin))
        if kept:
            rejects, origins = zip(*kept, strict=True)
            rows = reject_rows(rejects, origins)
            known = all_but(ingest(place, rows).new, len(rows))
            there = place.newest()
            if gone := missing(there, place.store, rows, known):
                ingest(place, rows.take(pa.array(gone, pa.int64())), gone_until=there.version)
