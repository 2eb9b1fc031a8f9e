"""HTTP in front of the handlers: a WSGI application that calls them as API Gateway's HTTP API (payload 2.0) would.

A checkout has the handlers at its top, an installed wheel inside the package (`pyproject.toml` maps them there).
"""

from __future__ import annotations

import base64
import importlib
import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from alluvia.clock import Clock
from alluvia.extras import needing
from alluvia.lazy_dataclasses import dataclass
from alluvia.server.guards import LARGE, QUERIES, UPLOADS, Admission, HostNames, Slots, refusal
from alluvia.server.large_results import PATH as DOWNLOADS_PATH
from alluvia.server.large_results import Download, FileWrapper
from alluvia.server.listening import request_line, utf8_path
from alluvia.server.metrics import OTHER, Metrics
from alluvia.server.metrics import PATH as METRICS_PATH
from alluvia.serverless.authorization import AUTH
from alluvia.serverless.cors import cors_headers, preflight_answer
from alluvia.serverless.http import GONE, NOSNIFF, OPERATOR, OPERATOR_HEADER, Response, failure
from alluvia.serverless.log_lines import caller_name, forget_caller
from alluvia.serverless.routes.ingest_routes import INGEST_ROUTES, is_of_source
from alluvia.serverless.routes.query_routes import QUERY_ROUTES
from alluvia.serverless.routes.route import RouteTable, route_at

Handler = Callable[[dict[str, Any], Any], Any]
FUNCTIONS = ("ingest", "merge", "pipeline", "query", "vacuum", "backfill")
_PACKAGE = Path(__file__).parents[1]
_INSTALLED = (_PACKAGE / "functions").is_dir()
_FUNCTIONS = "alluvia.functions" if _INSTALLED else "functions"
DATA = (_PACKAGE if _INSTALLED else _PACKAGE.parents[1]) / "events" / "data"
COMMAND = "alluvia" if _INSTALLED else ".venv/bin/alluvia"
INTERNAL = "internal error"
TIME_LIMIT_MS = 15 * 60 * 1000


def load_handler(function: str) -> Handler:
    """Return a function's handler. Raises `NotInstalled` where a package that it needs is missing."""
    with needing("aws", f"the {function} function"):
        handler: Handler = importlib.import_module(f"{_FUNCTIONS}.{function}.handler").handler
    return handler


