"""Events into a lake: rejects are kept first, then the rows are committed, each exactly once.

Both writes are by `event_id` within the table's window, so a retry after a crash between the two changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import pyarrow as pa

from alluvia.clock import Clock
from alluvia.errors import Invalid, MetadataChanged, TableDropped, TableNotFound
from alluvia.ingest.identity import reject_id
from alluvia.ingest.rows import to_rows
from alluvia.ingest.values import RawEvent, Reject, Rows
from alluvia.table.handle import TableHandle
from alluvia.table.properties import DEDUP_WINDOW

REJECTS_SCHEMA = pa.schema(
    [
        pa.field("event_id", pa.string(), nullable=False),
        pa.field("received_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("raw", pa.binary()),
    ]
)
_TRIES = 5


class Ingested(Protocol):
    """What a table says of an ingestion: see `alluvia.operations.ingest.Ingested`."""

    @property
    def version(self) -> int: ...  # noqa: D102
    @property
    def duplicates(self) -> int: ...  # noqa: D102


class EventTable(Protocol):
    """The part of `alluvia.Table` that ingestion needs."""

    @property
    def handle(self) -> TableHandle: ...  # noqa: D102
    def ingest(self, rows: pa.Table) -> Ingested: ...  # noqa: D102


class EventLake(Protocol):
    """The part of `alluvia.Lake` that ingestion needs; this layer stands below that one."""

    clock: Clock

    def table(self, name: str) -> EventTable: ...  # noqa: D102
    def create_events(self, name: str, *, exist_ok: bool) -> EventTable: ...  # noqa: D102
    def create_table(  # noqa: D102
        self,
        name: str,
        schema: pa.Schema,
        partition_by: Sequence[str],
        sort_by: Sequence[str],
        properties: Mapping[str, str],
        *,
        exist_ok: bool,
    ) -> EventTable: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request's events: accepted + rejected = sent.

    accepted: events that are rows now, `duplicates` of them since before. version: a version that holds them; None
    if none was accepted. rejects: in the order of the request.
    """

    accepted: int
    duplicates: int
    rejected: int
    version: int | None
    rejects: list[Reject] = field(default_factory=list)


def open_events(lake: EventLake, name: str, *, create: bool) -> EventTable:
    """Return the table, warm: without a request if this process knows it.

    Creates it as an event table if it does not exist and `create` allows that. Raises Invalid for a bad name,
    TableNotFound.
    """
    if "/" in name:
        raise Invalid(f"table name {name!r}: events go to a table, not to its rejects")
    table = lake.table(name)
    try:
        table.handle.at_hand()
    except TableNotFound:
        if not create:
            raise TableNotFound(f"there is no table {name!r}: create it first, with `alluvia create {name}`") from None
        return lake.create_events(name, exist_ok=True)
    return table


def ingest_batch(
    lake: EventLake,
    name: str,
    events: Sequence[RawEvent],
    rejects: Sequence[Reject] = (),
    *,
    arrival_us: int,
    idempotency_key: str | None = None,
    create: bool = False,
) -> Answer:
    """Commit events to a table in one commit, after keeping what is rejected under `<name>/_rejects`.

    rejects: those of the same request that were found before. create: whether a missing table is made.
    Raises Invalid, TableNotFound, Unavailable, CommitUnknown, Conflict: then send the same events again. Where the
    table is dropped meanwhile, they go to the next one of its name, if there is one by now or `create` makes it.
    """
    once = partial(
        _ingest_once, lake, name, events, rejects,
        arrival_us=arrival_us, idempotency_key=idempotency_key, create=create,
    )  # fmt: skip
    try:
        return once()
    except TableDropped:
        return once()


