"""What a source makes of a request: whether it is a challenge, and what it says about each of its events. Pure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from alluvia.errors import Invalid
from alluvia.events.formats.body_format import NOTHING, never_read, of_source, read_again, type_of
from alluvia.events.ingest.envelope import media_type
from alluvia.events.ingest.identity import at_path, own_id
from alluvia.events.ingest.rejects import (
    BODY,
    EVENT,
    JUDGED,
    PART,
    Said,
    as_first_sent,
    read_given,
    read_json,
    reject_of,
)
from alluvia.events.ingest.values import NO_FIELDS, Given, Origin, RawEvent, Split
from alluvia.events.sources.definition import HEADER
from alluvia.events.sources.kinds.base import Delivery, SaidTime, said_time, text_of
from alluvia.events.sources.kinds.registry import KINDS
from alluvia.events.sources.lake_sources import LakeSources, read_sources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.ingest.values import BodyReading
    from alluvia.events.sources.definition import Source
    from alluvia.store import Store

_CLOUD_EVENT = ("specversion", "id", "source")


def challenge_of(source: Source, split: Split) -> str | None:
    """Return what a request wants to hear back in place of being stored; None if it brings events."""
    if len(split.events) != 1 or split.rejects:
        return None
    kind = KINDS[source.kind]
    return kind.challenge(kind.event(split.events[0].value))


def format_of(source: Source, headers: Mapping[str, str], body: bytes) -> str:
    """Return the name of the format of a request: what its headers declare, if it counts, or the source's."""
    kind = KINDS[source.kind]
    if not kind.proves_headers:
        return source.format or kind.format or kind.body_format(body)
    return of_source(source.format, kind.format, media_type(headers.get("content-type")), headers)


def trusted_headers(source: Source, headers: Mapping[str, str], name: str, body: bytes) -> Mapping[str, str]:
    """Return the headers of a request that say something about its events, whose body is in the format of a name.

    A signature covers the body, and few headers or none: an attacker could send a captured request again with
    others. Those count that the kind's proof covers, or that the definition names. The type of the body is that of its
    format; one that says that the body is never read is left, as it only explains a refusal.
    """
    if KINDS[source.kind].proves_headers:
        return headers
    known = {each: headers[each] for each in places_read(source) if each in headers}
    if headers.get("content-encoding", "").strip().lower() == "deflate":  # bodies tell the other codings themselves
        known["content-encoding"] = "deflate"
    said = headers.get("content-type")
    unread = name == "json" and never_read(media_type(said))
    return known | {"content-type": str(said) if unread else type_of(name, body)}


def key_of_signed(source: Source, delivery: Delivery) -> str | None:
    """Return the identity that what is signed gives a request, with the name that the definition takes from a header.

    Two topics of one sender may have the same body: where the definition trusts the header, they are two events.
    """
    key = KINDS[source.kind].key(delivery)
    name = delivery.header(source.event.removeprefix(HEADER)) if source.event.startswith(HEADER) else None
    return key if key is None or name is None else sha256(f"{key} {name}".encode()).hexdigest()


def unsigned_places(source: Source) -> list[str]:
    """Return the settings that name headers which the sender's signature does not cover."""
    kind = KINDS[source.kind]
    signed = {*kind.headers, source.timestamp_header.lower()}
    places = {"event_id": source.event_id, "ts": source.ts, "event": source.event}
    headers = {name: place.removeprefix(HEADER).lower() for name, place in places.items() if place.startswith(HEADER)}
    return [] if kind.proves_headers else [name for name, header in headers.items() if header not in signed]


def options_of(source: Source) -> dict[str, str]:
    """Return what the source says about its format."""
    return {"delimiter": source.delimiter} if source.delimiter else {}


def places_read(source: Source) -> list[str]:
    """Return the names, in lower case, of the headers that say something about the events of a source."""
    places = (source.event_id, source.ts, source.event)
    named = {place.removeprefix(HEADER).lower() for place in places if place.startswith(HEADER)}
    return sorted(named | KINDS[source.kind].headers)


def reading_of_source(source: Source, delivery: Delivery, reading: BodyReading) -> BodyReading:
    """Return how a source's request was read, with what its headers say about its events: no other headers are kept."""
    said = {name: delivery.header(name) for name in places_read(source)}
    return replace(reading, source=source.name, headers={**reading.headers, **said})


def events_of(source: Source, delivery: Delivery, split: Split, origin: Origin) -> Split:
    """Return the events of a request with what it, and the source's definition, say about each.

    Where a request gives one identity to several events, the position of each follows it. An event without an identity
    where the source has it becomes a reject only if there is something else in its place.
    """
    several = origin.reading is not None and origin.reading.several
    events: list[RawEvent] = []
    rejects = list(split.rejects)
    for sent in split.events:
        event = _unwrapped(source, sent)
        try:
            events.append(event._replace(given=_given(source, delivery, event, several=several)))
        except Invalid as error:
            rejects.append(reject_of(event, str(error), origin, NO_FIELDS, EVENT))
    return replace(split, events=events, rejects=sorted(rejects, key=lambda reject: reject.position))


def _unwrapped(source: Source, event: RawEvent) -> RawEvent:
    value = KINDS[source.kind].event(event.value)
    return event if value is event.value else event._replace(value=value, raw=None, given=None)


