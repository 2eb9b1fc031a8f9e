"""What became of a request's events: committed at once, or put into the queue; and the answer that says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alluvia import Lake
from alluvia.access.rights import APPEND
from alluvia.events.ingest.messages import pack
from alluvia.events.ingest.pipeline import ingest_batch, keep_rejects, table_for
from alluvia.events.ingest.values import Origin, Reject, Split
from alluvia.serverless.http import EVENTS_HEADER, TABLE_HEADER, Response, answer
from alluvia.serverless.log_lines import Logger
from alluvia.serverless.sqs_sender import send, sqs

from .settings import SERVICE, IngestSettings

ERRORS_MAX = 100

logger = Logger(service=SERVICE, child=True)


def settle(table: str, found: Split, origin: Origin, settings: IngestSettings, lake: Lake) -> Response:
    """Commit or queue the events of a request, and answer what became of them. Raises `Forbidden`."""
    if settings.rights is not None:
        settings.rights.check(APPEND, table)
    way = commit if settings.queue_url is None else enqueue
    return way(table, found, origin, settings, lake)


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
        reading=origin.reading,
    )
    counts = done.counts()
    logger.info("committed", extra={"table": table, **counts})
    status = status_of(found, done.accepted, done.rejected, 200)
    body = counts | errors_of(done.rejects, done.rejected) | (not_kept(table) if not done.kept else {})
    return answer(status, body, **told_of(table, counts))


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
        left = keep_rejects(lake, table, rejects, origin)
        send(sqs(), str(settings.queue_url), packed.messages, lake.clock)
        accepted, rejects = len(events) + len(rejects) - len(left), left
    counts = {"accepted": accepted, "rejected": len(rejects)}
    logger.info("queued", extra={"table": table, "messages": len(packed.messages), **counts})
    status = status_of(found, accepted, len(rejects), 202)
    body = counts | errors_of(rejects, len(rejects)) | ({} if kept else not_kept(table))
    return answer(status, body, **told_of(table, counts))


def told_of(table: str, counts: Mapping[str, int | None]) -> dict[str, str]:
    """Return what the headers tell of the events of a request, by what became of them."""
    outcomes = ", ".join(f"{name}={count}" for name, count in counts.items() if name != "version")
    return {TABLE_HEADER: table, EVENTS_HEADER: outcomes}


def not_kept(table: str) -> dict[str, str]:
    """Say that rejects went nowhere."""
    return {"error": f"nothing was kept: there is no table {table!r}, and events that are all rejected create none"}


def status_of(found: Split, accepted: int, rejected: int, good: int) -> int:
    """Return the status: good if anything was accepted or nothing was wrong."""
    if accepted or not rejected:
        return good
    return 413 if found.too_large else 415 if found.unsupported else 400


def errors_of(rejects: list[Reject], count: int) -> dict[str, Any]:
    """Say why the first rejects are rejects, and how many of all are left out here."""
    shown = [{"position": each.position, "reason": each.reason} for each in rejects[:ERRORS_MAX]]
    left_out = count - len(shown)
    return {"errors": shown} | ({"errors_left_out": left_out} if left_out else {})
