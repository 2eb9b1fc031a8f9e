"""Routes of a function. Dispatch, checks of rights, tests and the OpenAPI document go by the same declarations.

Functions read the routes when they start, so a route names its taker, bodies and answers, and loads none of them. Pure.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import unquote

from alluvia.access.rights import PUBLISH, Rights
from alluvia.errors import Invalid, cut
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import likeness
from alluvia.serverless.http import Request, Response, failure
from alluvia.serverless.routes.fields import IN_QUERY, RequestField
from alluvia.table_names import check_name, folder_name, sql_name

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
"""Paths of other products, a folder's with a slash at the end, and their counterparts here."""


@dataclass(frozen=True, slots=True)
class Right:
    """A right that a caller needs before the taker of a route sees its request.

    An `operation` is `on` one table, the whole lake, or one published query. `what` names it in errors.
    """

    on: str = ""
    operation: str = ""
    what: str = ""

    @property
    def scope(self) -> str:
        """Return the scope that a token must have, as the OpenAPI document says it; "" if it depends on the request."""
        return f"{self.operation}:{self.on}" if self.operation else ""

    def check(self, rights: Rights | None, names: Sequence[str]) -> None:
        """Raise `Forbidden` for a caller without this right. `names` are those in the path.

        Raises `Invalid` for a name that no table can have: no scope would allow it.
        """
        if rights is None or self in (PUBLIC, SENDER, LINKED, ANY_CALLER):
            return
        if self == PUBLISHES:
            rights.check_publish(names[0])
        elif self.on == _TABLE:
            check_name(folder_name(names[0]))
            rights.check(self.operation, names[0])
        else:
            rights.check_any_table()
            if self.on == _LAKE:
                rights.check_all(self.operation, self.what)


_TABLE, _LAKE = "{table}", "*"
PUBLIC = Right("anyone")
"""Anyone may send requests."""
SENDER = Right("sender")
"""The taker verifies a signature, so that nothing in front of the function asks for more."""
LINKED = Right("link")
"""The taker verifies the token in the address of a link, and nothing in front of the function asks for more."""
ANY_CALLER = Right("caller")
"""Any caller with a valid token: the taker checks its rights, which depend on the request."""
ANY_TABLE = Right("any table")
"""A caller with a scope for some table: the taker checks which it may see."""
PUBLISHES = Right("{query}", PUBLISH)


def of_table(operation: str) -> Right:
    """Return the right to an operation on the table that the path names."""
    return Right(_TABLE, operation)


def of_lake(operation: str, what: str) -> Right:
    """Return the right to an operation on all tables, with all their rows and columns."""
    return Right(_LAKE, operation, what)


@dataclass(frozen=True, slots=True)
class Route:
    """A path, and the methods that are taken there in one way: `GET,HEAD /v1/tables/{table}`.

    `taker` is the function that takes its requests, and the names in their paths: `<module>.<name>` in the package of
    the Lambda function. `body` and the values of `answers`, by status, are names in `contents`; `json_body` is one in
    `bodies`, whose fields the taker gets by their names. With `only`, it gets those of the query string, too, and other
    fields are refused with that hint. `on_branch`: a header may send it to a branch.
    """

    key: str
    taker: str
    right: Right
    summary: str
    answers: Mapping[int, str]
    errors: tuple[int, ...] = ()
    fields: tuple[RequestField, ...] = ()
    body: str = ""
    json_body: str = ""
    only: str | None = None
    on_branch: bool = False
    named: str = ""
    """Its name, where it is not that of its taker."""

    @property
    def methods(self) -> list[str]:
        """Return the methods that it takes."""
        return self.key.partition(" ")[0].split(",")

    @property
    def path(self) -> str:
        """Return its path, with names in braces."""
        return self.key.partition(" ")[2]

    @property
    def name(self) -> str:
        """Return the name of the operation."""
        return self.named or self.taker.rpartition(".")[2]

    @property
    def module(self) -> str:
        """Return the module of its taker."""
        return self.taker.partition(".")[0]

    @property
    def public(self) -> bool:
        """Whether anyone may send requests."""
        return self.right in (PUBLIC, SENDER, LINKED)

    def names_in(self, path: str) -> list[str] | None:
        """Return the names in a path, in the order of those in braces; None for a path that is not this route's.

        A table is named as in SQL, and `main.events` is `events`.
        """
        match = _pattern(self.key).fullmatch(path)
        if match is None:
            return None
        named = zip(_NAME.findall(self.path), map(unquote, match.groups()), strict=True)
        return [_table_named(name) if of == _TABLE else name for of, name in named]

    def check_parameters(self, request: Request) -> None:
        """Raise `Invalid`, naming it, for a parameter in the query string that callers of this route cannot give.

        Public routes, and those of senders, whose addresses may have any, take no notice of them. Takers of queries,
        whose parameters have names of the users' own, and of uploads check theirs themselves.
        """
        query = request.query_string
        if not query or self.public or self.only is not None or any(each.place == IN_QUERY for each in self.fields):
            return
        from urllib.parse import parse_qsl

        name = next((name for name, _ in parse_qsl(query, keep_blank_values=True)), query)
        raise Invalid(f"{name!r:.100} is not a parameter of {self.key}, which has none{_has_parameter(name, self)}")

    def load_taker(self, package: str) -> Any:
        """Return the function that takes its requests, by the package of the Lambda function."""
        module, _, name = self.taker.rpartition(".")
        place = f"{package}.{module}"
        return getattr(sys.modules.get(place) or import_module(place), name)


