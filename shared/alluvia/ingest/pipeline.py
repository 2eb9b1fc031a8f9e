"""Store events in a lake: first the rejects, then the rows, each exactly once.

Both writes deduplicate by `event_id` within the table's window, so a retry after a crash between the two is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from alluvia.errors import Invalid, MetadataChanged, TableDropped
from alluvia.ingest.identity import content_of
from alluvia.ingest.rejects import clash_reason, reject_of, reject_rows
from alluvia.ingest.rows import to_rows
from alluvia.ingest.tables import create_events, event_schema, find_events, rejects_of
from alluvia.ingest.values import NO_FIELDS, EventRows, Fields, Origin, RawEvent, Reject
from alluvia.operations.catalog import Catalog
from alluvia.operations.ingest import Ingested, ingest, refusals
from alluvia.operations.replanning import check_not_rollup
from alluvia.table.event_window.id_runs import CONTENT_BYTES
from alluvia.table.handle import TableHandle
from alluvia.table.snapshot import Snapshot

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request's events: accepted + rejected = sent, accepted = stored + duplicates.

    stored: rows that the request has added. duplicates: events that the table holds since before, or that came twice.
    conflicting: those of the rejected whose id the table knows with other content. version: one that holds all that is
    accepted; None if nothing is. rejects: in the order of the request. kept: False where there is no table, so that
    the rejects went nowhere.
    """

    stored: int
    duplicates: int
    rejected: int
    conflicting: int
    version: int | None
    rejects: list[Reject] = field(default_factory=list)
    kept: bool = True

    @property
    def accepted(self) -> int:
        """Return how many events need not be sent again, as rows hold them."""
        return self.stored + self.duplicates

    def counts(self) -> dict[str, int | None]:
        """Return the numbers as an answer to the sender has them."""
        return {
            "accepted": self.accepted,
            "stored": self.stored,
            "duplicates": self.duplicates,
            "rejected": self.rejected,
            "conflicting": self.conflicting,
            "version": self.version,
        }


def ingest_batch(
    catalog: Catalog,
    name: str,
    events: Sequence[RawEvent],
    rejects: Sequence[Reject] = (),
    *,
    arrival_us: int,
    idempotency_key: str | None = None,
    create: bool = False,
    tables_max: int | None = None,
) -> Answer:
    """Commit events to a table in one commit, and keep what is rejected under `<name>/_rejects`.

    rejects: those of the same request that were found before. create: whether a missing table is made, as long as the
    lake has fewer than tables_max; only an event that fits makes it.
    Raises Invalid, TableNotFound, Unavailable, CommitUnknown, Conflict: then send the same events again. If the
    table is dropped in the meantime, they go to the next one of its name, if there is one by now or `create` makes it.
    """
    request = Origin(arrival_us, idempotency_key)
    once = partial(_ingest_once, catalog, name, events, rejects, request, create=create, tables_max=tables_max)
    try:
        return once()
    except TableDropped:
        return once()


def table_for(
    catalog: Catalog, name: str, events: Sequence[RawEvent], request: Origin, *, create: bool, tables_max: int | None
) -> tuple[TableHandle | None, list[Reject]]:
    """Return the table for events, created if it does not exist and one of them fits; otherwise None and their rejects.

    Raises `Invalid` for a bad name, and `TableNotFound` if the table may not be created.
    """
    table = find_events(catalog, name)
    if table is None and create:
        rows = _rows(catalog, events, event_schema(), NO_FIELDS, request)
        if not len(rows.table):
            return None, rows.rejects
    if table is None:
        table = create_events(catalog, name, create=create, tables_max=tables_max)
    return table, []


