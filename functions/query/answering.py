"""Run the query of a request, and answer with its rows, its cost, and a status for each error."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from alluvia import Lake
from alluvia.access.rights import Rights
from alluvia.delta.schema.names import fold
from alluvia.engine.duck.failures import QueryTooCostly, ResultTooLarge
from alluvia.errors import (
    AlluviaError,
    CommitUnknown,
    Conflict,
    Invalid,
    PreconditionFailed,
    TableNotFound,
)
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.results.results import is_there
from alluvia.prices import LAMBDA_GB_SECOND_DOLLARS, REQUEST_DOLLARS
from alluvia.query.engine import Rendered, run_rendered
from alluvia.query.formats import Format, NotAcceptable, choose_format, csv_written, format_named
from alluvia.query.limits import QueryLimits
from alluvia.query.permitted import permitted
from alluvia.query.process.processes import LargeResults
from alluvia.query.scans import TableScan
from alluvia.serverless.http import BRANCH_HEADER, Request, Response
from alluvia.serverless.http import answer as json_answer
from alluvia.serverless.log_lines import Logger
from alluvia.serverless.query_settings import QuerySettings
from alluvia.serverless.query_statements import allowed_statements
from alluvia.serverless.routes.query_fields import (
    BYTES_READ,
    DOLLARS,
    ELAPSED,
    ERROR,
    FILES_READ,
    REQUESTS,
    RESULT_BYTES,
    ROWS,
    VERSIONS,
)
from alluvia.store.requests import metered, seconds_left

from .codings import choose_coding, encoded
from .large import LargeResult, linked
from .query_request import QueryRequest
from .statements import run_statements

# An answer's text is escaped once more on its way out of Lambda, which may double it; base64 adds a third.
TEXT_LIMIT_BYTES = 1_000_000
VERSIONS_CHARS_MAX = 4000
NO_STORE = "no-store"
NO_REQUEST = Request("POST", "", {}, {})
MEMORY_MB = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"
VARY = f"Accept, Accept-Encoding, Authorization, {BRANCH_HEADER}"

logger = Logger(service=os.environ.get("POWERTOOLS_SERVICE_NAME", "query"), child=True)


class QueryNotFound(AlluviaError):
    """No query is published under the name, for a caller who may know that."""


class BranchNotFound(Invalid):
    """There is no branch of that name."""


STATUSES: dict[type[AlluviaError], int] = {
    NotAcceptable: 406,
    ResultTooLarge: 413,
    QueryTooCostly: 422,
    QueryNotFound: 404,
    BranchNotFound: 404,
    TableNotFound: 404,  # before Conflict: a table that was dropped meanwhile is both
    PreconditionFailed: 412,
    Conflict: 409,
    CommitUnknown: 500,  # not 503, after which clients send the same again
}
"""The statuses of errors of queries, besides those that all functions share."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, and the lake that it asks. `rights`: None for all that the settings allow.

    Invocations and jobs have no request.
    """

    settings: QuerySettings
    lake: Lake
    rights: Rights | None = None
    request: Request = NO_REQUEST


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The format of an answer's rows and, if it may be compressed, the coding."""

    form: Format
    coding: str | None = None


def stored_coding(wish: AnswerForm) -> str | None:
    """Return the coding in which the lake gets a result that is too large for an answer."""
    return None if wish.form.is_compressed else wish.coding


def wanted(asked: QueryRequest, headers: Mapping[str, str]) -> AnswerForm:
    """Return what a request wants, by the form that it names, else by its headers, in lower case.

    Raises `Invalid`, `NotAcceptable`.
    """
    form = choose_format(headers.get("accept")) if asked.format is None else format_named(asked.format)
    form = csv_written(form, asked.delimiter, asked.decimal_separator, bom=asked.bom)
    return AnswerForm(form, choose_coding(headers.get("accept-encoding")))


