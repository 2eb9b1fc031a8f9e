"""Query: SQL over HTTP. `POST /q` with `{"query": "SELECT …"}` answers rows in the form that `Accept` asks for.

Several statements are one transaction, and the last read is the answer. They may write if the settings allow it.
`POST /sql` is the same; a deployment that allows writes has it as a route of its own.

One handler for API Gateway (payload 2.0), Lambda function URLs and direct invocation with `{"query": …}`. The result is
complete before the status is chosen: a query that fails is never a 200.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from typing import Any

import orjson

from alluvia import Lake
from alluvia.access.rights import Rights
from alluvia.duck.failures import QueryTooCostly
from alluvia.errors import AlluviaError, CommitUnknown, Conflict, Invalid, TableExists, TableNotFound
from alluvia.query.engine import run_rendered
from alluvia.query.formats import Format, NotAcceptable, choose_format
from alluvia.query.parameters import Parameters
from alluvia.query.permitted import permitted
from alluvia.query.processes import POOL
from alluvia.query.scans import TableScan
from alluvia.serverless import warm_lake
from alluvia.serverless.http import Request, Response, failure, refusal
from alluvia.serverless.log_lines import Logger, with_request_id

from .rights import allowed_statements
from .settings import QuerySettings

PATHS = ("/q", "/sql")
# An answer's text is escaped once more on its way out of Lambda, which may double it; base64 adds a third.
TEXT_LIMIT_BYTES = 1_000_000
_STATUSES: dict[type[AlluviaError], int] = {
    NotAcceptable: 406,
    QueryTooCostly: 422,
    TableExists: 400,
    TableNotFound: 404,  # before Conflict: a table that was dropped meanwhile is both
    Conflict: 409,
    CommitUnknown: 500,  # not 503, after which clients send the same again
}

logger = Logger(service=os.environ.get("POWERTOOLS_SERVICE_NAME", "query"))
if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    POOL.prepare(1)  # it starts while this process goes on to load
warm_lake.prepare()


@with_request_id(logger)
def handler(event: dict[str, Any], context: object) -> Response:  # noqa: ARG001 - Lambda's signature
    """Answer an HTTP request, or a direct invocation as if it were one."""
    settings = QuerySettings.read(os.environ)
    lake = warm_lake.lake()
    if isinstance(event, dict) and "requestContext" not in event:
        return respond(event, event.get("accept"), settings, lake)  # from whoever may invoke the function
    request = Request.read(event, '{"query": "SELECT …"}')
    if request.path not in PATHS:
        return failure(404, f"there is nothing at {request.path}: send queries to POST {PATHS[0]}")
    if request.method != "POST":
        return failure(405, f"{request.path} takes POST, not {request.method}", Allow="POST")
    return respond(request, request.headers.get("accept"), settings, lake)


def respond(asked: Request | dict[str, Any], accept: object, settings: QuerySettings, lake: Lake) -> Response:
    """Run the query or the statements of a request or a call, and turn errors into statuses."""
    try:
        rights = settings.authorization.rights(asked, lake) if isinstance(asked, Request) else None
        form = choose_format(accept if isinstance(accept, str) else None)
        sql = sql_of(json_of(asked.body()) if isinstance(asked, Request) else asked)
        body, notes = _run(sql, form, settings, lake, rights)
    except AlluviaError as error:
        return refusal(error, logger, _STATUSES)
    logger.info("answered", extra={"bytes": len(body), **notes})
    return success(body, form)


def _run(
    sql: SqlText, form: Format, settings: QuerySettings, lake: Lake, rights: Rights | None
) -> tuple[bytes, dict[str, Any]]:
    """Return an answer in a form, and what the log tells of it."""
    statements = allowed_statements(sql.text, writes=settings.allow_writes)
    if not statements:
        limit_bytes = settings.result_limit_bytes
        found = run_rendered(permitted(lake, rights), sql.text, form, limit_bytes, settings.limits, sql.parameters)
        return found.body, {"tables": [_numbers(table) for table in found.tables]}
    from .running import run_statements

    body = run_statements(lake, sql.text, sql.parameters, form, settings, rights)
    return body, {"statements": [statement.kind for statement in statements]}


def json_of(data: bytes) -> Any:
    """Return a body, parsed."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Invalid(f'the body is not JSON ({error}): send {{"query": "SELECT …"}}') from None


@dataclass(frozen=True, slots=True)
class SqlText:
    """What was sent: a text, and the values of its parameters."""

    text: str
    parameters: Parameters | None


def sql_of(body: object) -> SqlText:
    """Return the text and the parameters of a body."""
    text = body.get("query") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(text, str):
        raise Invalid('query: send {"query": "SELECT …"}, with the text of one SELECT or of several statements')
    parameters = body.get("parameters")
    if not isinstance(parameters, list | dict | None):
        raise Invalid("parameters: send a list, with the values of ?, or an object, with those of $name")
    return SqlText(text, parameters)


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
