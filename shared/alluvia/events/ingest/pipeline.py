"""Store events in a lake: first the rejects, then the rows, each exactly once.

Both writes deduplicate by `event_id` within the table's window, so a retry after a crash between the two is safe.
Requests of several threads for one table become one commit (`operations.catalog.request_batching`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import chain, repeat
from typing import NamedTuple

import pyarrow as pa

from alluvia.commit.handle import TableHandle
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import AlluviaError, Invalid, TableDropped, Unsupported
from alluvia.events.ingest.columnar_batch import EventParts, grouped
from alluvia.events.ingest.committing import CommittedRows, commit_rows
from alluvia.events.ingest.event_schema import event_schema
from alluvia.events.ingest.jsontext import encode
from alluvia.events.ingest.known_rejects import keep
from alluvia.events.ingest.rejects import clash_reason, reject_of
from alluvia.events.ingest.rows import to_rows
from alluvia.events.ingest.tables import create_events, find_events
from alluvia.events.ingest.values import NO_FIELDS, BodyReading, EventRows, Fields, Origin, RawEvent, Reject
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.append.ingest import Ingested
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.catalog.request_batching import GROUP_MAX, Size
from alluvia.operations.planning.optimistic_retry import check_not_rollup


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
    catalog: WritableCatalog,
    name: str,
    events: Sequence[RawEvent],
    rejects: Sequence[Reject] = (),
    *,
    arrival_us: int,
    idempotency_key: str | None = None,
    create: bool = False,
    tables_max: int | None = None,
    reading: BodyReading | None = None,
) -> Answer:
    """Commit events to a table in one commit, and keep what is rejected under `<name>/_rejects`.

    rejects: those of the same request that were found before. create: whether a missing table is made, as long as the
    lake has fewer than tables_max; only an event that fits makes it. reading: how the request was read, for rejects.
    What other threads send to the table while a commit is under way goes into the next commit together; each gets its
    own answer.
    Raises Invalid, TableNotFound, Unavailable, CommitUnknown, Conflict: then send the same events again. If the
    table is dropped in the meantime, they go to the next one of its name, if there is one by now or `create` makes it.
    """
    sent = Sent(events, rejects, Origin(arrival_us, idempotency_key, reading))
    together = partial(ingest_together, catalog, name, create=create, tables_max=tables_max)
    answer: Answer = catalog.ingestion.do((name, create, tables_max), sent, sent.size(), together)
    return answer


class Sent(NamedTuple):
    """What one request brings: its events, and its rejects that were found before."""

    events: Sequence[RawEvent]
    rejects: Sequence[Reject]
    origin: Origin

    def size(self) -> Size:
        """Return how much it adds to a group; the text is not measured of what goes alone for its rows."""
        rows = len(self.events) + len(self.rejects)
        if rows > GROUP_MAX.rows:
            return Size(rows, 0)
        if isinstance(self.events, EventParts):
            return Size(rows, self.events.text_bytes + sum(len(reject.raw) for reject in self.rejects))
        texts = sum(len(encode(event.value) if event.raw is None else event.raw) for event in self.events)
        return Size(rows, texts + sum(len(reject.raw) for reject in self.rejects))


def ingest_together(
    catalog: WritableCatalog, name: str, requests: Sequence[Sent], *, create: bool, tables_max: int | None
) -> list[Answer | Exception]:
    """Commit the events of several requests in one commit, as `ingest_batch`, and return what became of each.

    What breaks before the commit is its request's own: the others go without it. An error of the commit is raised; it
    concerns all.
    """
    make = partial(ingest_together, catalog, name, create=create, tables_max=tables_max)
    group = _Group(catalog, name, requests)
    try:
        try:
            return list(group.answers(create=create, tables_max=tables_max))
        except TableDropped:
            group = _Group(catalog, name, requests)
            return list(group.answers(create=create, tables_max=tables_max))
    except _RejectsFailed as failed:
        others = [request for at, request in enumerate(requests) if at not in failed.requests]
        rest = iter(make(others) if others else ())
        return [failed.error if at in failed.requests else next(rest) for at in range(len(requests))]
    except (Invalid, Unsupported):
        if len(requests) == 1:
            raise
    except AlluviaError:
        raise
    except Exception:
        if len(requests) == 1 or group.committing:
            raise
    return [_alone(make, request) for request in requests]


def _alone(make: Callable[[Sequence[Sent]], list[Answer | Exception]], request: Sent) -> Answer | Exception:
    try:
        return make([request])[0]
    except Exception as error:  # noqa: BLE001 - raised to who sent the request
        return error


def table_for(
    catalog: WritableCatalog,
    name: str,
    events: Sequence[RawEvent],
    request: Origin,
    *,
    create: bool,
    tables_max: int | None,
) -> tuple[TableHandle | None, list[Reject]]:
    """Return the table for events, created if it does not exist and one of them fits; otherwise None and their rejects.

    Raises `Invalid` for a bad name, and `TableNotFound` if the table may not be created.
    """
    table, misfits = _find_or_create(catalog, name, events, request, create=create, tables_max=tables_max)
    return table, misfits.rejects if misfits is not None else []


def _find_or_create(
    catalog: WritableCatalog,
    name: str,
    events: Sequence[RawEvent],
    request: Origin,
    *,
    create: bool,
    tables_max: int | None,
) -> tuple[TableHandle | None, EventRows | None]:
    table = find_events(catalog, name)
    if table is None and create:
        rows = _rows(catalog, events, event_schema(), NO_FIELDS, request)
        if not len(rows.table):
            return None, rows
    if table is None:
        table = create_events(catalog, name, create=create, tables_max=tables_max)
    return table, None


class _RejectsFailed(Exception):
    """The rejects of some requests could not be kept, so no rows were committed."""

    def __init__(self, requests: frozenset[int], error: AlluviaError) -> None:
        super().__init__(str(error))
        self.requests = requests
        self.error = error


Owned = tuple[int, Reject]
"""A reject, and the number of its request."""


class _Group:
    """Requests on their way into one commit. `committing` says that rows may have been committed."""

    def __init__(self, catalog: WritableCatalog, name: str, requests: Sequence[Sent]) -> None:
        self.committing = False
        self._catalog = catalog
        self._name = name
        self._requests = requests
        self._owners = list(chain(*(repeat(at, len(sent.events)) for at, sent in enumerate(requests))))
        self._rejects: list[list[Reject]] = [[] for _ in requests]
        self._replayed = [0] * len(requests)
        self._unkept: list[Owned] = [(at, reject) for at, sent in enumerate(requests) for reject in sent.rejects]

    def answers(self, *, create: bool, tables_max: int | None) -> list[Answer | Exception]:
        """Commit, and return the answer to each request. Raises `_RejectsFailed`, and what `ingest_batch` raises."""
        one = self._requests[0]
        events = one.events
        if len(self._requests) > 1:
            events = grouped((sent.events, sent.origin) for sent in self._requests)
        table, misfits = _find_or_create(
            self._catalog, self._name, events, one.origin, create=create, tables_max=tables_max
        )
        if table is None:
            self._note([*self._unkept, *self._owned(misfits)])
            return [Answer(0, 0, len(each), 0, None, each, kept=not each) for each in self._rejects]
        committed = commit_rows(table, events, self._rows_for, self._refuse, self._begin)
        if committed is None:
            version = table.at_hand().version if any(self._replayed) else None
            both = zip(self._replayed, self._rejects, strict=True)
            return [Answer(0, rows, len(each), 0, version if rows else None, each) for rows, each in both]
        clashes = self._clashes(committed)
        failed: dict[int, AlluviaError] = {}
        try:
            clashes = self._keep(clashes)
        except _RejectsFailed as error:
            failed = dict.fromkeys(error.requests, error.error)
        self._note(clashes)
        return [failed.get(at) or answer for at, answer in enumerate(self._sorted_out(committed.done, clashes))]

    def _begin(self) -> None:
        self.committing = True

    def _rows_for(self, snapshot: Snapshot, events: Sequence[RawEvent], reasons: Mapping[int, str]) -> EventRows:
        check_not_rollup(snapshot, "ingest")
        fields = Fields.of(snapshot.settings)
        return _rows(self._catalog, events, snapshot.schema, fields, self._requests[0].origin, reasons)

    def _refuse(self, rows: EventRows) -> None:
        """Keep the rejects of the requests, and those of some rows; the owners are then those of the others."""
        found = [*self._unkept, *self._owned(rows)]
        kept = self._keep(found)
        self._note(kept)
        for sign, owned in ((1, found), (-1, kept)):
            for at, _ in owned:
                self._replayed[at] += sign
        self._unkept = []
        if rows.refused:
            one = len(self._requests) == 1
            self._owners = self._owners[: len(rows.taken)] if one else [self._owners[at] for at in rows.taken]

    def _owned(self, rows: EventRows | None) -> list[Owned]:
        """Return the rejects of events that were last known to have the group's owners."""
        if rows is None:
            return []
        return [(self._owners[index], reject) for index, reject in zip(rows.refused, rows.rejects, strict=True)]

    def _keep(self, rejects: Sequence[Owned]) -> list[Owned]:
        """Keep rejects. Returns them, without those that a replay has made rows of."""
        try:
            given = [(self._requests[at].origin, reject) for at, reject in rejects]
            rows = _keep(self._catalog, self._name, given)
        except TableDropped:
            raise
        except AlluviaError as error:
            raise _RejectsFailed(frozenset(at for at, _ in rejects), error) from error
        return [each for number, each in enumerate(rejects) if number not in rows]

    def _note(self, rejects: Sequence[Owned]) -> None:
        for at, reject in rejects:
            self._rejects[at].append(reject)
        for at in {at for at, _ in rejects}:
            self._rejects[at].sort(key=lambda reject: reject.position)

    def _clashes(self, committed: CommittedRows) -> list[Owned]:
        """Return the rejects of events whose id another event has, of the table's window or earlier in the group."""
        found = []
        for at in committed.done.clashes:
            [row] = committed.rows.table.slice(at, 1).to_pylist()
            event, owner = committed.events[committed.rows.taken[at]], self._owners[at]
            origin = event.origin or self._requests[owner].origin
            found.append((owner, reject_of(event, clash_reason(row), origin, committed.fields)))
        return found

    def _sorted_out(self, done: Ingested, clashes: Sequence[Owned]) -> list[Answer]:
        rows = self._counted(self._owners)
        stored = rows
        if done.appended < len(self._owners):
            stored = self._counted([self._owners[at] for at in done.new])
        conflicting = self._counted([at for at, _ in clashes])
        answers = []
        for at, rejects in enumerate(self._rejects):
            accepted = rows[at] - conflicting[at] + self._replayed[at]
            version = done.version if accepted else None
            answers.append(Answer(stored[at], accepted - stored[at], len(rejects), conflicting[at], version, rejects))
        return answers

    def _counted(self, owners: Collection[int]) -> list[int]:
        """Return for each request how many of some owners it is. For few, a `Counter` takes several times as long."""
        if len(self._requests) == 1:
            return [len(owners)]
        found = [0] * len(self._requests)
        for at in owners:
            found[at] += 1
        return found


