"""Query: SQL over HTTP. `POST /q` with `{"query": "SELECT …"}` answers rows in the form that `Accept` asks for.

Several statements are one transaction, and the last read is the answer. They may write if the settings allow it.
`POST /sql` is the same; a deployment that allows writes has it as a route of its own. `GET /q` is for reads alone.

One handler for API Gateway (payload 2.0), Lambda function URLs and direct invocation with `{"query": …}`. The result is
complete before the status is chosen: a query that fails is never a 200.
"""

from __future__ import annotations

import gc
import os

from alluvia.processes.starting import start_ahead

if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    gc.disable()  # what is loaded stays: there is nothing to collect
    start_ahead("alluvia.query.process.worker")  # DuckDB loads in that process, while this one loads what follows

from collections.abc import Callable
from typing import Any

from alluvia import Lake
from alluvia.access.rights import ADMIN, Rights
from alluvia.errors import AlluviaError, Forbidden, Invalid
from alluvia.query.process.processes import POOL
from alluvia.serverless import warm_lake
from alluvia.serverless.cors import with_cors
from alluvia.serverless.deadlines import in_time
from alluvia.serverless.http import Request, Response, refusal, safe
from alluvia.serverless.log_lines import Logger, name_caller, with_request_id
from alluvia.serverless.query_settings import QuerySettings
from alluvia.serverless.query_statements import WRITES_ARE_OFF
from alluvia.serverless.routes.query_fields import ASYNC
from alluvia.serverless.routes.query_routes import QUERY_ROUTES
from alluvia.serverless.routes.route import LINKED, PUBLISHES, Right, Route, routed

from . import published, tables  # noqa: F401 - takers that are loaded while a function initialises
from .answering import STATUSES, Caller, answer, wanted, with_costs
from .query_request import given_by_name, named, request_of

JOB = "job"
"""The id of a job in an invocation that is to run it."""
_PUBLISHING_IS_OFF = (
    "publishing over HTTP is off here: start `alluvia serve` with --allow-publish; in AWS, deploy with "
    "alluvia:publishing=true (ALLUVIA_ALLOW_PUBLISH=true and a role that may put objects below "
    "_alluvia/queries/, for a function of your own)"
)

logger = Logger(service=os.environ.get("POWERTOOLS_SERVICE_NAME", "query"))
if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    POOL.prepare(1)
    warm_lake.prepare()
    gc.freeze()  # nor later
    gc.enable()


@with_request_id(logger)
@in_time
@safe
@with_cors(os.environ, lambda _: False)
def handler(event: dict[str, Any], context: object) -> Response:  # noqa: ARG001 - Lambda's signature
    """Answer an HTTP request, or a direct invocation as if it were one."""
    settings = QuerySettings.read(os.environ)
    lake = warm_lake.lake()
    if isinstance(event, dict) and JOB in event:
        from .running_jobs import run_job

        return run_job(str(event[JOB]), settings, lake)
    if isinstance(event, dict) and "requestContext" not in event:
        return _with_statuses(lambda: with_costs(lambda: _invoked(event, Caller(settings, lake))))
    request = Request.read(event, '{"query": "SELECT …"}')
    target = routed(QUERY_ROUTES, request, "send queries to POST /q")
    if isinstance(target, dict):
        return target
    response = _with_statuses(lambda: with_costs(lambda: _taken(*target, request, settings, lake)))
    if target[0].right == LINKED:  # its address is a secret
        response["headers"] |= {"Referrer-Policy": "no-referrer", "X-Robots-Tag": "noindex"}
    return response


def _invoked(event: dict[str, Any], caller: Caller) -> tuple[Response, Caller]:
    """Answer a direct invocation, whose sender may do everything."""
    given = dict(event)
    accept = given.pop("accept", None)
    asked = request_of(named(given))
    if asked.mode == ASYNC:
        raise Invalid("mode: send POST /q, or invoke the function asynchronously")
    return answer(asked, wanted(asked, {"accept": accept} if isinstance(accept, str) else {}), caller), caller


def _taken(
    route: Route, names: list[str], request: Request, settings: QuerySettings, lake: Lake
) -> tuple[Response, Caller]:
    rights = Rights(()) if route.public else settings.authorization.rights(request, lake)
    name_caller(logger, rights)
    _check_is_on(route.right, settings)
    route.right.check(rights, names)
    route.check_parameters(request)
    caller = Caller(settings, warm_lake.asked_for(lake, request, route), rights, request)
    return route.load_taker(__package__)(caller, *names, **given_by_name(request, route)), caller


def _check_is_on(right: Right, settings: QuerySettings) -> None:
    """Raise `Forbidden` for a right that the settings turn off for all callers."""
    if right.operation == ADMIN and not settings.allow_writes:
        raise Forbidden(f"{right.what} writes, and only reads are allowed here. {WRITES_ARE_OFF}")
    if right == PUBLISHES and not settings.allow_publish:
        raise Forbidden(_PUBLISHING_IS_OFF)


def _with_statuses(respond: Callable[[], Response]) -> Response:
    """Turn errors into statuses."""
    try:
        return respond()
    except AlluviaError as error:
        response = refusal(error, logger, STATUSES)
        response["headers"]["Cache-Control"] = "no-store"  # caches may keep a 404 that does not say so
        return response