def _given(source: Source, delivery: Delivery, event: RawEvent, *, several: bool) -> Given:
    """Put together what is known of an event: by the source's definition, else its kind, else its format."""
    kind = KINDS[source.kind]
    said, known = kind.given(delivery, event.value), event.given or Given()
    mapped = _identity(source, delivery, event.value)
    event_id = mapped or said.event_id
    of_request = source.event_id.startswith(HEADER) if mapped else kind.identifies_requests
    if event_id and several and of_request:
        event_id = f"{event_id}/{event.position}"
    times = (said_time(source.ts, _at(source.ts, delivery, event.value)), said, known)
    own_source = not event_id and all(text_of(event.value.get(name)) for name in _CLOUD_EVENT)
    return replace(
        known,
        event_id=event_id or known.event_id,
        ts_us=next((each.ts_us for each in times if each.ts_us is not None), None),
        event=text_of(_at(source.event, delivery, event.value)) or said.event or known.event,
        source=None if own_source else source.name,
        unstable=said.unstable or known.unstable,
        unread=_unread(*times),
        of_format=event.given,
    )


def _identity(source: Source, delivery: Delivery, value: Mapping[str, object]) -> str | None:
    try:
        return own_id({"event_id": _at(source.event_id, delivery, value)})[1]
    except Invalid as error:
        raise Invalid(f"{source.event_id}: {str(error).removeprefix('event_id: ')}") from None


class UnreadTimes:
    """Finds the time of a stored event that a source of a lake could not read, in the event's fields.

    Asks for the lake's sources once, for the first event of a source: one GET.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sources: LakeSources | None = None

    def __call__(self, name: str, event: Mapping[str, object]) -> tuple[str, ...]:
        """Return its field and its text; () if there is none, or no usable source of that name."""
        if self._sources is None:
            self._sources = LakeSources()
            with suppress(Invalid):  # no source takes events then
                self._sources = read_sources(self._store)
        source = self._sources.by_name.get(name)
        if source is None:
            return ()
        delivery = Delivery({}, b"")
        return _unread(said_time(source.ts, _at(source.ts, delivery, event)), KINDS[source.kind].given(delivery, event))


def _unread(*times: SaidTime | Given) -> tuple[str, ...]:
    """Return the field and the text of a time that cannot be read, unless a place that comes first says one."""
    return next((each.unread for each in times if each.unread or each.ts_us is not None), ())


def _at(place: str, delivery: Delivery, value: Mapping[str, object]) -> object:
    """Return what is at a place of a request or its event, as a definition names it; None if there is nothing."""
    if place.startswith(HEADER):
        return delivery.header(place.removeprefix(HEADER))
    return at_path(value, tuple(place.split("."))) if place else None


class Rereader:
    """Reads rejects of a lake again. It asks for the lake's sources once, if a reject came from one: one GET."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sources: LakeSources | None = None

    def read(self, row: Mapping[str, Any]) -> Split:
        """Return what a reject is now; nothing where no event can be made of it.

        An event of a source that has been removed since stays what that source said, if it said all. Raises Invalid
        for a source that is defined wrongly, and Unsupported where a package of its format is missing.
        """
        said = read_given(row.get("given"))
        if said.reading is None:
            return read_json(row)
        source = self._source(said.reading.source)
        if said.reading.source and source is None:
            return read_json(row) if said.raw == JUDGED else NOTHING
        if source is not None and any(name not in said.reading.headers for name in places_read(source)):
            return NOTHING  # its identity would be another than that of its redelivery
        return _read(row, said, said.reading, source)

    def _source(self, name: str) -> Source | None:
        if not name:
            return None
        if self._sources is None:
            self._sources = read_sources(self._store)
        return self._sources.find(name)


def _read(row: Mapping[str, Any], said: Said, reading: BodyReading, source: Source | None) -> Split:
    raw, arrival_us = row["raw"] or b"", row["received_at"]
    headers = {name: value for name, value in reading.headers.items() if value is not None}
    key = None
    if source is not None:
        name = format_of(source, headers, raw)
        headers = {**trusted_headers(source, headers, name, raw)}
        reading = reading_of_source(source, Delivery(headers, raw), replace(reading, headers=headers))
    if said.raw in (BODY, PART):
        name = reading.format if source is None else name
        split, key = read_again(reading, name, raw, arrival_us, {} if source is None else options_of(source))
        if key is None and said.fallback_id is not None and said.raw == BODY:
            key = said.fallback_id.rpartition("/")[0]  # which stood for the request
    else:
        split = read_json(row)
        given = said.given if said.raw != JUDGED or said.given is None else said.given.of_format
        split = replace(split, events=[event._replace(given=given) for event in split.events])
    if not reading.whole:
        at = row["position"] or 0
        split = replace(split, events=[event._replace(position=at + event.position) for event in split.events])
    several = len(split.events) + len(split.rejects) > 1 if reading.whole else reading.several
    origin = Origin(arrival_us, key, replace(reading, whole=False, several=several))
    events = as_first_sent(row, split.events, origin, said.fallback_id)
    split = replace(split, events=events)
    return split if source is None else events_of(source, Delivery(headers, raw), split, origin)
