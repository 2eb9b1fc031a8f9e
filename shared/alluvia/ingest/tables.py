"""The tables that events go to: found, or created by the first event that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Protocol

import pyarrow as pa

from alluvia.clock import Clock
from alluvia.errors import Invalid, TableNotFound
from alluvia.ingest.rejects import REJECTS_SCHEMA
from alluvia.store import Store
from alluvia.table.handle import TableHandle
from alluvia.table.properties import DEDUP_WINDOW

_TIME = pa.timestamp("us", tz="UTC")
EVENT_START = (
    pa.field("event_id", pa.string(), nullable=False),
    pa.field("ts", _TIME, nullable=False),
    pa.field("event", pa.string()),
    pa.field("source", pa.string()),
)
EVENT_END = (pa.field("properties", pa.string()), pa.field("received_at", _TIME, nullable=False))
EVENT_SCHEMA = pa.schema([*EVENT_START, *EVENT_END])
"""The columns of an event table without declared ones, which stand between `EVENT_START` and `EVENT_END`."""


class Ingested(Protocol):
    """What a table says of an ingestion: see `alluvia.operations.ingest.Ingested`."""

    @property
    def version(self) -> int: ...  # noqa: D102
    @property
    def appended(self) -> int: ...  # noqa: D102
    @property
    def duplicates(self) -> int: ...  # noqa: D102
    @property
    def clashes(self) -> Sequence[int]: ...  # noqa: D102


class EventTable(Protocol):
    """The part of `alluvia.Table` that ingestion needs."""

    @property
    def handle(self) -> TableHandle: ...  # noqa: D102
    def ingest(self, rows: pa.Table, contents: Sequence[bytes] | None = None) -> Ingested: ...  # noqa: D102


class EventLake(Protocol):
    """The part of `alluvia.Lake` that ingestion needs; this layer stands below that one."""

    clock: Clock
    store: Store

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


def find_events(lake: EventLake, name: str) -> EventTable | None:
    """Return the table, warm: without a request if this process knows it. None if there is none.

    Raises Invalid for a bad name.
    """
    if "/" in name:
        raise Invalid(f"table name {name!r:.200}: events go to a table, not to its rejects")
    table = lake.table(name)
    try:
        table.handle.at_hand()
    except TableNotFound:
        return None
    return table


def create_events(lake: EventLake, name: str, *, create: bool, tables_max: int | None) -> EventTable:
    """Create an event table. TableNotFound if `create` forbids that, or if the lake holds `tables_max` tables already.

    All folders of the lake count, dropped tables that vacuum has not taken yet among them: one LIST for a thousand.
    """
    what = f"there is no table {name!r}"
    if not create:
        raise TableNotFound(f"{what}: create it first, with `alluvia create {name}`")
    if tables_max is not None and sum(1 for _ in islice(lake.store.list_folders(""), tables_max)) == tables_max:
        raise TableNotFound(
            f"{what}, and events create no more: the lake has {tables_max} tables or more, the limit of "
            f"ALLUVIA_CREATE_TABLES_MAX; create it with `alluvia create {name}`"
        )
    return lake.create_events(name, exist_ok=True)


def rejects_of(lake: EventLake, name: str) -> EventTable:
    """Return the table of a table's rejects; the first one creates it."""
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
    return table
