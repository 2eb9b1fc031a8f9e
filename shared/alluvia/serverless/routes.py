"""Routes of a function: paths, their methods, and what takes the requests of each. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Generic, TypeVar
from urllib.parse import unquote

from alluvia.errors import cut
from alluvia.lazy_dataclasses import dataclass
from alluvia.serverless.http import Request, Response, failure

Taker = TypeVar("Taker")


ELSEWHERE = {
    "/": "ClickHouse's / is /q here, with the same query, parameters (param_x) and body",
    "/ping": "ClickHouse's /ping is GET /healthz here, or GET /readyz, which also looks at the lake's storage",
    "/play": "ClickHouse's /play has no counterpart here: `alluvia sql` has a prompt",
    "/v0/sql": "Tinybird's /v0/sql is /q here, with the same q",
    "/v0/pipes/": "Tinybird's /v0/pipes/{name}.json is GET /v1/queries/{name}.json here, which has the rows alone",
    "/v0/events": "Tinybird's /v0/events?name={table} is POST /v1/events/{table} here",
    "/v0/datasources": "Tinybird's /v0/datasources?name={table} is POST /v1/upload/{table} here",
    "/upload/": "Seafowl's /upload/{schema}/{table} is POST /v1/upload/{table} here",
}
"""Paths of other products, a folder's with a slash at the end, and what they are here."""


@dataclass(frozen=True, slots=True)
class Route(Generic[Taker]):
    """A path, in which parts may be names in braces, and what takes its requests, by method."""

    path: str
    takers: Mapping[str, Taker]
    public: bool = False
    """Whether anyone may send requests: the taker itself verifies those whom it must."""

    def name_in(self, path: str) -> str | None:
        """Return the name in a path, "" if this route has none, with slashes between several; None for other paths."""
        match = _pattern(self.path).fullmatch(path)
        return None if match is None else unquote("/".join(match.groups()))


@dataclass(frozen=True, slots=True)
class Routed(Generic[Taker]):
    """What takes a request, and the name in its path, "" if its route has none."""

    taker: Taker
    name: str
    public: bool


def routed(routes: Iterable[Route[Taker]], request: Request, otherwise: str) -> Routed[Taker] | Response:
    """Return what takes a request, or the answer to one that nothing takes; `otherwise` says what to send where."""
    found = ((route, route.name_in(request.path)) for route in routes)
    route, name = next(((route, name) for route, name in found if name is not None), (None, ""))
    if route is None:
        hint = next((text for start, text in ELSEWHERE.items() if _begins(request.path, start)), otherwise)
        return failure(404, f"{hint}: there is nothing at {cut(request.path, 200)}")
    taker = route.takers.get(request.method)
    if taker is None:
        allowed = ", ".join(route.takers)
        return failure(405, f"{request.path} takes {allowed}, not {request.method}", Allow=allowed)
    return Routed(taker, name, route.public)


def _begins(path: str, start: str) -> bool:
    return path.startswith(start) if start.endswith("/") and start != "/" else path == start


@cache
def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{\w+\\}", "([^/]+)", re.escape(path)))