class LocalContext:
    """The attributes of a Lambda context that handlers and loggers use."""

    memory_limit_in_mb = "0"
    function_version = "$LATEST"
    log_group_name = ""
    log_stream_name = ""

    def __init__(self, function_name: str, clock: Clock) -> None:
        self.function_name = function_name
        self.invoked_function_arn = f"arn:aws:lambda:local:0:function:{function_name}"
        self.aws_request_id = clock.new_id()
        self._clock = clock
        self._started_ms = clock.now_ms()

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until a Lambda would be stopped."""
        return max(0, self._started_ms + TIME_LIMIT_MS - self._clock.now_ms())


StartResponse = Callable[[str, list[tuple[str, str]]], Any]
Downloads = Callable[[dict[str, Any], FileWrapper | None], Download | Response]
LARGE_BYTES = 64 * 1024
UPLOAD_PATHS = "/v1/upload/"
_ROUTES = RouteTable((*QUERY_ROUTES, *INGEST_ROUTES))
_COMPRESSED = ("H4s", "KLUv")  # how gzip and zstd begin in base64


@dataclass(frozen=True, slots=True)
class ServerRules:
    """What a server takes: the names that it may be called by, and how much at once.

    `large` are posts of large or compressed bodies, which take memory while they are parsed, `uploads` those of files.
    """

    hosts: HostNames = HostNames()
    queries: Slots = QUERIES
    large: Slots = LARGE
    tells_metrics: bool = True
    """Whether every caller that may send requests may read the metrics."""
    uploads: Slots = UPLOADS
    operator_key: str = ""
    """The key in requests of the user who runs the server; "" for none."""


class Gateway:
    """Routes requests to the ingest and query functions, and tells `log` of each request on one line.

    `downloads` answers signed paths.
    """

    def __init__(
        self,
        clock: Clock,
        rules: ServerRules,
        log: Callable[[str], object] = lambda _: None,
        metrics: Metrics | None = None,
        downloads: Downloads | None = None,
    ) -> None:
        self._clock = clock
        self._downloads = downloads
        self._rules = rules
        self._log = log
        self._metrics = metrics or Metrics()
        self._ingest = load_handler("ingest")
        self._query = load_handler("query")
        self._queries = Admission(rules.queries, "queries")
        self._drains = False
        self._large = Admission(rules.large, "large posts")
        self._uploads = Admission(rules.uploads, "uploads")

    @property
    def queries(self) -> Admission:
        """Return what lets queries in, for others that run them."""
        return self._queries

    def admits(self, method: str, path: str, headers: Mapping[str, str]) -> bool:
        """Whether to read the body of a request: not if it needs a token and has none.

        `path` is WSGI's. Whether a token is valid is looked at later: that may need the store.
        """
        if os.environ.get(AUTH) not in ("tokens", "jwt") or headers.get("AUTHORIZATION"):
            return True
        route = route_at(_ROUTES, method, quote(utf8_path(path), "/:@!$&'()*+,;="))
        return route is None or route.public

    def note_refusal(self, method: str, path: str, status: int, size: int) -> None:
        """Count a request that was answered before it got here."""
        self._metrics.note(self._route_of(path), method, {"statusCode": status, "headers": {}, "body": ""}, size, 0)

    def begin_to_drain(self) -> None:
        """Say from now on that the server is not ready: it takes its last requests."""
        self._drains = True

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request, as WSGI has it."""
        began_ms = self._clock.now_ms()
        event = to_event(environ, self._clock, self._rules.operator_key)
        forget_caller()
        response = self._answer(event, environ.get("wsgi.file_wrapper"))
        http = event["requestContext"]["http"]
        answer, body, size = _sendable(response)
        if http["method"] == "HEAD":  # an answer may leave out a large body, and say its size
            size = int(answer["headers"].get("Content-Length", size))
        took_ms, status = self._clock.now_ms() - began_ms, answer["statusCode"]
        line = request_line(http["sourceIp"], http["method"], http["path"], status, size, took_ms, caller_name())
        self._log(line)
        self._metrics.note(self._route_of(http["path"]), http["method"], answer, size, took_ms / 1000)
        return send(answer, body, size, http["method"], start_response)

    def _route_of(self, path: str) -> str:
        """Return the path of the route that a path is of."""
        if path == METRICS_PATH:
            return path
        return next((route.path for route, _ in _ROUTES.at(path)), OTHER)

    def _answer(self, event: dict[str, Any], wrap: FileWrapper | None) -> Response | Download:
        refused = refusal(event["rawPath"], event["headers"], self._rules.hosts)
        if refused is not None:
            return failure(403, refused)
        if is_of_source(event["rawPath"]):
            return self._routed(event, wrap)
        answer = preflight_answer(event, os.environ) or self._routed(event, wrap)
        if isinstance(answer, Download):
            headers = cors_headers(event, os.environ, answer.headers)
            return Download(answer.status, headers, answer.body, answer.size)
        return answer | {"headers": cors_headers(event, os.environ, answer["headers"])}

    def _routed(self, event: dict[str, Any], wrap: FileWrapper | None) -> Response | Download:
        if event["rawPath"] == METRICS_PATH:
            return self._tell_metrics(event)
        if self._drains and event["rawPath"] == "/readyz":
            return failure(503, "the server is shutting down", **{"Retry-After": "5", "Cache-Control": "no-store"})
        if self._downloads is not None and event["rawPath"].startswith(DOWNLOADS_PATH):
            return self._downloads(event, wrap)
        if next(QUERY_ROUTES.at(event["rawPath"]), None) is None:
            call = partial(self._call, self._ingest, event)
            admission = self._uploads if event["rawPath"].startswith(UPLOAD_PATHS) else self._large
            return admission.through(call) if admission is self._uploads or _is_large(event) else call()
        return self._queries.through(partial(self._call, self._query, event))

    def _tell_metrics(self, event: dict[str, Any]) -> Response:
        if self._rules.tells_metrics:
            return self._metrics.answer(event["requestContext"]["http"]["method"], event["headers"].get("accept", ""))
        return failure(404, "callers need tokens here, so metrics are told elsewhere: --metrics-address says where")

    def _call(self, handler: Handler, event: dict[str, Any]) -> Response:
        """Call a handler; what it does not answer for becomes a 500 without details, as API Gateway has it."""
        try:
            answer: Response = handler(event, LocalContext("local", self._clock))
        except Exception:  # noqa: BLE001 - a server goes on; the traceback is for whoever runs it
            traceback.print_exc()
            by_operator = event["requestContext"].get(OPERATOR) is True
            return failure(500, "internal error; the server's log has the traceback" if by_operator else INTERNAL)
        return answer