def _ingest_once(
    catalog: Catalog,
    name: str,
    events: Sequence[RawEvent],
    rejects: Sequence[Reject],
    request: Origin,
    *,
    create: bool,
    tables_max: int | None,
) -> Answer:
    table, misfits = table_for(catalog, name, events, request, create=create, tables_max=tables_max)
    if table is None:
        homeless = sorted([*rejects, *misfits], key=lambda reject: reject.position)
        return Answer(0, 0, len(homeless), 0, None, homeless, kept=not homeless)
    kept = list(rejects)
    keep_rejects(catalog, name, rejects, request)

    def rows_for(snapshot: Snapshot, pending: Sequence[RawEvent], reasons: Mapping[int, str]) -> EventRows:
        check_not_rollup(snapshot, "ingest")
        rows = _rows(catalog, pending, snapshot.schema, Fields.of(snapshot.settings), request, reasons)
        keep_rejects(catalog, name, rows.rejects, request)
        kept.extend(rows.rejects)
        return rows

    committed = _commit(table, events, rows_for)
    clashes: list[Reject] = []
    if committed is not None:
        clashes = _clashes(committed, request)
        keep_rejects(catalog, name, clashes, request)
    kept = sorted([*kept, *clashes], key=lambda reject: reject.position)
    if committed is None:
        return Answer(0, 0, len(kept), 0, None, kept)
    done = committed.done
    version = done.version if done.appended + done.duplicates else None
    return Answer(done.appended, done.duplicates, len(kept), len(clashes), version, kept)


def keep_rejects(catalog: Catalog, name: str, rejects: Sequence[Reject], request: Origin) -> None:
    """Write rejects to the table's rejects, once each however often they come within the table's window."""
    if not rejects:
        return
    rows = EventRows(reject_rows(rejects, request), [], [], ())
    _commit(rejects_of(catalog, name), (), lambda _snapshot, _events, _reasons: rows)


@dataclass(frozen=True, slots=True)
class _Committed:
    """What became of rows: `events` are those that they were made of, in order, `fields` those that the table named."""

    done: Ingested
    rows: pa.Table
    events: Sequence[RawEvent]
    fields: Fields


def _commit(
    table: TableHandle,
    events: Sequence[RawEvent],
    rows_for: Callable[[Snapshot, Sequence[RawEvent], Mapping[int, str]], EventRows],
) -> _Committed | None:
    """Commit rows made for the table as it is; make them again if it turns out to have changed. None without a row.

    Rows that the table refuses (CHECK constraints, values that no partition can have) become rejects, and the others
    go in. An event that was rejected stays so: its reject is written. Rows without events are rejects: the id of each
    stands for its content.
    """
    snapshot = table.at_hand()
    reasons: Mapping[int, str] = {}
    for tries_left in reversed(range(_TRIES)):
        rows, reasons = rows_for(snapshot, events, reasons), {}
        if not len(rows.table):
            return None
        taken = [events[index] for index in rows.taken]
        newest = table.at_hand()  # where rejects were kept, a newer one may have been seen
        if _takes_the_same(newest, snapshot) or not tries_left:
            contents = [content_of(event) for event in taken] or [bytes(CONTENT_BYTES)] * len(rows.table)
            try:
                done = ingest(table, rows.table, contents)
                return _Committed(done, rows.table, taken, Fields.of(snapshot.settings))
            except (MetadataChanged, Invalid) as error:
                newest = table.newest()
                by_rows = isinstance(error, Invalid) and _takes_the_same(newest, snapshot)
                if by_rows and events:
                    reasons = refusals(newest, rows.table)
                if not tries_left or (by_rows and not reasons):
                    raise
        snapshot, events = newest, taken
    raise AssertionError("the last try returns or raises")


def _takes_the_same(one: Snapshot, other: Snapshot) -> bool:
    """Whether two versions of a table make the same rows of the same events."""
    if one.state.metadata is other.state.metadata:
        return True
    return one.schema.equals(other.schema) and Fields.of(one.settings) == Fields.of(other.settings)


def _rows(
    catalog: Catalog,
    events: Sequence[RawEvent],
    schema: pa.Schema,
    fields: Fields,
    request: Origin,
    refused: Mapping[int, str] | None = None,
) -> EventRows:
    return to_rows(
        events, schema, arrival_us=request.arrival_us, idempotency_key=request.idempotency_key,
        new_id=catalog.clock.new_id, fields=fields, refused=refused,
    )  # fmt: skip


def _clashes(committed: _Committed, request: Origin) -> list[Reject]:
    """Return the rejects of events whose id is known, in the table's window or earlier in the batch, as another's."""
    found = []
    for at in committed.done.clashes:
        [row] = committed.rows.slice(at, 1).to_pylist()
        event = committed.events[at]
        found.append(reject_of(event, clash_reason(row), event.origin or request, committed.fields))
    return found
