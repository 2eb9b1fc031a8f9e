"""The routes of the function: a path, its methods, and what takes each."""

from __future__ import annotations

from collections.abc import Callable

from alluvia import Lake
from alluvia.events.formats.segment_format import PATHS as CALL_PATHS
from alluvia.serverless.http import Request, Response, answer
from alluvia.serverless.routes import Route

from .events import take_events, take_logs
from .settings import IngestSettings
from .webhooks import allow_browser, allow_calls, shake_hands, take_calls, take_webhook

EventTaker = Callable[[Request, str, IngestSettings, Lake], Response]
"""(request, the name in its path or "", settings, lake) → answer."""


def say_healthy(request: Request, name: str, settings: IngestSettings, lake: Lake) -> Response:  # noqa: ARG001
    """Answer that the function runs."""
    return answer(200, {"status": "ok"})


def take_upload(request: Request, table: str, settings: IngestSettings, lake: Lake) -> Response:
    """Take a file of rows."""
    from .uploads import take_file  # loads what reads files, which events do without

    return take_file(request, table, settings, lake)


def tell_upload(request: Request, _name: str, settings: IngestSettings, lake: Lake) -> Response:
    """Say how an upload in parts stands."""
    from .upload_parts import tell_parts

    return tell_parts(request, settings, lake)


def complete_upload(request: Request, _name: str, settings: IngestSettings, lake: Lake) -> Response:
    """Store a file whose parts have come."""
    from .upload_parts import complete

    return complete(request, settings, lake)


def take_part(request: Request, _name: str, settings: IngestSettings, lake: Lake) -> Response:
    """Take a part of a file at a signed path."""
    from .upload_parts import put_part

    return put_part(request, settings, lake)


_CALL_TAKERS: dict[str, EventTaker] = {"POST": take_calls, "OPTIONS": allow_calls}
ROUTES: tuple[Route[EventTaker], ...] = (
    Route("/v1/events/{table}", {"POST": take_events}),
    Route("/v1/logs", {"POST": take_logs}),
    Route("/v1/upload/{table}", {"POST": take_upload}),
    Route("/v1/upload/{table}/{upload}", {"GET": tell_upload}),
    Route("/v1/upload/{table}/{upload}/complete", {"POST": complete_upload}),
    Route("/v1/upload/{table}/{upload}/parts/{part}", {"PUT": take_part}, public=True),
    *(Route(f"/v1/{call}", _CALL_TAKERS, public=True) for call in CALL_PATHS),
    Route("/v1/webhooks/{source}", {"POST": take_webhook, "GET": shake_hands, "OPTIONS": allow_browser}, public=True),
    Route("/healthz", {"GET": say_healthy, "HEAD": say_healthy}, public=True),
)


def sends_to_source(path: str) -> bool:
    """Whether a path is one whose source says itself which pages may use it."""
    return path.startswith("/v1/webhooks/") or path.removeprefix("/v1/") in CALL_PATHS
