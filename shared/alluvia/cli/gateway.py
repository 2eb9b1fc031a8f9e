"""HTTP in front of the handlers: a WSGI application that calls them as API Gateway's HTTP API (payload 2.0) would."""

from __future__ import annotations

import base64
import importlib
import traceback
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from alluvia.cli.context import LocalContext
from alluvia.clock import Clock

Handler = Callable[[dict[str, Any], Any], Any]
StartResponse = Callable[[str, list[tuple[str, str]]], Any]
FUNCTIONS = ("ingest", "merge", "query", "vacuum", "backfill")


def load_handler(function: str) -> Handler:
    """Return a function's handler."""
    handler: Handler = importlib.import_module(f"functions.{function}.handler").handler
    return handler


class Gateway:
    """Routes requests to the ingest and query functions."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ingest = load_handler("ingest")
        self._query = load_handler("query")

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request, as WSGI has it."""
        event = to_event(environ, self._clock)
        handler = self._query if event["rawPath"] == "/q" or event["rawPath"].startswith("/q/") else self._ingest
        answer = self._call(handler, event)
        body = answer.get("body") or ""
        data = base64.b64decode(body) if answer.get("isBase64Encoded") else body.encode()
        status = HTTPStatus(answer["statusCode"])
        headers = [(name, str(value)) for name, value in (answer.get("headers") or {}).items()]
        headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
        start_response(f"{status.value} {status.phrase}", [*headers, ("Content-Length", str(len(data)))])
        return [data]

    def _call(self, handler: Handler, event: dict[str, Any]) -> dict[str, Any]:
        """Call a handler; what it does not answer for becomes a 500 without details, as API Gateway has it."""
        try:
            answer: dict[str, Any] = handler(event, LocalContext("local", self._clock))
        except Exception:  # noqa: BLE001 - a server goes on; the traceback is for whoever runs it
            traceback.print_exc()
            return {"statusCode": 500, "body": '{"error":"internal error"}'}
        return answer


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
