"""Log lines with the ids of their request. Powertools writes them, and is imported here alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from aws_lambda_powertools import Logger

__all__ = ["Logger", "request_ids", "with_request_id"]
Event = TypeVar("Event")
Answer = TypeVar("Answer")
Handler = Callable[[Event, Any], Answer]


def with_request_id(logger: Logger) -> Callable[[Handler[Event, Answer]], Handler[Event, Answer]]:
    """Add the ids of the request and the cold start to every line that a handler logs, also in child loggers.

    The fields are `function_request_id` (Lambda's), `api_request_id` (API Gateway's, if there is one) and
    `cold_start`. They belong to the thread that runs the handler: Powertools' own `inject_lambda_context` keeps them in
    the process, so a server with threads would mix up requests.
    """

    def decorate(handler: Handler[Event, Answer]) -> Handler[Event, Answer]:
        first = iter([True])

        @wraps(handler)
        def call(event: Event, context: Any) -> Answer:
            keys = {**request_ids(event, context), "cold_start": next(first, False)}
            logger.thread_safe_append_keys(**keys)
            try:
                return handler(event, context)
            except Exception:
                # Lambda prints the traceback without an id. Anywhere else the caller gets the exception.
                if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
                    logger.exception("failed")
                raise
            finally:
                logger.thread_safe_remove_keys(keys)

        return call

    return decorate


def request_ids(event: object, context: object) -> dict[str, str]:
    """Return the ids that an invocation has."""
    request = event.get("requestContext") if isinstance(event, dict) else None
    ids = {
        "function_request_id": getattr(context, "aws_request_id", None),
        "api_request_id": request.get("requestId") if isinstance(request, dict) else None,
    }
    return {name: value for name, value in ids.items() if isinstance(value, str)}
