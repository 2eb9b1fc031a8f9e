"""Log lines with the ids of their request. Powertools writes them, and is imported here alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

from aws_lambda_powertools import Logger

from alluvia.access.rights import Rights

__all__ = ["Logger", "caller_name", "forget_caller", "name_caller", "request_ids", "with_request_id"]
Event = TypeVar("Event")
Answer = TypeVar("Answer")
Handler = Callable[[Event, Any], Answer]
_CALLER = "caller"
_CALLER_CHARS_MAX = 200
_caller: ContextVar[str] = ContextVar("alluvia_caller", default="")


def name_caller(logger: Logger, rights: Rights | None) -> None:
    """Add the field `caller` to the lines of this request: the name of a token, else its id, or the `sub` of a JWT."""
    name = "" if rights is None else (rights.subject or rights.key)[:_CALLER_CHARS_MAX]
    _caller.set(name)
    if name:
        logger.thread_safe_append_keys(**{_CALLER: name})


def caller_name() -> str:
    """Return the caller of the last request in this thread, or "" if the request had no token."""
    return _caller.get()


def forget_caller() -> None:
    """Begin a request in this thread: its caller is not known yet."""
    _caller.set("")


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
                logger.thread_safe_remove_keys([*keys, _CALLER])

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
