"""POST /v1/events/{table}: events in the body, for the table that the path names."""

from __future__ import annotations

from alluvia import Lake
from alluvia.events.formats.registry import declared
from alluvia.events.ingest.envelope import media_type
from alluvia.serverless.http import Request, Response

from .bodies import take_body
from .settings import IngestSettings


def post_events(request: Request, settings: IngestSettings, lake: Lake, table: str) -> Response:
    """Take the events of a request, in the format that its headers declare."""
    form = declared(media_type(request.headers.get("content-type")), request.headers)
    return take_body(request, table, form, settings, lake)


def post_logs(request: Request, settings: IngestSettings, lake: Lake) -> Response:
    """Take log records of OTLP/HTTP, for the table of the settings."""
    return take_body(request, settings.logs_table, "otlp", settings, lake)