def answer(asked: QueryRequest, wish: AnswerForm, caller: Caller) -> Response:
    """Run a query or statements, and answer. Raises what they raise."""
    began_ms = caller.lake.clock.now_ms()
    statements = allowed_statements(asked.text, writes=caller.settings.allow_writes)
    if statements and (asked.dry_run or asked.max_bytes is not None):
        field = "dry_run" if asked.dry_run else "max_bytes"
        raise Invalid(f"{field}: send one SELECT, and not several statements or one that writes")
    if not statements:
        rendered, large = run_query(asked, wish, caller)
        body, told = rendered.body, result_headers(rendered, caller.rights)
        notes: dict[str, Any] = {"tables": [_numbers(table) for table in rendered.tables]}
        if large is not None and large.key is not None:
            logger.info("answered with a link", extra={"bytes": large.result_bytes, **notes})
            told |= {RESULT_BYTES: str(large.result_bytes), ELAPSED: elapsed(caller, began_ms), "Vary": VARY}
            return linked(caller.lake, large.key, told)
    else:
        settings = replace(caller.settings, limits=limits_of(asked, caller))
        settings = replace(settings, result_limit_bytes=result_limit(asked, caller))
        done = run_statements(caller.lake, asked.text, asked.parameters, wish.form, settings, caller.rights)
        body, told = done.body, {ROWS: str(done.rows)}
        notes = {"statements": [statement.kind for statement in statements]}
    logger.info("answered", extra={"bytes": len(body), **notes})
    return success(body, wish, told | {ELAPSED: elapsed(caller, began_ms), "Cache-Control": NO_STORE})


def limits_of(asked: QueryRequest, caller: Caller) -> QueryLimits:
    """Return the limits of the settings, or those that a request sets below them."""
    limits = caller.settings.limits
    left = seconds_left()  # what planning took is gone
    given = (limits.timeout_seconds, asked.max_seconds, None if left is None else max(1, int(left)))
    times = [each for each in given if each is not None]
    return replace(limits, timeout_seconds=min(times, default=None), asked_bytes=asked.max_bytes)


def result_limit(asked: QueryRequest, caller: Caller) -> int:
    """Return the most bytes that a result may have to be in an answer."""
    return min(caller.settings.result_limit_bytes, asked.max_result_bytes or sys.maxsize)


def linked_limit(asked: QueryRequest, caller: Caller) -> int | None:
    """Return the most bytes that a result may have to be answered with a link; None if only an answer will do."""
    most = caller.settings.max_result_bytes
    if most is None or asked.large == ERROR or asked.dry_run:
        return None
    most = min(most, asked.max_result_bytes or sys.maxsize)
    return most if most > caller.settings.result_limit_bytes else None


def run_query(asked: QueryRequest, wish: AnswerForm, caller: Caller) -> tuple[Rendered, LargeResult | None]:
    """Run one query, and return its result, with what may have taken it to the lake. Raises what it raises."""
    catalog, limits = permitted(caller.lake.catalog, caller.rights), limits_of(asked, caller)
    inline, most = result_limit(asked, caller), linked_limit(asked, caller)
    if most is None:
        try:
            rendered = run_rendered(
                catalog, asked.text, wish.form, inline, limits, asked.parameters, dry_run=asked.dry_run
            )
        except ResultTooLarge as error:
            raise too_large(error, asked, caller) from None
        return rendered, None
    large = large_result(caller, wish.form, stored_coding(wish))
    rendered = run_rendered(
        catalog, asked.text, wish.form, most, limits, asked.parameters, LargeResults(inline, large.keep)
    )
    large.check(rendered)
    return rendered, large


def large_result(caller: Caller, form: Format, coding: str | None) -> LargeResult:
    """Return what takes a caller's result to the lake, and counts it as that caller's."""
    rights, settings = caller.rights, caller.settings
    most = settings.max_result_bytes if settings.caller_result_bytes is None else settings.caller_result_bytes
    return LargeResult(caller.lake, form, coding, "" if rights is None else rights.caller, most)


def still_there(caller: Caller, key: str) -> bool:
    """Whether there can be another link to a large result. One HEAD."""
    return is_there(caller.lake.store, caller.lake.clock, key, caller.settings.result_hours * 3_600_000)


