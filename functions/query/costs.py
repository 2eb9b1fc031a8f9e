"""What it took to answer a request: time, requests to the store as they were sent, and their price."""

from __future__ import annotations

import os
from collections.abc import Callable

from alluvia.prices import LAMBDA_GB_SECOND_DOLLARS, REQUEST_DOLLARS
from alluvia.serverless.http import Response
from alluvia.store.at_once import metered

from .answering import ELAPSED, Caller, sees_all

REQUESTS, DOLLARS = "Alluvia-Requests", "Alluvia-Dollars"
MEMORY_MB = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"


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
