"""The time of an invocation: what a handler does ends early enough for an answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from alluvia.store.requests import ending

Event = TypeVar("Event")
Answer = TypeVar("Answer")
Handler = Callable[[Event, Any], Answer]
ANSWER_SECONDS = 1.5
"""Reserved for sending the answer, however long the store takes."""


def in_time(handler: Handler[Event, Answer]) -> Handler[Event, Answer]:
    """End a function's requests to the store before its invocation ends, by the time in its context.

    A function that answers API Gateway, which waits for 30 seconds, has a limit below that, unless it is to work on
    after its caller was sent away, as that of uploads is. A local server has threads for many requests and no end of an
    invocation, so this holds in Lambda alone.
    """

    @wraps(handler)
    def call(event: Event, context: Any) -> Answer:
        remaining = getattr(context, "get_remaining_time_in_millis", None)
        if remaining is None or "AWS_LAMBDA_FUNCTION_NAME" not in os.environ:
            return handler(event, context)
        with ending(lambda: remaining() / 1000 - ANSWER_SECONDS):
            return handler(event, context)

    return call
