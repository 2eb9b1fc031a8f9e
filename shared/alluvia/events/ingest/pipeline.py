"""Store events in a lake: requests → events → rows → commit → answers. Each event is stored once.

- Requests bring events: a format has taken their bodies apart (`envelope.split`, `events.formats`). Requests of several
  threads for one table become one commit (`operations.catalog.request_batching`).
- Events become rows of the table as it is, or rejects (`event_rows.to_rows`).
- Rejects are kept first (`event_tables.keep`), then the rows are committed (`operations.append.ingest`). Both writes
  deduplicate by `event_id` within the table's window, so a retry after a crash between the two is safe.
- The commit tells new events from duplicates and clashes. Each request's answer counts every event once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from alluvia.commit.handle import TableHandle
from alluvia.errors import AlluviaError, Invalid, MetadataChanged, TableDropped, Unsupported
from alluvia.events.ingest.columnar_batch import EventParts, grouped
from alluvia.events.ingest.event_rows import to_rows
from alluvia.events.ingest.event_tables import (
    COMMIT_TRIES,
    create_events,
    find_events,
    keep,
    newest_of,
    stored_before,
    takes_the_same,
)
from alluvia.events.ingest.rejects import clash_reason, reject_of
from alluvia.events.ingest.values import (
    NO_FIELDS,
    BodyReading,
    EventRows,
    Fields,
    IngestOutcome,
    OddTime,
    OddTimes,
    Origin,
    RawEvent,
    Reject,
    counted,
    event_schema,
)
from alluvia.json_values.jsontext import encode
from alluvia.operations.append.ingest import Ingested, ingest, refusals
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.catalog.request_batching import GROUP_MAX, Size
from alluvia.operations.planning.optimistic_retry import check_not_derived


class Sent(NamedTuple):
    """What one request brings: its events, and its rejects that were found before."""

    events: Sequence[RawEvent]
    rejects: Sequence[Reject]
    origin: Origin

    def size(self) -> Size:
        """Return how much it adds to a group; the text is not measured if the rows alone fill one."""
        rows = len(self.events) + len(self.rejects)
        if rows > GROUP_MAX.rows:
            return Size(rows, 0)
        if isinstance(self.events, EventParts):
            return Size(rows, self.events.text_bytes + sum(len(reject.raw) for reject in self.rejects))
        texts = sum(len(encode(event.value) if event.raw is None else event.raw) for event in self.events)
        return Size(rows, texts + sum(len(reject.raw) for reject in self.rejects))


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
) -> IngestOutcome:
    """Commit events to a table in one commit, and keep what is rejected under `<name>/_rejects`.

    rejects: those of the same request that were found before. create: whether a missing table is made, as long as the
    lake has fewer than tables_max; only an event that fits makes it. reading: how the request was read, for rejects.
    Requests of other threads during a commit go into the next commit together; each gets its
    own answer.
    Raises Invalid, TableNotFound, Unavailable, CommitUnknown, Conflict: then send the same events again. If the
    table is dropped in the meantime, they go to the next one of its name, if there is one by now or `create` makes it.
    """
    sent = Sent(events, rejects, Origin(arrival_us, idempotency_key, reading))
    together = partial(ingest_together, catalog, name, create=create, tables_max=tables_max)
    answer: IngestOutcome = catalog.ingestion.do((name, create, tables_max), sent, sent.size(), together)
    return answer


def ingest_together(
    catalog: WritableCatalog, name: str, requests: Sequence[Sent], *, create: bool, tables_max: int | None
) -> list[IngestOutcome | Exception]:
    """Commit the events of several requests in one commit, as `ingest_batch`, and return the outcome of each.

    A failure before the commit is its request's own: the others go without it. An error of the commit is raised; it
    concerns all.
    """
    group = _Group(catalog, name, requests)
    try:
        try:
            return list(group.stored(create=create, tables_max=tables_max))
        except TableDropped:
            group = _Group(catalog, name, requests)
            return list(group.stored(create=create, tables_max=tables_max))
    except _RejectsFailed as failed:
        others = [request for at, request in enumerate(requests) if at not in failed.requests]
        done = ingest_together(catalog, name, others, create=create, tables_max=tables_max) if others else []
        rest = iter(done)
        return [failed.error if at in failed.requests else next(rest) for at in range(len(requests))]
    except (Invalid, Unsupported):
        if len(requests) == 1:
            raise
    except AlluviaError:
        raise
    except Exception:
        if len(requests) == 1 or group.committing:
            raise
    answers: list[IngestOutcome | Exception] = []
    for request in requests:
        try:
            answers += ingest_together(catalog, name, [request], create=create, tables_max=tables_max)
        except Exception as error:  # noqa: BLE001 - raised to the sender of the request
            answers.append(error)
    return answers


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


def keep_rejects(catalog: WritableCatalog, name: str, rejects: Sequence[Reject], request: Origin) -> list[Reject]:
    """Write rejects to the table's rejects, once each however often they come within the table's window.

    Returns them, without those that a replay has made rows of.
    """
    rows = keep(catalog, name, [(request, reject) for reject in rejects])
    return [reject for at, reject in enumerate(rejects) if at not in rows]


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


class _RejectsFailed(Exception):
    """The rejects of some requests could not be kept, so no rows were committed."""

    def __init__(self, requests: frozenset[int], error: AlluviaError) -> None:
        super().__init__(str(error))
        self.requests = requests
        self.error = error


Owned = tuple[int, Reject]
"""A reject, and the number of its request."""


class _Committed(NamedTuple):
    """What a commit has done with rows. `events` are those that they were made of, `fields` those of the table."""

    done: Ingested
    rows: EventRows
    events: Sequence[RawEvent]
    fields: Fields


class _Group:
    """Requests on their way into one commit. `committing` says that rows may have been committed.

    `_owners` are the requests of the events that have not been rejected. `_replayed` counts the events of each
    request that no longer fit but are rows: stored before the columns changed, or by a replay.
    """

    def __init__(self, catalog: WritableCatalog, name: str, requests: Sequence[Sent]) -> None:
        self.committing = False
        self._catalog = catalog
        self._name = name
        self._requests = requests
        self._owners = list(chain(*(repeat(at, len(sent.events)) for at, sent in enumerate(requests))))
        self._rejects: list[list[Reject]] = [[] for _ in requests]
        self._replayed = [0] * len(requests)
        self._unkept: list[Owned] = [(at, reject) for at, sent in enumerate(requests) for reject in sent.rejects]

    def stored(self, *, create: bool, tables_max: int | None) -> list[IngestOutcome | Exception]:
        """Store the events, and return the answer to each request.

        Raises `_RejectsFailed`, and what `ingest_batch` raises.
        """
        one, every = self._requests[0], self._requests
        events = one.events if len(every) == 1 else grouped((sent.events, sent.origin) for sent in every)
        table, misfits = _find_or_create(
            self._catalog, self._name, events, one.origin, create=create, tables_max=tables_max
        )
        if table is None:
            self._note([*self._unkept, *self._owned(misfits)])
            return list(self._answers(None, None, [], kept=False))
        committed = self._commit(table, events)
        if committed is None:
            version = table.at_hand().version if any(self._replayed) else None
            return list(self._answers(version, None, []))
        clashes = self._clashes(committed)
        left, failed = clashes, dict[int, AlluviaError]()
        try:
            left = self._keep(clashes)
        except _RejectsFailed as error:
            failed = dict.fromkeys(error.requests, error.error)
        self._settle(clashes, left)
        answers = self._answers(committed.done.version, committed.done, left, self._odd_times(committed))
        return [failed.get(at) or answer for at, answer in enumerate(answers)]

    def _commit(self, table: TableHandle, events: Sequence[RawEvent]) -> _Committed | None:
        """Commit rows made for the table as it is; make them again if it turns out to have changed. None without a row.

        Rows that the table refuses (CHECK constraints, values that no partition can have) become rejects, and the
        others go in. Before an event is refused, the newest version is looked at: its columns may be others than those
        known here. An event that was rejected stays so: its reject is written.
        """
        snapshot, is_newest = table.at_hand(), False
        reasons: Mapping[int, str] = {}
        for tries_left in reversed(range(COMMIT_TRIES)):
            check_not_derived(snapshot, "ingest")
            fields = Fields.of(snapshot)
            rows = _rows(self._catalog, events, snapshot.schema, fields, self._requests[0].origin, reasons)
            if rows.refused and tries_left and not is_newest:
                judged, snapshot, is_newest = snapshot, newest_of(table), True
                if not takes_the_same(snapshot, judged):
                    reasons = {}  # which were those of other columns
                    continue
            reasons = {}
            self._refuse(rows, events, table)
            if not len(rows.table):
                return None
            newest = table.at_hand()  # where rejects were kept, a newer one may have been seen
            if takes_the_same(newest, snapshot) or not tries_left:
                self.committing = True
                try:
                    kinds = {row: odd.kind for row, odd in rows.odd_times.items()}
                    done = ingest(table, rows.table, rows.contents, snapshot, -1, kinds)
                    return _Committed(done, rows, events, Fields.of(snapshot))
                except (MetadataChanged, Invalid) as error:
                    newest = newest_of(table)
                    by_rows = isinstance(error, Invalid) and takes_the_same(newest, snapshot)
                    reasons = refusals(newest, rows.table) if by_rows else {}
                    if not tries_left or (by_rows and not reasons):
                        raise
            snapshot, events = newest, [events[index] for index in rows.taken]
        raise AssertionError("the last try returns or raises")

    def _refuse(self, rows: EventRows, events: Sequence[RawEvent], table: TableHandle) -> None:
        """Keep rejects, but for those that the table holds as events; the owners are then those of the others."""
        origins = [events[at].origin or self._requests[self._owners[at]].origin for at in rows.refused]
        knows = stored_before(table, [events[at] for at in rows.refused], origins)
        owned = self._owned(rows)
        new = [*self._unkept, *(each for each, known in zip(owned, knows, strict=True) if not known)]
        self._settle([*self._unkept, *owned], self._keep(new))
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
            rows = keep(self._catalog, self._name, [(self._requests[at].origin, reject) for at, reject in rejects])
        except TableDropped:
            raise
        except AlluviaError as error:
            raise _RejectsFailed(frozenset(at for at, _ in rejects), error) from error
        return [each for number, each in enumerate(rejects) if number not in rows]

    def _settle(self, refused: Sequence[Owned], left: Sequence[Owned]) -> None:
        """Take note of rejects, those that are left among them, and count the others as events that are rows."""
        self._note(left)
        for sign, owned in ((1, refused), (-1, left)):
            for at, _ in owned:
                self._replayed[at] += sign

    def _note(self, rejects: Sequence[Owned]) -> None:
        for at, reject in rejects:
            self._rejects[at].append(reject)
        for at in {at for at, _ in rejects}:
            self._rejects[at].sort(key=lambda reject: reject.position)

    def _clashes(self, committed: _Committed) -> list[Owned]:
        """Return the rejects of events whose id another event has, of the table's window or earlier in the group."""
        clashes = []
        for at in committed.done.clashes:
            [row] = committed.rows.table.slice(at, 1).to_pylist()
            event, owner = committed.events[committed.rows.taken[at]], self._owners[at]
            origin = event.origin or self._requests[owner].origin
            clashes.append((owner, reject_of(event, clash_reason(row), origin, committed.fields)))
        return clashes

    def _odd_times(self, committed: _Committed) -> dict[int, dict[str, OddTimes]]:
        """Return the odd times of each request's events that are rows, by the numbers of requests."""
        if not committed.rows.odd_times:
            return {}
        clashes = set(committed.done.clashes)
        by_request: dict[int, list[OddTime]] = {}
        for row, odd in sorted(committed.rows.odd_times.items()):
            if row not in clashes:
                by_request.setdefault(self._owners[row], []).append(odd)
        return {at: counted(odd) for at, odd in by_request.items()}

    def _answers(
        self,
        version: int | None,
        done: Ingested | None,
        clashes: Sequence[Owned],
        odd_times: Mapping[int, Mapping[str, OddTimes]] = MappingProxyType({}),
        *,
        kept: bool = True,
    ) -> list[IngestOutcome]:
        """Return the answer to each request, after a check that it counts each of its events once."""
        new = self._counted(() if done is None else done.new)
        repeated = self._counted(() if done is None else done.repeated)
        conflicting = Counter(at for at, _ in clashes)
        answers = []
        for at, (sent, rejects) in enumerate(zip(self._requests, self._rejects, strict=True)):
            duplicates = repeated[at] + self._replayed[at]
            stored_in = version if new[at] + duplicates else None
            is_kept = kept or not rejects
            answer = IngestOutcome(
                new[at], duplicates, len(rejects), conflicting[at], stored_in, rejects, is_kept, odd_times.get(at, {})
            )
            count = len(sent.events) + len(sent.rejects)
            if answer.accepted + answer.rejected != count:
                raise AssertionError(f"{self._name}: {count} events were sent, and {answer.counts()} say otherwise")
            answers.append(answer)
        return answers

    def _counted(self, places: Collection[int]) -> list[int]:
        """Return for each request how many of the rows at some places are its own."""
        if len(self._requests) == 1:
            return [len(places)]
        counts = [0] * len(self._requests)
        for at in places:
            counts[self._owners[at]] += 1
        return counts
