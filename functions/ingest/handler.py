"""Ingest: events come in over HTTP, and settle into a table at once or by way of a queue.

One handler for API Gateway (payload 2.0), Lambda function URLs and SQS.
"""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import unquote

from alluvia import Lake
from alluvia.errors import CommitUnknown, Conflict, Invalid, TableNotFound, Unavailable, Unsupported, cut
from alluvia.ingest.envelope import split
from alluvia.ingest.messages import pack
from alluvia.ingest.pipeline import ingest_batch, keep_rejects, table_for
from alluvia.ingest.values import Origin, Reject, Split
from alluvia.serverless import warm_lake
from alluvia.serverless.events import messages_of
from alluvia.serverless.http import Request, Response, answer, failure, refusal
from alluvia.serverless.log_lines import Logger, with_request_id
from alluvia.serverless.sending import send, sqs

from .consumer import consume
from .settings import IngestSettings

ERRORS_MAX = 100
KEY_LIMIT_CHARS = 255
_EVENTS = re.compile(r"/v1/events/([^/]+)")

logger = Logger(service="ingest")
warm_lake.prepare()
if "AWS_LAMBDA_FUNCTION_NAME" in os.environ and os.environ.get("ALLUVIA_MODE") == "queued":
    sqs()


@with_request_id(logger)
def handler(event: dict[str, Any], context: object) -> dict[str, Any]:  # noqa: ARG001 - Lambda's signature
    """Answer an HTTP request, or commit a batch of SQS messages and report those that failed."""
    settings = IngestSettings.read(os.environ)
    lake = warm_lake.lake()
    if isinstance(event, dict) and "Records" in event:
        records = messages_of(event)
        return dict(consume(lake, records, create=settings.create_tables, tables_max=settings.tables_max))
    return respond(Request.read(event, "messages of SQS (Records)"), settings, lake)


def respond(request: Request, settings: IngestSettings, lake: Lake) -> Response:
    """Route one HTTP request, and turn errors into statuses."""
    match = _EVENTS.fullmatch(request.path)
    allowed = "POST" if match else "GET" if request.path == "/healthz" else None
    if allowed is None:
        return failure(404, f"send events to POST /v1/events/{{table}}: there is nothing at {cut(request.path, 200)}")
    if request.method != allowed:
        return failure(405, f"{request.path} takes {allowed}, not {request.method}", Allow=allowed)
    if match is None:
        return answer(200, {"status": "ok"})
    try:
        return take(request, unquote(match[1]), settings, lake)
    except (Invalid, Unsupported, TableNotFound, Unavailable, CommitUnknown, Conflict) as error:
        return refusal(error, logger, {Unsupported: 400})


def take(request: Request, table: str, settings: IngestSettings, lake: Lake) -> Response:
    """Take the events of a request, and answer what became of them."""
    key = request.headers.get("idempotency-key") or None
    if key is not None and len(key) > KEY_LIMIT_CHARS:
        raise Invalid(f"Idempotency-Key: longer than {KEY_LIMIT_CHARS} characters")
    body = request.body()
    origin = Origin(lake.clock.now_us(), key)
    found = split(
        body,
        content_type=request.headers.get("content-type"),
        content_encoding=request.headers.get("content-encoding"),
        limits=settings.limits,
    )
    if not found.events and not found.rejects and not body.strip():
        raise Invalid("the body is empty: send a JSON object, an array of them, or one per line")
    if settings.queue_url is None:
        return commit(table, found, origin, settings, lake)
    return enqueue(table, found, origin, settings, lake)


def commit(table: str, found: Split, origin: Origin, settings: IngestSettings, lake: Lake) -> Response:
    """Direct mode: commit, then answer."""
    done = ingest_batch(
        lake,
        table,
        found.events,
        found.rejects,
        arrival_us=origin.arrival_us,
        idempotency_key=origin.idempotency_key,
        create=settings.create_tables,
        tables_max=settings.tables_max,
    )
    counts = done.counts()
    logger.info("committed", extra={"table": table, **counts})
    status = status_of(found, done.accepted, done.rejected, 200)
    return answer(status, counts | errors_of(done.rejects) | (not_kept(table) if not done.kept else {}))


def enqueue(table: str, found: Split, origin: Origin, settings: IngestSettings, lake: Lake) -> Response:
    """Queued mode: reject what is malformed, put the rest into the queue, then answer."""
    packed = pack(table, found.events, origin, lake.clock.new_id)
    large = {reject.position for reject in packed.rejects}
    events = [event for event in found.events if event.position not in large]
    there, misfits = table_for(
        lake, table, events, origin, create=settings.create_tables, tables_max=settings.tables_max
    )
    rejects = sorted([*found.rejects, *packed.rejects, *misfits], key=lambda reject: reject.position)
    kept = there is not None or not rejects
    accepted = 0
    if there is not None:
        keep_rejects(lake, table, rejects, origin)
        send(sqs(), str(settings.queue_url), packed.messages, lake.clock)
        accepted = len(events)
    counts = {"accepted": accepted, "rejected": len(rejects)}
    logger.info("queued", extra={"table": table, "messages": len(packed.messages), **counts})
    status = status_of(found, accepted, len(rejects), 202)
    return answer(status, counts | errors_of(rejects) | ({} if kept else not_kept(table)))


def not_kept(table: str) -> dict[str, str]:
    """Say that rejects went nowhere."""
    return {"error": f"nothing was kept: there is no table {table!r}, and events that are all rejected create none"}


def status_of(found: Split, accepted: int, rejected: int, good: int) -> int:
    """Return the status: good if anything was accepted or nothing was wrong."""
    if accepted or not rejected:
        return good
    return 413 if found.too_large else 400


def errors_of(rejects: list[Reject]) -> dict[str, Any]:
    """Say why the first rejects are rejects, and how many are left out here."""
    shown = [{"position": each.position, "reason": each.reason} for each in rejects[:ERRORS_MAX]]
    left_out = len(rejects) - len(shown)
    return {"errors": shown} | ({"errors_left_out": left_out} if left_out else {})