class RouteTable:
    """Routes, in the order in which they are tried."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = tuple(routes)
        self._by_start: dict[str, list[Route]] = {}
        for route in self._routes:
            self._by_start.setdefault(_start(route.path), []).append(route)

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def at(self, path: str) -> Iterator[tuple[Route, list[str]]]:
        """Yield the routes of a path, each with the names in the path."""
        for route in self._by_start.get(_start(path), ()):
            if (names := route.names_in(path)) is not None:
                yield route, names


def _table_named(name: str) -> str:
    return name if "/" in name else sql_name(folder_name(name))


def _start(path: str) -> str:
    """Return the first word of a path, or two if the first is a version. No route has a parameter there."""
    return "/".join(path.split("/", 3)[: 3 if path.startswith("/v1/") else 2])


def routed(routes: RouteTable, request: Request, otherwise: str) -> tuple[Route, list[str]] | Response:
    """Return the route of a request and the names in its path, or the answer to a request that has none.

    `otherwise` says what to send where.
    """
    taken: list[str] = []
    for route, names in routes.at(request.path):
        if request.method in route.methods:
            return route, names
        taken += route.methods
    if taken:
        allowed = ", ".join(taken)
        return failure(405, f"{request.path} takes {allowed}, not {request.method}", Allow=allowed)
    elsewhere = next((text for start, text in ELSEWHERE.items() if _begins(request.path, start)), None)
    near = _near_path(request.path) if elsewhere is None else None
    fix = elsewhere or (otherwise if near is None else f"did you mean {near}?")
    return failure(404, f"there is nothing at {cut(request.path, 200)}: {fix}")


def route_at(routes: RouteTable, method: str, path: str) -> Route | None:
    """Return the route of a request, by its method and path; None if it has none."""
    return next((route for route, _ in routes.at(path) if method in route.methods), None)


def _has_parameter(name: str, other: Route) -> str:
    """Return the end of a sentence: which route of the same right takes a parameter that another lacks."""
    from alluvia.serverless.routes.ingest_routes import INGEST_ROUTES  # those of the other function, for errors alone

    routes = (route for route in INGEST_ROUTES if route.right == other.right)
    found = next((route.key for route in routes for each in route.fields if each.name == name), None)
    return f": {found} has it" if found else ""


def _near_path(path: str) -> str | None:
    """Return the path of a route, of whatever function, whose own words are like those of an unknown one.

    It has the names that are given; versions such as /v1 and a slash at the end do not count.
    """
    from alluvia.serverless.routes.ingest_routes import INGEST_ROUTES  # those of the other function, for errors alone
    from alluvia.serverless.routes.query_routes import QUERY_ROUTES

    given = _words(path)
    best, near = 0.0, None
    for route in (*QUERY_ROUTES, *INGEST_ROUTES):
        known = _words(route.path)
        if len(given) <= len(known) and all(map(_is_name, known[len(given) :])):
            own = [pair for pair in zip(known, given, strict=False) if not _is_name(pair[0])]
            other = _OTHER_WORDS.get(route.path)
            like = min((1.0 if said == other else likeness(said, word) for word, said in own), default=0.0)
            if like > best:
                best, near = like, route.path
                for word, said in zip(known, given, strict=False):
                    near = near.replace(word, said, 1) if _is_name(word) else near
    return None if near == path else near


_NAME = re.compile(r"\{\w+\}")
_OTHER_WORDS = {"/q": "query", "/v1/events/{table}": "ingest"}
"""Words of other products for those of routes."""


def _words(path: str) -> list[str]:
    words = [word for word in path.split("/") if word]
    return words[1:] if words and re.fullmatch(r"v\d+", words[0]) else words


def _is_name(word: str) -> bool:
    return _NAME.fullmatch(word) is not None


def _begins(path: str, start: str) -> bool:
    return path.startswith(start) if start.endswith("/") and start != "/" else path == start


@cache
def _pattern(key: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{\w+\\}", "([^/]+)", re.escape(key.partition(" ")[2])))
