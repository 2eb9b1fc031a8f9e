"""POST /v1/events/{table}: events in the body, for the table that the path names."""

from __future__ import annotations

from alluvia import Lake
from alluvia.errors import Invalid
from alluvia.ingest.envelope import split
from alluvia.ingest.values import Origin
from alluvia.serverless.http import Request, Response

from .settings import IngestSettings
from .settling import settle

KEY_LIMIT_CHARS = 255


def take_events(request: Request, table: str, settings: IngestSettings, lake: Lake) -> Response:
    """Take the events of a request, and answer what became of them."""
    key = request.headers.get("idempotency-key") or None
    if key is not None and len(key) > KEY_LIMIT_CHARS:
        raise Invalid(f"Idempotency-Key: longer than {KEY_LIMIT_CHARS} characters")
    body = request.body()
    found = split(
        body,
        content_type=request.headers.get("content-type"),
        content_encoding=request.headers.get("content-encoding"),
        limits=settings.limits,
    )
    if not found.events and not found.rejects and not body.strip():
        raise Invalid("the body is empty: send a JSON object, an array of them, or one per line")
    return settle(table, found, Origin(lake.clock.now_us(), key), settings, lake)
