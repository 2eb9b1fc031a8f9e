"""HTTP in front of the handlers: a WSGI application that calls them as API Gateway's HTTP API (payload 2.0) would."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Callable, Collection, Iterable
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from alluvia.cli.bundled import Handler, LocalContext, load_handler, load_routes
from alluvia.cli.doors import LARGE, QUERIES, UPLOADS, Door, Places
from alluvia.cli.guards import refusal
from alluvia.cli.listening import request_line
from alluvia.clock import Clock
from alluvia.lazy_dataclasses import dataclass
from alluvia.serverless.http import TABLE_HEADER, Response, failure

StartResponse = Callable[[str, list[tuple[str, str]]], Any]
LARGE_BYTES = 64 * 1024
UPLOAD_PATHS = "/v1/upload/"
_COMPRESSED = ("H4s", "KLUv")  # how gzip and zstd begin in base64


@dataclass(frozen=True, slots=True)
class ServerRules:
    """What a server takes: the names it may be called by besides those of loopback (None: any), and how much at once.

    `large` are posts of large or compressed bodies, which take memory while they are parsed, `uploads` those of files.
    """

    hosts: Collection[str] | None = ()
    queries: Places = QUERIES
    large: Places = LARGE
    uploads: Places = UPLOADS


class Gateway:
    """Routes requests to the ingest and query functions, and tells `log` of each request on one line.

    `changed` is told of each table that events came into.
    """

    def __init__(
        self,
        clock: Clock,
        rules: ServerRules,
        log: Callable[[str], object] = lambda _: None,
        changed: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._rules = rules
        self._log = log
        self._changed = changed
        self._ingest = load_handler("ingest")
        self._query = load_handler("query")
        self._query_routes = load_routes("query")
        self._queries = Door(rules.queries, "queries")
        self._large = Door(rules.large, "large posts")
        self._uploads = Door(rules.uploads, "uploads")

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request, as WSGI has it."""
        began_ms = self._clock.now_ms()
        event = to_event(environ, self._clock)
        answer = self._answer(event)
        body = answer.get("body") or ""
        data = base64.b64decode(body) if answer.get("isBase64Encoded") else body.encode()
        status = HTTPStatus(answer["statusCode"])
        headers = [(name, str(value)) for name, value in (answer.get("headers") or {}).items()]
        headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
        http = event["requestContext"]["http"]
        took_ms = self._clock.now_ms() - began_ms
        self._log(request_line(http["sourceIp"], http["method"], http["path"], status.value, len(data), took_ms))
        start_response(f"{status.value} {status.phrase}", [*headers, ("Content-Length", str(len(data)))])
        return [] if http["method"] == "HEAD" else [data]

    def _answer(self, event: dict[str, Any]) -> Response:
        refused = refusal(event["rawPath"], event["headers"], self._rules.hosts)
        if refused is not None:
            return failure(403, refused)
        if all(route.name_in(event["rawPath"]) is None for route in self._query_routes):
            call = partial(self._call, self._ingest, event)
            door = self._uploads if event["rawPath"].startswith(UPLOAD_PATHS) else self._large
            answer = door.through(call) if door is self._uploads or _is_large(event) else call()
            table = answer["headers"].get(TABLE_HEADER)
            if answer["statusCode"] < 300 and table is not None:
                self._changed(table)
            return answer
        return self._queries.through(partial(self._call, self._query, event))

    def _call(self, handler: Handler, event: dict[str, Any]) -> Response:
        """Call a handler; what it does not answer for becomes a 500 without details, as API Gateway has it."""
        try:
            answer: Response = handler(event, LocalContext("local", self._clock))
        except Exception:  # noqa: BLE001 - a server goes on; the traceback is for whoever runs it
            traceback.print_exc()
            return failure(500, "internal error")
        return answer


def _is_large(event: dict[str, Any]) -> bool:
    body = event.get("body", "")
    compressed = body.startswith(_COMPRESSED) or "content-encoding" in event["headers"]
    return bool(compressed) or len(body) * 3 // 4 > LARGE_BYTES


def to_event(environ: dict[str, Any], clock: Clock) -> dict[str, Any]:
    """Return a WSGI request as the event that API Gateway would make of it."""
    headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name.startswith("HTTP_")}
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if environ.get(name):
            headers[name.replace("_", "-").lower()] = environ[name]
    body = environ["wsgi.input"].read()
    path, query = environ.get("PATH_INFO") or "/", environ.get("QUERY_STRING", "")
    http = {
        "method": environ["REQUEST_METHOD"],
        "path": path,
        "protocol": environ.get("SERVER_PROTOCOL", "HTTP/1.1"),
        "sourceIp": environ.get("REMOTE_ADDR", ""),
        "userAgent": headers.get("user-agent", ""),
    }
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "accountId": "local",
            "apiId": "local",
            "domainName": "localhost",
            "domainPrefix": "localhost",
            "http": http,
            "requestId": clock.new_id(),
            "routeKey": "$default",
            "stage": "$default",
            "time": "",
            "timeEpoch": clock.now_ms(),
        },
        "isBase64Encoded": bool(body),
    }
    if query:
        event["queryStringParameters"] = dict(parse_qsl(query, keep_blank_values=True))
    if body:
        event["body"] = base64.b64encode(body).decode()
    return event