def too_large(error: ResultTooLarge, asked: QueryRequest, caller: Caller) -> ResultTooLarge:
    """Return the error with a hint at a larger limit."""
    if caller.settings.max_result_bytes is None:
        hint = "; where ALLUVIA_MAX_RESULT_BYTES is set, larger results go to the lake, and the answer is a link"
    elif asked.large == ERROR:
        hint = "; without large=error, the answer is a link to the whole result"
    else:
        hint = ""
    return ResultTooLarge(f"{error}{hint}")


def result_headers(rendered: Rendered, rights: Rights | None) -> dict[str, str]:
    """Return the headers about a result: how much was read only if the caller may see all of it."""
    tables = rendered.tables
    told = {ROWS: str(rendered.rows)}
    if tables:
        named = dict.fromkeys(f"{fold(table.table)}={table.version}" for table in tables)
        versions = ", ".join(named)
        if len(versions) <= VERSIONS_CHARS_MAX:
            told[VERSIONS] = versions
    if sees_all(rights):
        told[FILES_READ] = str(sum(table.files_read for table in tables))
        told[BYTES_READ] = str(sum(table.bytes_read for table in tables))
    return told


def sees_all(rights: Rights | None) -> bool:
    """Whether a caller may see all rows and columns of the tables that it may read."""
    return rights is None or not any(grant.where or grant.hide for grant in rights.grants)


def elapsed(caller: Caller, began_ms: int) -> str:
    """Return how long it took, in ms, since a moment of the lake's clock."""
    return str(max(0, caller.lake.clock.now_ms() - began_ms))


def success(body: bytes, wish: AnswerForm, headers: Mapping[str, str]) -> Response:
    """Return the answer to a query that succeeded."""
    sent, coding = encoded(body, wish.form, wish.coding)
    is_base64 = coding is not None or not wish.form.is_text or len(sent) > TEXT_LIMIT_BYTES
    all_headers = {"Content-Type": wish.form.content_type, "Vary": VARY, **tagged(headers, coding)}
    if coding is not None:
        all_headers["Content-Encoding"] = coding
    return {
        "statusCode": 200,
        "headers": all_headers,
        "body": base64.b64encode(sent).decode() if is_base64 else sent.decode(),
        "isBase64Encoded": is_base64,
    }


def part(body: bytes, wish: AnswerForm, headers: Mapping[str, str]) -> Response:
    """Return the answer with a range of a result's bytes; the headers say which."""
    return {
        "statusCode": 206,
        "headers": {"Content-Type": wish.form.content_type, "Vary": VARY, **headers},
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }


def tagged(headers: Mapping[str, str], coding: str | None) -> dict[str, str]:
    """Return headers, with a tag of its own for a body in a coding: it has other bytes."""
    if coding is None or "ETag" not in headers:
        return {**headers}
    return {**headers, "ETag": f'{headers["ETag"][:-1]}-{coding}"'}


def facts(body: Mapping[str, Any], status: int = 200, **headers: str) -> Response:
    """Return a JSON answer that no cache may keep."""
    return json_answer(status, body, **{"Cache-Control": NO_STORE, **headers})


def with_costs(respond: Callable[[], tuple[Response, Caller]]) -> Response:
    """Return an answer to a caller; one that tells its time also tells what it cost.

    Dollars are the price of requests to S3 and, in Lambda, of the function's memory for that time. Nothing is said of a
    lake on this machine, nor to callers who may not see all: the number of requests tells how many files there are.
    """
    with metered() as meter:
        response, caller = respond()
    headers = response["headers"]
    if ELAPSED not in headers or not caller.lake.store.parallel or not sees_all(caller.rights):
        return response
    requests = meter.counts()
    price = sum(count * REQUEST_DOLLARS.get(kind, 0.0) for kind, count in requests.items())
    memory_gb = int(os.environ.get(MEMORY_MB, "0")) / 1024
    price += memory_gb * int(headers[ELAPSED]) / 1000 * LAMBDA_GB_SECOND_DOLLARS
    told = {REQUESTS: str(requests.total()), DOLLARS: f"{price:.9f}"}
    return {**response, "headers": {**headers, **told}}


def _numbers(table: TableScan) -> dict[str, Any]:
    return {"table": table.table, "version": table.version, "files": table.files_read, "bytes": table.bytes_read}
