"""A file of rows into a table of events: each row is an event, ingested once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.ingest.columnar_batch import moved
from alluvia.events.ingest.envelope import split, split_ndjson
from alluvia.events.ingest.pipeline import Sent, ingest_batch, ingest_together
from alluvia.events.ingest.values import UNLIMITED, IngestOutcome, Origin
from alluvia.files.event_files import NDJSON, FilePart
from alluvia.files.sent import SentFile
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
    sent = _sent(part, catalog.clock.now_us())
    origin = sent.origin
    return ingest_batch(
        catalog, table, sent.events, sent.rejects, arrival_us=origin.arrival_us, idempotency_key=origin.idempotency_key
    )


def store_parts(catalog: WritableCatalog, table: str, some: Sequence[FilePart]) -> list[IngestOutcome]:
    """Commit parts of several files in one commit, and return the outcome of each."""
    now_us = catalog.clock.now_us()
    requests = [_sent(part, now_us) for part in some]
    answers = []
    for outcome in ingest_together(catalog, table, requests, create=False, tables_max=None):
        if isinstance(outcome, Exception):
            raise outcome
        answers.append(outcome)
    return answers


def _sent(part: FilePart, now_us: int) -> Sent:
    if part.media_type == NDJSON and part.position:
        lines = split_ndjson(part.data, UNLIMITED)
    elif part.media_type == NDJSON:
        lines = split(part.data, content_type=part.media_type, content_encoding=None, limits=UNLIMITED)
    else:
        lines = by_name("csv").read(SentBody({"content-type": part.media_type}, part.data, now_us), UNLIMITED)
    events = moved(lines.events, part.position)
    rejects = [replace(reject, position=reject.position + part.position) for reject in lines.rejects]
    return Sent(events, rejects, Origin(now_us, part.key))
