"""Keep rejects, each once: also again, where one that is known has been deleted and its event is no row.

The window of the rejects' table tells which ones are known, not which are there: a replay deletes those that become
rows, a restore of the table may take the rows back, and users delete and erase rejects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.commit_records import happened
from alluvia.commit.event_window.id_runs import CONTENT_BYTES, EVENT_ID, identity_columns
from alluvia.commit.handle import TableHandle
from alluvia.commit.intents import with_claims
from alluvia.delta.data_files.scan import Scan, read_file
from alluvia.delta.skipping.predicate import And, Comparison, In
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, MetadataChanged
from alluvia.events.ingest.identity import contents_of
from alluvia.events.ingest.rejects import JUDGED, read_given, reject_rows
from alluvia.events.ingest.rows import as_far_as_possible
from alluvia.events.ingest.tables import COMMIT_TRIES, newest_of, rejects_of, takes_the_same
from alluvia.events.ingest.values import Fields, Origin, RawEvent, Reject, all_but
from alluvia.operations.append.ingest import Ingested, ingest, known_events
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.store import Store

IDS_NAMED_MAX = 1000
"""Up to so many ids choose files one by one; of more, the least and the greatest."""


def keep(catalog: WritableCatalog, name: str, rejects: Sequence[tuple[Origin, Reject]]) -> set[int]:
    """Write rejects to the table's rejects, those that are not there. Returns the positions of those that are rows.

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
    deleting = happened(place.log, there.state)  # replays that are in no version yet
    seen = place.as_of(with_claims(there.state, deleting)) if deleting else there
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
            found = batch[EVENT_ID]
            wanted.difference_update(found.filter(pc.is_in(found, value_set=values)).to_pylist())
        if not wanted:
            break
    return [at for at in known if ids[at] in wanted]


def _one_of(ids: Sequence[str]) -> In | And:
    if len(ids) <= IDS_NAMED_MAX:
        return In((EVENT_ID,), tuple(ids))
    return And((Comparison((EVENT_ID,), ">=", ids[0]), Comparison((EVENT_ID,), "<=", ids[-1])))


def _are_rows(table: TableHandle, rejects: pa.Table) -> set[int]:
    """Return the numbers of the rejects all of whose events the table's newest version knows, with their content."""
    snapshot = newest_of(table)
    events: list[RawEvent] = []
    owners: list[int] = []
    at = rejects.schema.get_field_index("received_at")
    for number, row in enumerate(rejects.set_column(at, "received_at", rejects[at].cast(pa.int64())).to_pylist()):
        found = _as_replayed(row)
        events += found
        owners += [number] * len(found)
    if not events or not identity_columns(snapshot.schema):
        return set()
    rows = as_far_as_possible(events, snapshot.schema, Fields.of(snapshot.settings))
    knows = known_events(table, rows, contents_of(events))
    return set(owners).difference(owner for owner, known in zip(owners, knows, strict=True) if not known)


def _as_replayed(row: Mapping[str, Any]) -> Sequence[RawEvent]:
    """Return the events that a replay makes of a reject; none of what takes a source's rules or a format to read."""
    from alluvia.events.ingest.replay import read_json  # few rejects are sent again once they are gone

    said = read_given(row["given"])
    if said.reading is not None and said.raw != JUDGED:
        return []
    found = read_json(row)
    return [] if found.rejects else found.events