def _ingest_once(
    lake: EventLake,
    name: str,
    events: Sequence[RawEvent],
    rejects: Sequence[Reject],
    *,
    arrival_us: int,
    idempotency_key: str | None,
    create: bool,
) -> Answer:
    table = open_events(lake, name, create=create)
    kept = list(rejects)
    keep_rejects(lake, name, rejects, arrival_us=arrival_us, idempotency_key=idempotency_key)

    def rows_for(schema: pa.Schema, pending: Sequence[RawEvent], reasons: Mapping[int, str]) -> Rows:
        rows = to_rows(
            pending, schema, arrival_us=arrival_us, idempotency_key=idempotency_key, new_id=lake.clock.new_id,
            refused=reasons,
        )  # fmt: skip
        keep_rejects(lake, name, rows.rejects, arrival_us=arrival_us, idempotency_key=idempotency_key)
        kept.extend(rows.rejects)
        return rows

    accepted, done = _commit(table, events, rows_for)
    kept.sort(key=lambda reject: reject.position)
    if done is None:
        return Answer(0, 0, len(kept), None, kept)
    return Answer(accepted, done.duplicates, len(kept), done.version, kept)


def keep_rejects(
    lake: EventLake, name: str, rejects: Sequence[Reject], *, arrival_us: int, idempotency_key: str | None
) -> None:
    """Write rejects to the table's rejects, once each however often they come within the table's window."""
    if not rejects:
        return
    rows = _reject_rows(rejects, arrival_us, idempotency_key)
    place = f"{name}/_rejects"
    table = lake.table(place)
    try:
        table.handle.at_hand()
    except TableNotFound:
        window = lake.table(name).handle.newest().properties.get(DEDUP_WINDOW)  # not while the table is dropped
        properties = {} if window is None else {DEDUP_WINDOW: window}
        table = lake.create_table(
            place, REJECTS_SCHEMA, ("day(received_at)",), ("received_at",), properties, exist_ok=True
        )
    _commit(table, (), lambda _schema, _events, _reasons: Rows(rows, [], []))


def _commit(
    table: EventTable,
    events: Sequence[RawEvent],
    rows_for: Callable[[pa.Schema, Sequence[RawEvent], Mapping[int, str]], Rows],
) -> tuple[int, Ingested | None]:
    """Commit rows made for the table's schema; make them again if the schema turns out to be another.

    Rows that the table refuses (CHECK constraints, values that no partition can have) become rejects, and the others
    go in. An event that was rejected stays so: its reject is written.
    """
    handle = table.handle
    schema = handle.at_hand().schema
    reasons: Mapping[int, str] = {}
    for tries_left in reversed(range(_TRIES)):
        rows, reasons = rows_for(schema, events, reasons), {}
        if not len(rows.table):
            return 0, None
        newest = handle.at_hand().schema  # where rejects were kept, a newer one may have been seen
        if newest.equals(schema) or not tries_left:
            try:
                return len(rows.table), table.ingest(rows.table)
            except (MetadataChanged, Invalid) as error:
                newest = handle.newest().schema
                by_rows = isinstance(error, Invalid) and newest.equals(schema)
                if by_rows and events:
                    reasons = handle.writer(handle.at_hand()).refusals(rows.table)
                if not tries_left or (by_rows and not reasons):
                    raise
        schema = newest
        refused = set(rows.refused)
        events = [event for index, event in enumerate(events) if index not in refused]
    raise AssertionError("the last try returns or raises")


def _reject_rows(rejects: Sequence[Reject], arrival_us: int, idempotency_key: str | None) -> pa.Table:
    ids = [each.event_id or reject_id(idempotency_key, each.position, each.raw) for each in rejects]
    arrays = [
        pa.array(ids, pa.string()),
        pa.array([arrival_us] * len(rejects), REJECTS_SCHEMA.field("received_at").type),
        pa.array([each.reason for each in rejects], pa.string()),
        pa.array([each.position for each in rejects], pa.int64()),
        pa.array([each.raw for each in rejects], pa.binary()),
    ]
    return pa.Table.from_arrays(arrays, schema=REJECTS_SCHEMA)
