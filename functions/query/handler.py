"""Query: SQL over HTTP. `POST /q` with `{"query": "SELECT …"}` answers rows in the form that `Accept` asks for.

One handler for API Gateway (payload 2.0), Lambda function URLs and direct invocation with `{"query": …}`. The result is
complete before the status is chosen: a query that fails is never a 200.
"""

from __future__ import annotations

import base64
import os
from typing import Any

import orjson

from alluvia import Lake
from alluvia.duck.failures import QueryTooCostly
from alluvia.errors import AlluviaError, Invalid
from alluvia.query.engine import run_rendered
from alluvia.query.formats import Format, NotAcceptable, choose_format
from alluvia.query.processes import POOL
from alluvia.query.scans import TableScan
from alluvia.serverless import warm_lake
from alluvia.serverless.http import Request, Response, failure, refusal
from alluvia.serverless.log_lines import Logger, with_request_id

from .settings import QuerySettings

PATH = "/q"
# An answer's text is escaped once more on its way out of Lambda, which may double it; base64 adds a third.
TEXT_LIMIT_BYTES = 1_000_000
_STATUSES: dict[type[AlluviaError], int] = {NotAcceptable: 406, QueryTooCostly: 422}

logger = Logger(service="query")
if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    POOL.prepare(1)  # it starts while this process goes on to load
warm_lake.prepare()


@with_request_id(logger)
def handler(event: dict[str, Any], context: object) -> Response:  # noqa: ARG001 - Lambda's signature
    """Answer an HTTP request, or a direct invocation as if it were one."""
    settings = QuerySettings.read(os.environ)
    lake = warm_lake.lake()
    if isinstance(event, dict) and "requestContext" not in event:
        return respond(event, event.get("accept"), settings, lake)
    request = Request.read(event, '{"query": "SELECT …"}')
    if request.path != PATH:
        return failure(404, f"there is nothing at {request.path}: send queries to POST {PATH}")
    if request.method != "POST":
        return failure(405, f"{PATH} takes POST, not {request.method}", Allow="POST")
    return respond(request, request.headers.get("accept"), settings, lake)


def respond(asked: Request | dict[str, Any], accept: object, settings: QuerySettings, lake: Lake) -> Response:
    """Run the query of a request or a call, and turn errors into statuses."""
    try:
        form = choose_format(accept if isinstance(accept, str) else None)
        query = query_of(json_of(asked.body()) if isinstance(asked, Request) else asked)
        found = run_rendered(lake, query, form, settings.result_limit_bytes, settings.limits)
    except AlluviaError as error:
        return refusal(error, logger, _STATUSES)
    logger.info("answered", extra={"bytes": len(found.body), "tables": [_numbers(table) for table in found.tables]})
    return success(found.body, form)


def json_of(data: bytes) -> Any:
    """Return a body, parsed."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Invalid(f'the body is not JSON ({error}): send {{"query": "SELECT …"}}') from None


def query_of(body: object) -> str:
    """Return the query of a body."""
    query = body.get("query") if isinstance(body, dict) else None
    if not isinstance(query, str):
        raise Invalid('query: send {"query": "SELECT …"}, with the text of one SELECT')
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


def _numbers(table: TableScan) -> dict[str, Any]:
    return {"table": table.table, "version": table.version, "files": table.files_read, "bytes": table.bytes_read}
