"""Ingest: events come in over HTTP, and settle into a table at once or by way of a queue.

One handler for API Gateway (payload 2.0), Lambda function URLs and SQS.
"""

from __future__ import annotations

import gc
import os

if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    gc.disable()  # what is loaded stays: there is nothing to collect

from dataclasses import replace
from typing import Any

from alluvia import Lake
from alluvia.arrow_parquet import pq
from alluvia.errors import Unsupported
from alluvia.serverless import warm_lake
from alluvia.serverless.cors import with_cors
from alluvia.serverless.deadlines import in_time
from alluvia.serverless.events import messages_of
from alluvia.serverless.http import BRANCH_HEADER, Request, Response, answer, safe
from alluvia.serverless.log_lines import Logger, name_caller, with_request_id
from alluvia.serverless.routes.ingest_routes import INGEST_ROUTES, is_of_source
from alluvia.serverless.routes.route import routed
from alluvia.serverless.sqs_sender import sqs

from . import events, webhooks  # noqa: F401 - takers that are loaded while the function initialises
from .events import REFUSED, consume, refused
from .settings import SERVICE, IngestSettings

logger = Logger(service=SERVICE)
if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    warm_lake.prepare()
    _ = pq.ParquetWriter  # every post writes a file
    if os.environ.get("ALLUVIA_MODE") == "queued":
        sqs()
    gc.freeze()  # nor later
    gc.enable()


@with_request_id(logger)
@in_time
@safe
@with_cors(os.environ, is_of_source)
def handler(event: dict[str, Any], context: object) -> dict[str, Any]:  # noqa: ARG001 - Lambda's signature
    """Answer an HTTP request, or commit a batch of SQS messages and report those that failed."""
    settings = IngestSettings.read(os.environ)
    lake = warm_lake.lake()
    if isinstance(event, dict) and "Records" in event:
        records = messages_of(event)
        return dict(consume(lake, records, create=settings.create_tables, tables_max=settings.tables_max))
    return respond(Request.read(event, "messages of SQS (Records)"), settings, lake)


def respond(request: Request, settings: IngestSettings, lake: Lake) -> Response:
    """Route one HTTP request, and turn errors into statuses."""
    target = routed(INGEST_ROUTES, request, "send events to POST /v1/events/{table}")
    if isinstance(target, dict):
        return target
    route, names = target
    try:
        rights = None if route.public else settings.authorization.rights(request, lake)
        name_caller(logger, rights)
        route.right.check(rights, names)
        route.check_parameters(request)
        lake = warm_lake.asked_for(lake, request, route)
        if settings.queue_url is not None and lake.branch_name is not None:
            msg = f"{BRANCH_HEADER}: this function puts events into a queue, which cannot write to a branch"
            raise Unsupported(msg)
        take = route.load_taker(__package__)
        taken: Response = take(request, replace(settings, rights=rights), lake, *names)
    except REFUSED as error:
        return refused(error)
    return taken


def say_healthy(request: Request, settings: IngestSettings, lake: Lake) -> Response:  # noqa: ARG001
    """Answer that the function runs."""
    return answer(200, {"status": "ok"})
