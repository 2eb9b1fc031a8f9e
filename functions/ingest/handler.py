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
from alluvia.errors import Unsupported
from alluvia.serverless import warm_lake
from alluvia.serverless.cors import with_cors
from alluvia.serverless.deadlines import in_time
from alluvia.serverless.events import messages_of
from alluvia.serverless.http import BRANCH_HEADER, Request, Response, safe
from alluvia.serverless.log_lines import Logger, with_request_id
from alluvia.serverless.routes import routed
from alluvia.serverless.sqs_sender import sqs

from .bodies import REFUSED, refused
from .consumer import consume
from .routes import ROUTES, sends_to_source
from .settings import SERVICE, IngestSettings

logger = Logger(service=SERVICE)
if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
    warm_lake.prepare()
    if os.environ.get("ALLUVIA_MODE") == "queued":
        sqs()
    gc.freeze()  # nor later
    gc.enable()


@with_request_id(logger)
@in_time
@safe
@with_cors(os.environ, sends_to_source)
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
    found = routed(ROUTES, request, "send events to POST /v1/events/{table}")
    if isinstance(found, dict):
        return found
    try:
        rights = None if found.public else settings.authorization.rights(request, lake)
        lake = warm_lake.asked_for(lake, request, public=found.public)
        if settings.queue_url is not None and lake.branch_name is not None:
            msg = f"{BRANCH_HEADER}: this function puts events into a queue, which cannot write to a branch"
            raise Unsupported(msg)
        return found.taker(request, found.name, replace(settings, rights=rights), lake)
    except REFUSED as error:
        return refused(error)
