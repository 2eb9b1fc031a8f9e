"""A file of rows into a table of events: each row is an event, ingested once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.formats.events import text_given
from alluvia.events.ingest.columnar_batch import moved
from alluvia.events.ingest.envelope import split, split_ndjson
from alluvia.events.ingest.event_tables import find_events
from alluvia.events.ingest.event_time import TIME_FIELDS
from alluvia.events.ingest.pipeline import Sent, ingest_batch, ingest_together
from alluvia.events.ingest.values import UNLIMITED, IngestOutcome, Origin, RawEvent, Reject, Split
from alluvia.files.event_files import NDJSON, FilePart
from alluvia.files.reading_options import UNREADABLE, ReadingOptions
from alluvia.files.sent import SentFile
from alluvia.json_values.instants import TIMESTAMP
from alluvia.json_values.jsontext import encode
from alluvia.operations.catalog.catalog import WritableCatalog

EVENT_COLUMNS = frozenset(("event_id", "ts", "received_at"))
"""A table that has these is one of events."""


def takes_events(schema: pa.Schema) -> bool:
    """Whether a table's rows are events."""
    return set(schema.names) >= EVENT_COLUMNS


def store_events(
    catalog: WritableCatalog,
    table: str,
    file: SentFile,
    key: str | None,
    before_commit: Callable[[], None] = lambda: None,
) -> IngestOutcome:
    """Ingest a file part by part, in one commit each.

    `before_commit` is called before each, and may stop it by an exception. Without a `key`, an event without an id gets
    one from the file's content up to its part's end and its position.
    """
    outcome = IngestOutcome()
    for part in file.parts(f"the file.{file.kind}"):
        before_commit()
        outcome += store_part(catalog, table, part if key is None else replace(part, key=key))
    return outcome


def store_part(catalog: WritableCatalog, table: str, part: FilePart) -> IngestOutcome:
    """Commit a part of a file, and return the outcome. Positions in rejects count from the file's start."""
    sent = _sent(part, catalog.clock.now_us(), _columns(catalog, table, [part]))
    origin = sent.origin
    return ingest_batch(
        catalog, table, sent.events, sent.rejects, arrival_us=origin.arrival_us, idempotency_key=origin.idempotency_key
    )


def store_parts(catalog: WritableCatalog, table: str, some: Sequence[FilePart]) -> list[IngestOutcome]:
    """Commit parts of several files in one commit, and return the outcome of each."""
    now_us = catalog.clock.now_us()
    columns = _columns(catalog, table, some)
    requests = [_sent(part, now_us, columns) for part in some]
    answers = []
    for outcome in ingest_together(catalog, table, requests, create=False, tables_max=None):
        if isinstance(outcome, Exception):
            raise outcome
        answers.append(outcome)
    return answers


def _columns(catalog: WritableCatalog, table: str, some: Sequence[FilePart]) -> pa.Schema:
    """Return the columns whose values are written as options say, as far as any does."""
    if not any(part.options for part in some):
        return pa.schema([])
    known = find_events(catalog, table)
    columns = {} if known is None else {field.name: field.type for field in known.newest().schema}
    return pa.schema(list((dict.fromkeys(TIME_FIELDS, TIMESTAMP) | columns).items()))


def _sent(part: FilePart, now_us: int, columns: pa.Schema) -> Sent:
    if part.media_type == NDJSON and part.position:
        lines = split_ndjson(part.data, UNLIMITED)
    elif part.media_type == NDJSON:
        lines = split(part.data, content_type=part.media_type, content_encoding=None, limits=UNLIMITED)
    else:
        lines = by_name("csv").read(_body(part, now_us), UNLIMITED)
    if part.options:
        lines = _as_options_say(lines, part.options, columns)
    events = moved(lines.events, part.position)
    rejects = [replace(reject, position=reject.position + part.position) for reject in lines.rejects]
    return Sent(events, rejects, Origin(now_us, part.key))


def _body(part: FilePart, now_us: int) -> SentBody:
    options = part.options
    point = options.decimal_separator or ("." if options.thousands_separator else "")
    said = {name: value for name, value in (("delimiter", options.delimiter), ("decimal_separator", point)) if value}
    return SentBody({"content-type": part.media_type}, part.data, now_us, options=said)


def _as_options_say(lines: Split, options: ReadingOptions, columns: pa.Schema) -> Split:
    """Return events under the names of the table, with the values that options make of texts.

    One whose text is not written as its option says is a reject.
    """
    events: list[RawEvent] = []
    rejects, kinds = list(lines.rejects), {each.name: each.type for each in columns}
    for event in lines.events:
        value = {options.rename.get(name, name): each for name, each in event.value.items()}
        reason = "rename: two fields would have one name" if len(value) < len(event.value) else ""
        written_as_text = event.given is not None and event.given.text
        if written_as_text and options.null:
            value = {name: each for name, each in value.items() if str(each).strip() not in options.null}
        for name, text in value.items():
            kind = kinds.get(name)
            if not isinstance(text, str) or kind is None:
                continue
            if options.format_of(kind) or written_as_text:
                value[name] = options.plain_text(text, kind)
            if value[name] == UNREADABLE != text and not reason:
                reason = f"{name}: {options.refusal('', text, kind)}"
        if reason:
            rejects.append(Reject(event.position, reason, encode(event.value)))
        else:
            given = event.given
            if given is not None and given.text:
                pointed = tuple(options.rename.get(name, name) for name in given.pointed)
                given = replace(text_given(value), pointed=pointed)
            events.append(event._replace(value=value, raw=None, given=given))
    return Split(events, sorted(rejects, key=lambda reject: reject.position))