def keep_rejects(catalog: WritableCatalog, name: str, rejects: Sequence[Reject], request: Origin) -> list[Reject]:
    """Write rejects to the table's rejects, once each however often they come within the table's window.

    Returns them, without those that a replay has made rows of.
    """
    rows = _keep(catalog, name, [(request, reject) for reject in rejects])
    return [reject for at, reject in enumerate(rejects) if at not in rows]


def _keep(catalog: WritableCatalog, name: str, rejects: Sequence[tuple[Origin, Reject]]) -> Collection[int]:
    return keep(catalog, name, rejects, _commit_rejects) if rejects else ()


def _commit_rejects(table: TableHandle, rows: pa.Table, gone_until: int) -> Ingested:
    made = EventRows(rows, [], [], ())
    committed = commit_rows(table, (), lambda _snapshot, _events, _reasons: made, gone_until=gone_until)
    assert committed is not None  # noqa: S101 - there are rows
    return committed.done


def _rows(
    catalog: WritableCatalog,
    events: Sequence[RawEvent],
    schema: pa.Schema,
    fields: Fields,
    request: Origin,
    refused: Mapping[int, str] | None = None,
) -> EventRows:
    return to_rows(
        events, schema, arrival_us=request.arrival_us, idempotency_key=request.idempotency_key,
        new_id=catalog.clock.new_id, fields=fields, refused=refused, reading=request.reading,
    )  # fmt: skip
