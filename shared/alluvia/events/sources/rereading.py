"""What a rejected event is by now: read again as it was sent, by the rules that its source has today."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from alluvia.events.formats.reading import NOTHING, read_again
from alluvia.events.ingest.rejects import BODY, JUDGED, PART, Said, read_given
from alluvia.events.ingest.replay import as_first_sent, read_json
from alluvia.events.ingest.values import Origin, Split
from alluvia.events.sources.delivery import Delivery
from alluvia.events.sources.lake_sources import read_sources
from alluvia.events.sources.receiving import events_of, format_of, heard, options_of, places_read, reading_of_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.ingest.values import BodyReading
    from alluvia.events.sources.definition import Source
    from alluvia.events.sources.lake_sources import LakeSources
    from alluvia.store import Store


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
        headers = {**heard(source, headers, name, raw)}
        reading = reading_of_source(source, Delivery(headers, raw), replace(reading, headers=headers))
    if said.raw in (BODY, PART):
        name = reading.format if source is None else name
        found, key = read_again(reading, name, raw, arrival_us, {} if source is None else options_of(source))
        if key is None and said.fallback_id is not None and said.raw == BODY:
            key = said.fallback_id.rpartition("/")[0]  # which stood for the request
    else:
        found = read_json(row)
        given = said.given if said.raw != JUDGED or said.given is None else said.given.of_format
        found = replace(found, events=[event._replace(given=given) for event in found.events])
    if not reading.whole:
        at = row["position"] or 0
        found = replace(found, events=[event._replace(position=at + event.position) for event in found.events])
    several = len(found.events) + len(found.rejects) > 1 if reading.whole else reading.several
    origin = Origin(arrival_us, key, replace(reading, whole=False, several=several))
    events = as_first_sent(row, found.events, origin, said.fallback_id)
    found = replace(found, events=events)
    return found if source is None else events_of(source, Delivery(headers, raw), found, origin)
