"""Events as dicts: the bodies that they are sent in, and their ingestion without a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from decimal import Decimal
from itertools import chain
from math import isfinite, isnan
from typing import Any, NamedTuple

import orjson

from alluvia.errors import Invalid, TableNotFound
from alluvia.events.ingest.envelope import split_ndjson
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import REJECTS_MAX, UNLIMITED
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import WritableCatalog

_INT64 = range(-(1 << 63), 1 << 63)
BODY_BYTES, BODY_EVENTS = 4 << 20, 10_000
"""A body is closed once it has one of these: a request to Lambda takes 6 MB."""
Events = Mapping[str, Any] | Iterable[Mapping[str, Any]]
"""One event, a list of them, or an iterator that gives them one by one."""


class EventBody(NamedTuple):
    """Events as lines of JSON, the position of the first among all, and the key for those without an id of their own.

    The key of the first body is that of the call, so that one request, by whatever way, gives the same ids.
    """

    lines: bytes
    first: int
    key: str | None


@dataclass(frozen=True, slots=True)
class EventsOutcome:
    """The outcome of events that were sent: accepted + rejected = sent, accepted = stored + duplicates.

    `conflicting` are those of the rejected whose id the table knows with other content. `version` holds all that is
    accepted. `stored`, `duplicates` and `version` are None where a server queues events. `errors` has the position and
    the reason of the first rejects; all of them are in `<table>._rejects`.
    """

    accepted: int = 0
    stored: int | None = 0
    duplicates: int | None = 0
    rejected: int = 0
    conflicting: int = 0
    version: int | None = None
    errors: list[dict[str, Any]] = field(default_factory=list)

    def add(self, answer: Mapping[str, Any], first: int) -> EventsOutcome:
        """Return this outcome together with that of later events, which begin at this position."""
        later = [{**each, "position": each["position"] + first} for each in answer.get("errors", ())]
        return EventsOutcome(
            self.accepted + answer["accepted"],
            _sum(self.stored, answer.get("stored")),
            _sum(self.duplicates, answer.get("duplicates")),
            self.rejected + answer["rejected"],
            self.conflicting + answer.get("conflicting", 0),
            max((each for each in (self.version, answer.get("version")) if each is not None), default=None),
            [*self.errors, *later][:REJECTS_MAX],
        )


def _sum(before: int | None, later: int | None) -> int | None:
    return None if before is None or later is None else before + later


def event_bodies(events: Events, key: str | None) -> Iterator[EventBody]:
    """Yield events in bodies. Each body is one commit. Raises `Invalid`, naming the position of an event.

    Values may be JSON's, dates, datetimes, UUIDs and Decimals. An event with NaN or infinity, which JSON lacks, is sent
    as it is, and becomes a reject.
    """
    each = iter([events] if isinstance(events, Mapping) else events)
    first = number = 0
    while (start := next(each, None)) is not None:
        lines: list[bytes] = []
        size = 0
        for event in chain([start], each):
            lines.append(_line(event, first + len(lines)))
            size += len(lines[-1])
            if size >= BODY_BYTES or len(lines) == BODY_EVENTS:
                break
        yield EventBody(b"".join(lines), first, key if key is None or number == 0 else f"{key}#{number}")
        first += len(lines)
        number += 1


def ingest_dicts(
    catalog: WritableCatalog, table: str, events: Events, key: str | None, *, create: bool
) -> EventsOutcome:
    """Ingest events as a server does, body by body, and return the outcome of all. Raises as `ingest_batch` does."""
    outcome = EventsOutcome()
    for body in event_bodies(events, key):
        split = split_ndjson(body.lines, UNLIMITED)
        done = ingest_batch(
            catalog,
            table,
            split.events,
            split.rejects,
            arrival_us=catalog.clock.now_us(),
            idempotency_key=body.key,
            create=create,
        )
        if not done.kept:
            raise TableNotFound(f"there is no table {table!r}, and events that are all rejected create none")
        errors = [{"position": each.position, "reason": each.reason} for each in done.rejects]
        outcome = outcome.add(done.counts() | {"errors": errors}, body.first)
    return outcome


def _line(event: object, position: int) -> bytes:
    if not isinstance(event, Mapping):
        raise Invalid(f"events: expected a dict, or several, got {type(event).__name__} at position {position}")
    try:
        try:
            line = _dumps(event)
        except TypeError:  # of a whole number beyond 64 bits, or of a value that JSON lacks
            return _dumps(_with_all_numbers(event))
        return _dumps(_with_all_numbers(event)) if b"null" in line else line  # NaN is null to orjson
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"events: the one at position {position} has no form in JSON: {error}") from error


def _dumps(event: Mapping[str, Any]) -> bytes:
    return orjson.dumps(dict(event), default=_plain, option=orjson.OPT_APPEND_NEWLINE)


def _with_all_numbers(value: Any) -> Any:
    """Return a value with the digits of whole numbers beyond 64 bits, and with NaN, which makes its event a reject."""
    if isinstance(value, Mapping):
        return {name: _with_all_numbers(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_with_all_numbers(part) for part in (_plain(value) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, float) and not isfinite(value):
        return orjson.Fragment("NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity")
    return orjson.Fragment(str(value)) if type(value) is int and value not in _INT64 else value


def _plain(value: object) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON: pass text or a number")
