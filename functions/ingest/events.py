"""Events that are posted, or that a queue brings: body → events → rows → commit → answer.

`take_body` reads a body in its format (`read_body`), settles its events in a table (`settle_body`), and answers in the
format's own words (`answered`). Settled means committed at once (`commit`), or put into a queue (`enqueue`), from where
`consume` commits them. `events.ingest.pipeline` makes rows of events and commits these.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from alluvia import Lake
from alluvia.access.rights import APPEND
from alluvia.errors import (
    AlluviaError,
    CommitUnknown,
    Conflict,
    Forbidden,
    Invalid,
    TableExists,
    TableNotFound,
    Unavailable,
    Unsupported,
)
from alluvia.events.formats.body_format import BodyFormat, RequestOutcome, SentBody, by_name, declared, reading_of
from alluvia.events.ingest.envelope import BOM, inflated, media_type
from alluvia.events.ingest.messages import pack, unpack
from alluvia.events.ingest.pipeline import ingest_batch, keep_rejects, table_for
from alluvia.events.ingest.values import REJECTS_MAX, Origin, RawEvent, Reject, Split
from alluvia.serverless.http import (
    EVENTS_HEADER,
    TABLE_HEADER,
    Request,
    Response,
    TooManyRequests,
    Unauthenticated,
    answer,
    refusal,
)
from alluvia.serverless.log_lines import Logger
from alluvia.serverless.sqs_sender import send, sqs

from .settings import SERVICE, IngestSettings

KEY_LIMIT_CHARS = 255
REFUSED = (
    Invalid, Unsupported, TableExists, TableNotFound, Unavailable, CommitUnknown, Conflict, Unauthenticated,
    TooManyRequests,
)  # fmt: skip
"""The errors that are answered with a status: see `refused`."""

logger = Logger(service=SERVICE, child=True)


def post_events(request: Request, settings: IngestSettings, lake: Lake, table: str) -> Response:
    """Take the events of a request, in the format that its headers declare."""
    form = declared(media_type(request.headers.get("content-type")), request.headers)
    return take_body(request, table, form, settings, lake)


def post_logs(request: Request, settings: IngestSettings, lake: Lake) -> Response:
    """Take log records of OTLP/HTTP, for the table of the settings, if the caller has the right to append to it."""
    try:
        if settings.rights is not None:
            settings.rights.check(APPEND, settings.logs_table)
    except Forbidden as error:
        return answered(by_name("otlp"), SentBody(request.headers, b"", 0), refused(error))
    return take_body(request, settings.logs_table, "otlp", settings, lake)


def take_body(
    request: Request,
    table: str,
    name: str,
    settings: IngestSettings,
    lake: Lake,
    options: Mapping[str, str] | None = None,
) -> Response:
    """Take the events of a body in the format of that name, and answer what became of them."""
    form = by_name(name)
    sent, split = read_body(request, form, settings, lake.clock.now_us(), options)
    origin = Origin(sent.arrival_us, key_of(request, form, sent, split), reading_of(name, sent, split))
    return answered(form, sent, settle_body(table, sent, split, origin, form, settings, lake))


def key_of(request: Request, form: BodyFormat, sent: SentBody, split: Split) -> str | None:
    """Return the Idempotency-Key of a request, or what its format has in place of one."""
    return request.headers.get("idempotency-key") or form.key(sent, split)


def read_body(
    request: Request,
    form: BodyFormat,
    settings: IngestSettings,
    arrival_us: int,
    options: Mapping[str, str] | None = None,
) -> tuple[SentBody, Split]:
    """Return a request as its format reads it, and its events. Raises Invalid for base64 that is none."""
    body = request.body()
    text = inflated(body, request.headers.get("content-encoding"), settings.limits)
    plain = body if isinstance(text, Split) else text
    sent = SentBody(request.headers, plain, arrival_us, request.path, options or {})
    return sent, text if isinstance(text, Split) else form.read(sent, settings.limits)


def answered(form: BodyFormat, sent: SentBody, response: Response) -> Response:
    """Return an answer in the format's own words, if it has any."""
    if form.reply is None:
        return response
    reply = form.reply(sent, RequestOutcome(response["statusCode"], orjson.loads(response["body"])))
    plain = reply.media_type == "application/json"
    return response | {
        "statusCode": reply.status,
        "headers": response["headers"] | {"Content-Type": reply.media_type},
        "body": (reply.body if plain else base64.b64encode(reply.body)).decode(),
        "isBase64Encoded": not plain,
    }


def refused(error: AlluviaError) -> Response:
    """Return the answer of an error."""
    return refusal(error, logger, {Unsupported: 400})


def settle_body(
    table: str, sent: SentBody, split: Split, origin: Origin, form: BodyFormat, settings: IngestSettings, lake: Lake
) -> Response:
    """Commit or queue the events of a body, and answer with the outcome, errors included."""
    try:
        if origin.idempotency_key is not None and len(origin.idempotency_key) > KEY_LIMIT_CHARS:
            raise Invalid(f"Idempotency-Key: longer than {KEY_LIMIT_CHARS} characters")
        if not form.takes_empty and not split.events and not split.rejects and not sent.body.removeprefix(BOM).strip():
            raise Invalid("the body is empty: send a JSON object, an array of them, or one per line")
        return settle(table, split, origin, settings, lake)
    except REFUSED as error:
        return refused(error)


