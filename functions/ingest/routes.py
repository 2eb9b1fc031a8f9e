"""The routes of the function: a path, its methods, and what takes each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from urllib.parse import unquote

from alluvia import Lake
from alluvia.formats.segment_format import PATHS as CALL_PATHS
from alluvia.serverless.http import Request, Response, answer

from .events import take_events, take_logs
from .settings import IngestSettings
from .webhooks import allow_browser, allow_calls, shake_hands, take_calls, take_webhook

Taker = Callable[[Request, str, IngestSettings, Lake], Response]
"""(request, the name in its path or "", settings, lake) → answer."""


@dataclass(frozen=True, slots=True)
class Route:
    """A path, in which one part may be a name in braces, and what takes its requests, by method."""

    path: str
    takers: Mapping[str, Taker]
    public: bool = False
    """Whether anyone may send requests: the taker itself verifies those whom it must."""

    def name_in(self, path: str) -> str | None:
        """Return the name in a path, "" if this route has none; None for a path of another route."""
        match = _pattern(self.path).fullmatch(path)
        return None if match is None else unquote("".join(match.groups()))


@cache
def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{\w+\\}", "([^/]+)", re.escape(path)))


def say_healthy(request: Request, name: str, settings: IngestSettings, lake: Lake) -> Response:  # noqa: ARG001
    """Answer that the function runs."""
    return answer(200, {"status": "ok"})


ROUTES = (
    Route("/v1/events/{table}", {"POST": take_events}),
    Route("/v1/logs", {"POST": take_logs}),
    *(Route(f"/v1/{call}", {"POST": take_calls, "OPTIONS": allow_calls}, public=True) for call in CALL_PATHS),
    Route("/v1/webhooks/{source}", {"POST": take_webhook, "GET": shake_hands, "OPTIONS": allow_browser}, public=True),
    Route("/healthz", {"GET": say_healthy, "HEAD": say_healthy}, public=True),
)


def route_of(path: str) -> tuple[Route, str] | None:
    """Return the route of a path and the name in it; None if there is none."""
    found = ((route, route.name_in(path)) for route in ROUTES)
    return next(((route, name) for route, name in found if name is not None), None)
