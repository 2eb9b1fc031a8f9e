"""Commit the rows of events to a table whose columns and checks may change meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from alluvia.commit.event_window.id_runs import CONTENT_BYTES
from alluvia.commit.handle import TableHandle
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, MetadataChanged, TableDropped, TableNotFound
from alluvia.events.ingest.values import EventRows, Fields, RawEvent
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.append.ingest import Ingested, ingest, refusals

_TRIES = 5


@dataclass(frozen=True, slots=True)
class CommittedRows:
    """What became of rows: `events` are those that they were made of, `fields` those that the table named."""

    done: Ingested
    rows: EventRows
    events: Sequence[RawEvent]
    fields: Fields


def commit_rows(
    table: TableHandle,
    events: Sequence[RawEvent],
    rows_for: Callable[[Snapshot, Sequence[RawEvent], Mapping[int, str]], EventRows],
    refuse: Callable[[EventRows], object] = lambda _: None,
    begin: Callable[[], object] = lambda: None,
    gone_until: int = -1,
) -> CommittedRows | None:
    """Commit rows made for the table as it is; make them again if it turns out to have changed. None without a row.

    Rows that the table refuses (CHECK constraints, values that no partition can have) become rejects, and the others
    go in. Before an event is refused, the newest version is looked at: its columns may be others than those known here.
    An event that was rejected stays so: its reject is written. Rows without events are rejects: the id of each stands
    for its content.
    """
    snapshot, is_newest = table.at_hand(), False
    reasons: Mapping[int, str] = {}
    for tries_left in reversed(range(_TRIES)):
        rows = rows_for(snapshot, events, reasons)
        if rows.refused and tries_left and not is_newest:
            judged, snapshot, is_newest = snapshot, _newest(table), True
            if not _takes_the_same(snapshot, judged):
                reasons = {}  # which were those of other columns
                continue
        reasons = {}
        refuse(rows)
        if not len(rows.table):
            return None
        newest = table.at_hand()  # where rejects were kept, a newer one may have been seen
        if _takes_the_same(newest, snapshot) or not tries_left:
            contents = rows.contents or [bytes(CONTENT_BYTES)] * len(rows.table)
            begin()
            try:
                done = ingest(table, rows.table, contents, snapshot if events else None, gone_until)
                return CommittedRows(done, rows, events, Fields.of(snapshot.settings))
            except (MetadataChanged, Invalid) as error:
                newest = _newest(table)
                by_rows = isinstance(error, Invalid) and _takes_the_same(newest, snapshot)
                if by_rows and events:
                    reasons = refusals(newest, rows.table)
                if not tries_left or (by_rows and not reasons):
                    raise
        snapshot, events = newest, [events[index] for index in rows.taken]
    raise AssertionError("the last try returns or raises")


def _newest(table: TableHandle) -> Snapshot:
    """Return the newest version. Raises `TableDropped` if there is none any more."""
    try:
        return table.newest()
    except TableNotFound as error:
        raise TableDropped(str(error)) from error


def _takes_the_same(one: Snapshot, other: Snapshot) -> bool:
    """Whether two versions of a table make the same rows of the same events."""
    if one.state.metadata is other.state.metadata:
        return True
    return one.schema.equals(other.schema) and Fields.of(one.settings) == Fields.of(other.settings)