class MetricsPage:
    """The metrics of a server at an address of their own, open to all that reach it: a WSGI application."""

    def __init__(self, metrics: Metrics, hosts: HostNames) -> None:
        """`hosts` are the names that it may be called by."""
        self._metrics = metrics
        self._hosts = hosts

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request, as WSGI has it."""
        method, path, headers = (
            environ["REQUEST_METHOD"],
            utf8_path(environ.get("PATH_INFO") or "/"),
            headers_of(environ),
        )
        refused = refusal(path, headers, self._hosts)
        if refused is not None:
            answer = failure(403, refused)
        elif path == METRICS_PATH:
            answer = self._metrics.answer(method, headers.get("accept", ""))
        else:
            answer = failure(404, f"there is nothing but {METRICS_PATH} here")
        return send(*_sendable(answer), method, start_response)


def body_of(answer: Response) -> bytes:
    """Return the bytes of an answer's body."""
    body = answer.get("body") or ""
    return base64.b64decode(body) if answer.get("isBase64Encoded") else body.encode()


def _sendable(answer: Response | Download) -> tuple[Response, Iterable[bytes], int]:
    """Return an answer, its body, and how many bytes that has."""
    if isinstance(answer, Download):
        return {"statusCode": answer.status, "headers": answer.headers}, answer.body, answer.size
    data = body_of(answer)
    return answer, [data], len(data)


def send(
    answer: Response, body: Iterable[bytes], size: int, method: str, start_response: StartResponse
) -> Iterable[bytes]:
    """Return an answer with a body of some bytes, as WSGI has it."""
    status = HTTPStatus(answer["statusCode"])
    headers = [(name, str(value)) for name, value in (answer.get("headers") or {}).items()]
    ours = ("content-length", NOSNIFF[0].lower())
    headers = [(name, value) for name, value in headers if name.lower() not in ours]
    start_response(f"{status.value} {status.phrase}", [*headers, NOSNIFF, ("Content-Length", str(size))])
    return [] if method == "HEAD" else body


def headers_of(environ: dict[str, Any]) -> dict[str, str]:
    """Return the headers of a WSGI request, by their names in lower case."""
    headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name.startswith("HTTP_")}
    given = {name: environ[name] for name in ("CONTENT_TYPE", "CONTENT_LENGTH") if environ.get(name)}
    return headers | {name.replace("_", "-").lower(): value for name, value in given.items()}


def _is_large(event: dict[str, Any]) -> bool:
    body = event.get("body", "")
    compressed = body.startswith(_COMPRESSED) or "content-encoding" in event["headers"]
    return bool(compressed) or len(body) * 3 // 4 > LARGE_BYTES


def to_event(environ: dict[str, Any], clock: Clock, operator_key: str = "") -> dict[str, Any]:
    """Return a WSGI request as the event that API Gateway would make of it.

    With the key of the server's operator in it, it is marked as the operator's.
    """
    headers = headers_of(environ)
    key = headers.pop(OPERATOR_HEADER.lower(), "")
    body = environ["wsgi.input"].read()
    path, query = utf8_path(environ.get("PATH_INFO") or "/"), environ.get("QUERY_STRING", "")
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
        "rawPath": quote(path, "/:@!$&'()*+,;="),
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
            GONE: environ.get("waitress.client_disconnected"),
            OPERATOR: bool(operator_key) and compare_digest(key.encode(), operator_key.encode()),
        },
        "isBase64Encoded": bool(body),
    }
    if query:
        event["queryStringParameters"] = dict(parse_qsl(query, keep_blank_values=True))
    if body:
        event["body"] = base64.b64encode(body).decode()
    return event
