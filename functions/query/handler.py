"""Query: SQL over HTTP. `POST /q` with `{"query": "SELECT …"}` answers rows in the form that `Accept` asks for.

One handler for API Gateway (payload 2.0), Lambda function URLs and direct invocation with `{"query": …}`. The result is
complete before the status is chosen: a query that fails is never a 200. Events are read as they are: a cold start is
felt here, and Powertools' classes for them would lengthen it.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import Any

import orjson
from aws_lambda_powertools import Logger

from alluvia import Lake
from alluvia.duck.failures import QueryTooCostly, cut
from alluvia.errors import (
    AlluviaError,
    Corrupt,
    Invalid,
    TableNotFound,
    Unavailable,
    Unsupported,
    VersionExpired,
    VersionNotFound,
)
from alluvia.query.engine import run_rendered
from alluvia.query.formats import Format, NotAcceptable, choose_format
from alluvia.query.processes import POOL
from alluvia.query.scans import TableScan
from alluvia.serverless import warm_lake
from alluvia.serverless.log_lines import with_request_id
from functions.query.settings import Settings

PATH = "/q"
RETRY_AFTER_SECONDS = 2
# An answer's text is escaped once more on its way out of Lambda, which may double it; base64 adds a third.
TEXT_LIMIT_BYTES = 1_000_000
_STATUSES: list[tuple[type[AlluviaError], int]] = [
    (NotAcceptable, 406),
    (QueryTooCostly, 422),
    (TableNotFound, 404),
    (VersionNotFound, 404),
    (VersionExpired, 410),
    (Unsupported, 422),
    (Invalid, 400),
    (Unavailable, 503),
    (Corrupt, 500),
]

logger = Logger(service="query")
if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    POOL.prepare(1)  # it starts while this process goes on to load
warm_lake.prepare()

Response = dict[str, Any]


@with_request_id(logger)
def handler(event: dict[str, Any], context: object) -> Response:  # noqa: ARG001 - Lambda's signature
    """Answer an HTTP request, or a direct invocation as if it were one."""
    settings = Settings.read(os.environ)
    lake = warm_lake.lake()
    check(event)
    if "requestContext" not in event:
        return respond(event, event.get("accept"), settings, lake)
    method, path = method_and_path(event)
    if path != PATH:
        return answer(404, {"error": f"there is nothing at {path}: send queries to POST {PATH}"})
    if method != "POST":
        return answer(405, {"error": f"{PATH} takes POST, not {method}"}, Allow="POST")
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    return respond(event, headers.get("accept"), settings, lake)


def check(event: object) -> None:
    """Raise `Invalid` for what is neither a call nor a request of payload 2.0."""
    if not isinstance(event, dict):
        msg = 'the event is no object: send {"query": "SELECT …"}'
        raise Invalid(msg)
    context = event.get("requestContext", {"http": {}})
    if not isinstance(context, dict) or not isinstance(context.get("http"), dict):
        msg = "requestContext: expected http in it, as payload 2.0 of API Gateway and function URLs has it"
        raise Invalid(msg)


def method_and_path(event: dict[str, Any]) -> tuple[str, str]:
    """Return the method and path of an HTTP event, without the name of a stage in front."""
    context = event["requestContext"]
    path, stage = str(event.get("rawPath", "")), context.get("stage", "$default")
    if stage != "$default":
        path = path.removeprefix(f"/{stage}")
    return str(context["http"]["method"]), path


def respond(event: dict[str, Any], accept: object, settings: Settings, lake: Lake) -> Response:
    """Run the query of an event, and turn errors into statuses."""
    try:
        form = choose_format(accept if isinstance(accept, str) else None)
        query = query_of(json_of(event) if "requestContext" in event else event)
        found = run_rendered(lake, query, form, settings.result_limit_bytes, settings.limits)
    except AlluviaError as error:
        return failure(error)
    logger.info("answered", extra={"bytes": len(found.body), "tables": [_numbers(table) for table in found.tables]})
    return success(found.body, form)


def failure(error: AlluviaError) -> Response:
    """Return the answer to a query that failed."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    if status < 500:
        logger.info("refused", extra={"status": status, "reason": type(error).__name__})
        return answer(status, {"error": cut(str(error))})
    logger.error("failed", exc_info=error, extra={"status": status})
    if status == 503:
        return answer(status, {"error": str(error)}, **{"Retry-After": str(RETRY_AFTER_SECONDS)})
    return answer(status, {"error": str(error)})


def json_of(event: dict[str, Any]) -> Any:
    """Return the body of an HTTP event, parsed."""
    text = event.get("body") or ""
    try:
        data = base64.b64decode(text, validate=True) if event.get("isBase64Encoded") else text.encode()
    except (binascii.Error, ValueError):
        msg = "the body is not what it is marked as: send JSON in UTF-8"
        raise Invalid(msg) from None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        msg = f'the body is not JSON ({error}): send {{"query": "SELECT …"}}'
        raise Invalid(msg) from None


def query_of(body: object) -> str:
    """Return the query of a body."""
    query = body.get("query") if isinstance(body, dict) else None
    if not isinstance(query, str):
        msg = 'query: send {"query": "SELECT …"}, with the text of one SELECT'
        raise Invalid(msg)
    return query


def success(body: bytes, form: Format) -> Response:
    """Return the answer to a query that succeeded."""
    encoded = not form.is_text or len(body) > TEXT_LIMIT_BYTES
    return {
        "statusCode": 200,
        "headers": {"Content-Type": form.content_type, "Cache-Control": "no-store", "Vary": "Accept"},
        "body": base64.b64encode(body).decode() if encoded else body.decode(),
        "isBase64Encoded": encoded,
    }


def answer(status: int, body: dict[str, str], **headers: str) -> Response:
    """Return a JSON answer."""
    return {
        "statusCode": status,
        "headers": {"Content-Type": "application/json", **headers},
        "body": orjson.dumps(body).decode(),
        "isBase64Encoded": False,
    }


def _numbers(table: TableScan) -> dict[str, Any]:
    return {"table": table.table, "version": table.version, "files": table.files_read, "bytes": table.bytes_read}