def settle(table: str, split: Split, origin: Origin, settings: IngestSettings, lake: Lake) -> Response:
    """Commit or queue the events of a request, and answer with the outcome."""
    way = commit if settings.queue_url is None else enqueue
    return way(table, split, origin, settings, lake)


def commit(table: str, split: Split, origin: Origin, settings: IngestSettings, lake: Lake) -> Response:
    """Direct mode: commit, then answer."""
    done = ingest_batch(
        lake.catalog,
        table,
        split.events,
        split.rejects,
        arrival_us=origin.arrival_us,
        idempotency_key=origin.idempotency_key,
        create=settings.create_tables,
        tables_max=settings.tables_max,
        reading=origin.reading,
    )
    counts = done.counts()
    logger.info("committed", extra={"table": table, **counts})
    status = status_of(split, done.accepted, done.rejected, 200)
    body = done.said() | errors_of(done.rejects, done.rejected) | (not_kept(table) if not done.kept else {})
    return answer(status, body, **event_headers(table, counts))


def enqueue(table: str, split: Split, origin: Origin, settings: IngestSettings, lake: Lake) -> Response:
    """Queued mode: reject what is malformed, put the rest into the queue, then answer."""
    packed = pack(table, split.events, origin, lake.clock.new_id)
    large = {reject.position for reject in packed.rejects}
    events = [event for event in split.events if event.position not in large]
    there, misfits = table_for(
        lake.catalog, table, events, origin, create=settings.create_tables, tables_max=settings.tables_max
    )
    rejects = sorted([*split.rejects, *packed.rejects, *misfits], key=lambda reject: reject.position)
    kept = there is not None or not rejects
    accepted = 0
    if there is not None:
        left = keep_rejects(lake.catalog, table, rejects, origin)
        send(sqs(), str(settings.queue_url), packed.messages, lake.clock)
        accepted, rejects = len(events) + len(rejects) - len(left), left
    counts = {"accepted": accepted, "rejected": len(rejects)}
    logger.info("queued", extra={"table": table, "messages": len(packed.messages), **counts})
    status = status_of(split, accepted, len(rejects), 202)
    body = counts | errors_of(rejects, len(rejects)) | ({} if kept else not_kept(table))
    return answer(status, body, **event_headers(table, counts))


def event_headers(table: str, counts: Mapping[str, int | None]) -> dict[str, str]:
    """Return the headers about the events of a request: how many were accepted, stored, rejected and so on."""
    outcomes = ", ".join(f"{name}={count}" for name, count in counts.items() if name != "version")
    return {TABLE_HEADER: table, EVENTS_HEADER: outcomes}


def not_kept(table: str) -> dict[str, str]:
    """Say that rejects went nowhere."""
    return {"error": f"nothing was kept: there is no table {table!r}, and events that are all rejected create none"}


def status_of(split: Split, accepted: int, rejected: int, good: int) -> int:
    """Return the status: good if anything was accepted or nothing was wrong."""
    if accepted or not rejected:
        return good
    return 413 if split.too_large else 415 if split.unsupported else 400


def errors_of(rejects: list[Reject], count: int) -> dict[str, Any]:
    """Say why the first rejects are rejects, and how many of all are left out here."""
    shown = [{"position": each.position, "reason": each.reason} for each in rejects[:REJECTS_MAX]]
    left_out = count - len(shown)
    return {"errors": shown} | ({"errors_left_out": left_out} if left_out else {})


def consume(
    lake: Lake, records: Sequence[Mapping[str, Any]], *, create: bool, tables_max: int | None = None
) -> dict[str, list[dict[str, str]]]:
    """Commit the events of SQS records; return the messages that failed, as `ReportBatchItemFailures` wants them.

    A message that cannot be read fails alone, a table that fails takes only its own messages along, and of events each
    is judged by itself. What is delivered again makes no second row, since ids were fixed before the queue.
    """
    failed: list[str] = []
    events: defaultdict[str, list[RawEvent]] = defaultdict(list)
    messages: defaultdict[str, list[str]] = defaultdict(list)
    for record in records:
        try:
            message = unpack(record["body"])
        except Invalid as error:
            logger.warning("a message cannot be read", extra={"message_id": record["messageId"], "reason": str(error)})
            failed.append(record["messageId"])
            continue
        events[message.table].extend(message.events)
        messages[message.table].append(record["messageId"])
    for table, pending in events.items():
        try:
            outcome = ingest_batch(
                lake.catalog, table, pending, arrival_us=lake.clock.now_us(), create=create, tables_max=tables_max
            )
        except Exception:
            logger.exception("a table's events failed", extra={"table": table, "messages": len(messages[table])})
            failed += messages[table]
            continue
        if not outcome.kept:  # these were accepted once, so they may not vanish
            logger.error("no table can keep the rejects", extra={"table": table, "rejected": outcome.rejected})
            failed += messages[table]
            continue
        logger.info("committed", extra={"table": table, "messages": len(messages[table]), **outcome.counts()})
    if failed:
        logger.warning("messages will come again", extra={"failed_messages": len(failed), "messages": len(records)})
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}
