"""HTTP as API Gateway (payload 2.0) and Lambda function URLs speak it: requests, answers, and errors as statuses.

Events are read as they are. Powertools' classes for them would lengthen a cold start, and its resolver keeps the
current request on a class, where a server with threads would mix requests up.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import orjson

from alluvia.errors import (
    AlluviaError,
    BranchConflict,
    CommitUnknown,
    Conflict,
    Forbidden,
    Invalid,
    StoreRefused,
    TableExists,
    TableNotFound,
    Unavailable,
    Unsupported,
    VersionExpired,
    VersionNotFound,
    cut,
)
from alluvia.lazy_dataclasses import dataclass
from alluvia.serverless.log_lines import Logger

Response = dict[str, Any]
Event = TypeVar("Event")
Answer = TypeVar("Answer")
NOSNIFF = ("X-Content-Type-Options", "nosniff")
"""On every answer: what is in it is what its type says, and no browser takes rows for a page."""
RETRY_AFTER_SECONDS = 2
TABLE_HEADER = "Alluvia-Table"
"""Names the table that a request's events went to: not every path does."""
EVENTS_HEADER = "Alluvia-Events"
"""The outcome of a request's events, whatever form its answer has: accepted=2, stored=1, …"""
BRANCH_HEADER = "X-Alluvia-Branch"
"""Names the branch of the lake that a request is about."""
OPERATOR = "alluvia.operator"
"""Whether a request proves to come from the user who runs the server: in the `requestContext` of a server's events."""
OPERATOR_HEADER = "Alluvia-Operator"
"""Has the key of a server in requests of the user who runs it."""
GONE = "alluvia.gone"
"""Where a server's events have what says whether the client has gone: a function, in the `requestContext`."""
CHALLENGE = 'Bearer realm="alluvia"'
STORE_REFUSES = "the storage refuses requests; the operator of this server finds the reason in its log"


class Unauthenticated(AlluviaError):
    """The request must prove who sends it. `given` says whether it tries to; `challenge` is how it can (RFC 9110)."""

    def __init__(self, message: str, *, given: bool, challenge: str = CHALLENGE) -> None:
        super().__init__(message)
        self.given = given
        self.challenge = challenge


class UnsupportedMediaType(Invalid):
    """The body is of a type that the route does not take."""


class TooManyRequests(AlluviaError):
    """The caller has made as many requests as it may for now."""

    def __init__(self, message: str, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


_STATUSES: dict[type[AlluviaError], int] = {
    Unauthenticated: 401,
    TooManyRequests: 429,
    Forbidden: 403,
    UnsupportedMediaType: 415,
    TableExists: 400,
    TableNotFound: 404,
    VersionNotFound: 404,
    VersionExpired: 410,
    Unsupported: 422,
    Invalid: 400,
    Unavailable: 503,
    CommitUnknown: 503,
    Conflict: 503,
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request: `path` without the stage in front, `headers` by their names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    event: Mapping[str, Any]
    gone: Callable[[], bool] | None = None
    """True once the caller has disconnected; None if the server cannot know."""
    by_operator: bool = False
    """Whether it comes from the user who runs the server, and so can read its log."""

    @classmethod
    def read(cls, event: object, otherwise: str) -> Request:
        """Read an event. `otherwise` says what else the function takes, for the `Invalid` that anything else raises."""
        context = event.get("requestContext") if isinstance(event, dict) else None
        if not isinstance(event, dict) or not isinstance(context, dict) or not isinstance(context.get("http"), dict):
            raise Invalid(
                "the event must be a request of API Gateway or a function URL, payload 2.0 (requestContext with http), "
                f"or {otherwise}"
            )
        path, stage = str(event.get("rawPath", "")), context.get("stage", "$default")
        if stage != "$default":
            path = path.removeprefix(f"/{stage}")
        sent = event.get("headers") or {}
        if not isinstance(sent, dict) or not all(isinstance(value, str) for value in sent.values()):
            raise Invalid("headers: expected an object of texts, as API Gateway sends it")
        headers = {_storable(name).lower(): _storable(value) for name, value in sent.items()}
        method, by_operator = str(context["http"].get("method")), context.get(OPERATOR) is True
        return cls(method, path, headers, event, context.get(GONE), by_operator)

    @property
    def query_string(self) -> str:
        """Return the query string as it was sent, "" if there is none."""
        return str(self.event.get("rawQueryString") or "")

    def body(self) -> bytes:
        """Return the body's bytes. Raises `Invalid` unless it is a text, one of base64 if it is marked so."""
        text = self.event.get("body") or ""
        if not isinstance(text, str):
            raise Invalid("body: expected a text, as API Gateway sends it")
        if not self.event.get("isBase64Encoded"):
            return text.encode("utf-8", "surrogatepass")
        try:
            return base64.b64decode(text, validate=True)
        except ValueError:
            raise Invalid("the body is marked as base64, but is not valid base64") from None


def _storable(text: str) -> str:
    """Return a text without unpaired surrogates, which no HTTP brings, but an event may."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def safe(handler: Callable[[Event, Any], Answer]) -> Callable[[Event, Any], Answer]:
    """Have browsers trust the content types of a handler's answers, without sniffing."""

    @wraps(handler)
    def call(event: Event, context: Any) -> Answer:
        reply = handler(event, context)
        if isinstance(reply, dict) and "statusCode" in reply:
            reply["headers"] = dict([*(reply.get("headers") or {}).items(), NOSNIFF])
        return reply

    return call


def answer(status: int, body: Mapping[str, Any], **headers: str) -> Response:
    """Return a JSON answer."""
    return {
        "statusCode": status,
        "headers": {"Content-Type": "application/json", **headers},
        "body": orjson.dumps(body).decode(),
        "isBase64Encoded": False,
    }


def failure(status: int, reason: str, **headers: str) -> Response:
    """Return an answer that is an error; the reason may echo what was sent, so it is cut."""
    return answer(status, {"error": cut(reason)}, **headers)


def refusal(error: AlluviaError, logger: Logger, statuses: Mapping[type[AlluviaError], int]) -> Response:
    """Log an error without the caller's words, and return its answer. `statuses` come before those that all share."""
    every = ((StoreRefused, 503), *statuses.items(), *_STATUSES.items())
    status = next((status for kind, status in every if isinstance(error, kind)), 500)
    if status < 500:
        logger.info("refused", extra={"status": status, "reason": type(error).__name__})
        again = status == 409 and not isinstance(error, BranchConflict) and not error.partly
        reason = f"nothing was done, send the same request again: {error}" if again else str(error)
        return failure(status, reason, **_headers_of(error))
    logger.error("failed", exc_info=error, extra={"status": status})
    if status != 503:
        return failure(status, str(error))
    reason = STORE_REFUSES if isinstance(error, StoreRefused) else str(error)
    advice = "" if error.partly else "send the same request again: "
    return failure(status, f"{advice}{reason}", **{"Retry-After": str(RETRY_AFTER_SECONDS)})


def _headers_of(error: AlluviaError) -> dict[str, str]:
    """Return the headers that go with an error: what a caller lacks (RFC 6750, section 3), and when to come back."""
    if isinstance(error, TooManyRequests):
        return {"Retry-After": str(error.retry_after_seconds)}
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": f'{CHALLENGE}, error="invalid_token"' if error.given else error.challenge}
    if isinstance(error, Forbidden) and error.scope is not None:
        scope = "".join(each for each in error.scope if (each.isascii() and each.isalnum()) or each in ":._*")
        return {"WWW-Authenticate": f'{CHALLENGE}, error="insufficient_scope", scope="{scope}"'}
    return {}
