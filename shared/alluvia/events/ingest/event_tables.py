"""The tables that events and their rejects go to: found or created, with each reject kept once.

The window of the rejects' table tells which ones are known, not which are there: a replay deletes those that become
rows, a restore of the table may take the rows back, and users delete and erase rejects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from threading import Lock
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.commit_records import table_at
from alluvia.commit.event_window.id_runs import CONTENT_BYTES, EVENT_ID, identity_columns
from alluvia.commit.handle import TableHandle
from alluvia.commit.versions import version_with
from alluvia.delta.data_files.scan import Scan, read_file
from alluvia.delta.properties import DEDUP_WINDOW
from alluvia.delta.skipping.predicate import And, Comparison, In
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, MetadataChanged, TableDropped, TableNotFound
from alluvia.events.ingest.event_rows import as_far_as_possible
from alluvia.events.ingest.identity import contents_of
from alluvia.events.ingest.rejects import EVENT, JUDGED, RAW, REJECTS_SCHEMA, read_given, read_json, reject_rows
from alluvia.events.ingest.values import (
    EVENTS_PARTITIONED,
    EVENTS_SORTED,
    Fields,
    Origin,
    RawEvent,
    Reject,
    all_but,
    event_schema,
)
from alluvia.operations.append.ingest import Ingested, ingest, known_events
from alluvia.operations.catalog.catalog import NewTable, WritableCatalog
from alluvia.operations.tables.evolve import evolve
from alluvia.store import Store
from alluvia.table_names import REJECTS, TABLE_NAME

COMMIT_TRIES = 5
"""How often rows are made and committed again if the table turns out to have other columns."""
_COUNTING = Lock()  # held from counting the tables to creating one, so that no two threads create the last one allowed


def find_events(catalog: WritableCatalog, name: str) -> TableHandle | None:
    """Return the table, warm: without a request if this process knows it. None if there is none.

    Raises Invalid for a bad name.
    """
    check_takes_events(name)
    table = catalog.handle(name)
    try:
        table.at_hand()
    except TableNotFound:
        return None
    return table


def check_takes_events(name: str) -> None:
    """Raise `Invalid` for a table of rejected events: ingestion creates it, with columns of its own."""
    if name.endswith(f"/{REJECTS}"):
        raise Invalid(f"table name {name!r:.200}: events go to a table, not to its rejects")


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
    return one.schema.equals(other.schema) and Fields.of(one) == Fields.of(other)


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
        return catalog.create(name, NewTable(event_schema(), EVENTS_PARTITIONED, EVENTS_SORTED), exist_ok=True)


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
        there = version_with(table, REJECTS_SCHEMA.names).schema.names
        if missing := [field for field in REJECTS_SCHEMA if field.name not in there]:  # made by an earlier release
            evolve(table, pa.schema(missing))
        if (parent := find_events(catalog, name)) is not None:  # else its rejects go with it
            lengthen_window(table, parent.at_hand())
    except TableNotFound:
        window = catalog.handle(name).newest().properties.get(DEDUP_WINDOW)  # not while the table is dropped
        properties = {} if window is None else {DEDUP_WINDOW: window}
        new = NewTable(REJECTS_SCHEMA, ("day(received_at)",), ("received_at",), properties)
        table = catalog.create(place, new, exist_ok=True)
    return table


IDS_NAMED_MAX = 1000
"""Up to this many ids choose files one by one; of more, the least and the greatest."""


def keep(catalog: WritableCatalog, name: str, rejects: Sequence[tuple[Origin, Reject]]) -> set[int]:
    """Write rejects that the table's rejects lack. Returns the positions of those that are rows.

    These are events that the table holds with the same content, since a replay has made rows of them: they are kept
    nowhere else. No request besides the commit, where no reject is known; else what `missing` takes, one look for new
    commits of the table for those that are gone, and a commit for those that are no rows.
    """
    if not rejects:
        return set()
    rows = reject_rows([each for _, each in rejects], [origin for origin, _ in rejects])
    place = rejects_of(catalog, name)
    known = all_but(_commit(place, rows).new, len(rows))
    if not known:
        return set()
    there = place.at_hand()
    deleting = table_at(place.log, there.state)  # replays that are in no version yet
    seen = place.as_of(deleting.shown) if deleting.claims else there
    gone = missing(seen, place.store, rows, known)
    if not gone:
        return set()
    # Only a look after the one at the rejects surely sees the rows of those that a replay has deleted.
    settled = {gone[at] for at in _are_rows(catalog.handle(name), rows.take(pa.array(gone, pa.int64())))}
    again = [at for at in gone if at not in settled]
    if again:
        _commit(place, rows.take(pa.array(again, pa.int64())), there.version)
    return settled


def _commit(table: TableHandle, rows: pa.Table, gone_until: int = -1) -> Ingested:
    """Ingest rejects, again if their table has other columns meanwhile. The id of each stands for its content.

    What the table knows from versions up to `gone_until` does not count.
    """
    contents = [bytes(CONTENT_BYTES)] * len(rows)
    for tries_left in reversed(range(COMMIT_TRIES)):
        snapshot = table.at_hand()
        try:
            return ingest(table, rows, contents, None, gone_until)
        except (MetadataChanged, Invalid) as error:
            same = takes_the_same(newest_of(table), snapshot)
            if not tries_left or (same and isinstance(error, Invalid)):
                raise
    raise AssertionError("the last try returns or raises")


def missing(rejects: Snapshot, store: Store, rows: pa.Table, known: Sequence[int]) -> list[int]:
    """Return which of the known ones of some rejects a version of their table does not have, by their positions.

    Newer files are read first, one GET each, until all are found: those that can hold one of the ids.
    """
    ids = rows[EVENT_ID].to_pylist()
    wanted = {ids[at] for at in known}.difference(ids[at] for at in all_but(known, len(ids)))
    if not wanted:
        return []
    scan = Scan(rejects, _one_of(sorted(wanted)), [EVENT_ID])
    for file in sorted(scan.files, key=lambda file: file.modification_time, reverse=True):
        values = pa.array(wanted, pa.string())
        for batch in read_file(rejects, store, file, scan.schema):
            batch_ids = batch[EVENT_ID]
            wanted.difference_update(batch_ids.filter(pc.is_in(batch_ids, value_set=values)).to_pylist())
        if not wanted:
            break
    return [at for at in known if ids[at] in wanted]


def _one_of(ids: Sequence[str]) -> In | And:
    if len(ids) <= IDS_NAMED_MAX:
        return In((EVENT_ID,), tuple(ids))
    return And((Comparison((EVENT_ID,), ">=", ids[0]), Comparison((EVENT_ID,), "<=", ids[-1])))


def stored_before(table: TableHandle, events: Sequence[RawEvent], origins: Sequence[Origin]) -> list[bool]:
    """Return which events that no longer fit a table it holds with their content, by the version that it knows.

    They are duplicates, like events that fit. The ids are in memory, except after a cold start.
    """
    snapshot = table.at_hand()
    if not events or not identity_columns(snapshot.schema):
        return [False] * len(events)
    rows = as_far_as_possible(events, snapshot.schema, Fields.of(snapshot), origins)
    return known_events(table, rows, contents_of(events))


def _are_rows(table: TableHandle, rejects: pa.Table) -> set[int]:
    """Return the numbers of the rejects all of whose events the table's newest version knows, with their content."""
    snapshot = newest_of(table)
    events: list[RawEvent] = []
    owners: list[int] = []
    at = rejects.schema.get_field_index("received_at")
    for number, row in enumerate(rejects.set_column(at, "received_at", rejects[at].cast(pa.int64())).to_pylist()):
        replayed = _as_replayed(row)
        events += replayed
        owners += [number] * len(replayed)
    if not events or not identity_columns(snapshot.schema):
        return set()
    rows = as_far_as_possible(events, snapshot.schema, Fields.of(snapshot))
    knows = known_events(table, rows, contents_of(events))
    return set(owners).difference(owner for owner, known in zip(owners, knows, strict=True) if not known)


def _as_replayed(row: Mapping[str, Any]) -> Sequence[RawEvent]:
    """Return the events that a replay makes of a reject; none of what takes a source's rules or a format to read."""
    said = read_given(row["given"])
    if said.reading is not None and said.raw != JUDGED and (said.raw != EVENT or said.reading.source):
        return []
    split = read_json(row)
    return [] if split.rejects else split.events
