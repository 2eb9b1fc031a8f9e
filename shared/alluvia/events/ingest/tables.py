"""The tables that events go to: found, or created by the first valid event."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import islice
from threading import Lock

import pyarrow as pa

from alluvia.commit.handle import TableHandle
from alluvia.delta.properties import DEDUP_WINDOW
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, TableDropped, TableNotFound
from alluvia.events.ingest.event_schema import EVENTS_PARTITIONED, EVENTS_SORTED, event_schema
from alluvia.events.ingest.rejects import RAW, REJECTS_SCHEMA
from alluvia.events.ingest.values import Fields
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.tables.evolve import evolve
from alluvia.table_names import REJECTS, TABLE_NAME

COMMIT_TRIES = 5
"""How often rows are made and committed again if the table turns out to have other columns."""
_COUNTING = Lock()  # held from counting the tables to creating one, so that no two threads create the last one allowed


def find_events(catalog: WritableCatalog, name: str) -> TableHandle | None:
    """Return the table, warm: without a request if this process knows it. None if there is none.

    Raises Invalid for a bad name.
    """
    if "/" in name:
        raise Invalid(f"table name {name!r:.200}: events go to a table, not to its rejects")
    table = catalog.handle(name)
    try:
        table.at_hand()
    except TableNotFound:
        return None
    return table


def newest_of(table: TableHandle) -> Snapshot:
    """Return the newest version. Raises `TableDropped` if there is none any more."""
    try:
        return table.newest()
    except TableNotFound as error:
        raise TableDropped(str(error)) from error


def takes_the_same(one: Snapshot, other: Snapshot) -> bool:
    """Whether two versions of a table make the same rows of the same events."""
    if one.state.metadata is other.state.metadata:
        return True
    return one.schema.equals(other.schema) and Fields.of(one.settings) == Fields.of(other.settings)


def create_events(catalog: WritableCatalog, name: str, *, create: bool, tables_max: int | None) -> TableHandle:
    """Create an event table. TableNotFound if `create` forbids that, or if the lake holds `tables_max` tables already.

    All folders of the lake count, dropped tables that vacuum has not taken yet among them: one LIST for a thousand.
    Within a process the limit is exact; each further process may create one table beyond it.
    """
    if not create:
        raise TableNotFound(f"there is no table {name!r}: create it first, with `alluvia create {name}`")
    with _COUNTING if tables_max is not None else nullcontext():
        if tables_max is not None and sum(1 for _ in islice(catalog.store.list_folders(""), tables_max)) == tables_max:
            there = find_events(catalog, name)  # another thread may just have created it
            if there is not None:
                return there
            raise TableNotFound(
                f"there is no table {name!r}, and events cannot create it: the lake has {tables_max} tables or more, "
                f"the limit of ALLUVIA_CREATE_TABLES_MAX; create it with `alluvia create {name}`"
            )
        return catalog.create(name, event_schema(), EVENTS_PARTITIONED, EVENTS_SORTED, None, exist_ok=True)


def find_rejects(catalog: WritableCatalog, table: TableHandle) -> TableHandle | None:
    """Return the table of a table's rejects; None if there is none."""
    if not TABLE_NAME.fullmatch(table.name):
        return None
    rejects = catalog.handle(f"{table.name}/{REJECTS}")
    try:
        return rejects if RAW in rejects.newest().schema.names else None
    except TableNotFound:
        return None


def lengthen_window(rejects: TableHandle, table: Snapshot) -> None:
    """Have rejects be known for as long as the events of their table. No request where they are."""
    if table.settings.dedup_window_ms > rejects.at_hand().settings.dedup_window_ms:
        evolve(rejects, properties={DEDUP_WINDOW: table.properties.get(DEDUP_WINDOW)})


def rejects_of(catalog: WritableCatalog, name: str) -> TableHandle:
    """Return the table of a table's rejects; the first one creates it."""
    place = f"{name}/{REJECTS}"
    table = catalog.handle(place)
    try:
        there = table.fitting(REJECTS_SCHEMA.names).schema.names
        if missing := [field for field in REJECTS_SCHEMA if field.name not in there]:  # made by an earlier release
            evolve(table, pa.schema(missing))
        if (parent := find_events(catalog, name)) is not None:  # else its rejects go with it
            lengthen_window(table, parent.at_hand())
    except TableNotFound:
        window = catalog.handle(name).newest().properties.get(DEDUP_WINDOW)  # not while the table is dropped
        properties = {} if window is None else {DEDUP_WINDOW: window}
        table = catalog.create(
            place, REJECTS_SCHEMA, ("day(received_at)",), ("received_at",), properties, exist_ok=True
        )
    return table
