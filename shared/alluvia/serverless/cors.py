"""Cross-origin requests of browsers (CORS), for the routes that anyone with a token may call from a page.

`ALLUVIA_CORS_ORIGINS` names the sites, with spaces between, or `*` for all; none by default. Credentials of browsers
(cookies) are never allowed: a page sends its token in a header. Sources name their own sites (`origins`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any, TypeVar

from alluvia.access.origins import ANY, normal_origin
from alluvia.errors import Invalid

ORIGINS = "ALLUVIA_CORS_ORIGINS"
MAX_AGE_SECONDS = 600
METHODS = "GET, HEAD, POST, PUT, DELETE"
_EXPOSED = (
    "Alluvia-Table, Alluvia-Events, Alluvia-Rows, Alluvia-Versions, Alluvia-Cache, Alluvia-Result-Bytes, "
    "Alluvia-Elapsed-Ms, Accept-Ranges, Content-Disposition, Content-Range, ETag, Link, Location, "
    "Retry-After, WWW-Authenticate"
)
Event = TypeVar("Event")
Answer = TypeVar("Answer")


@cache
def allowed_origins(text: str) -> frozenset[str]:
    """Return the sites of a setting, as browsers name them. Raises `Invalid` for any other text."""
    origins = {each: ANY if each == ANY else normal_origin(each) for each in text.split()}
    for each, origin in origins.items():
        if origin is None:
            raise Invalid(f"{ORIGINS}: {each!r:.100} is not an origin: write it as https://example.com, or * for all")
    return frozenset(filter(None, origins.values()))


def is_allowed(origin: str, environment: Mapping[str, str]) -> bool:
    """Whether pages of a site may call the routes."""
    origins = allowed_origins(environment.get(ORIGINS, ""))
    return ANY in origins or origin in origins


def with_cors(
    environment: Mapping[str, str], sources: Callable[[str], bool]
) -> Callable[[Callable[[Event, Any], Answer]], Callable[[Event, Any], Answer]]:
    """Make a handler accept requests of pages of the configured sites, including preflight requests.

    `sources` is true for paths of webhook sources, which name their own sites.
    """

    def decorate(handler: Callable[[Event, Any], Answer]) -> Callable[[Event, Any], Answer]:
        @wraps(handler)
        def call(event: Event, context: Any) -> Answer:
            if not isinstance(event, dict) or sources(str(event.get("rawPath", ""))):
                return handler(event, context)
            preflight = preflight_answer(event, environment)
            response: Any = handler(event, context) if preflight is None else preflight
            if isinstance(response, dict) and "statusCode" in response:
                response["headers"] = cors_headers(event, environment, response.get("headers") or {})
            answer: Answer = response
            return answer

        return call

    return decorate


def cors_headers(
    event: Mapping[str, Any], environment: Mapping[str, str], headers: Mapping[str, str]
) -> dict[str, str]:
    """Return the headers of an answer, with those by which a page of a configured site may read it.

    Where there are such sites, all answers vary by Origin, or a cache could give one site's answer to another's page.
    """
    if not allowed_origins(environment.get(ORIGINS, "")):
        return {**headers}
    vary = headers.get("Vary", "")
    told = {**headers, "Vary": vary if "Origin" in vary.split(", ") else ", ".join(filter(None, [vary, "Origin"]))}
    origin = _origin(event)
    if origin is not None and is_allowed(origin, environment):
        told |= {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": _EXPOSED}
    return told


def preflight_answer(event: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the answer to a browser's preflight request; None for other requests and sites."""
    context = event.get("requestContext")
    http = context.get("http") if isinstance(context, dict) else None
    if not isinstance(http, dict) or http.get("method") != "OPTIONS":
        return None
    origin = _origin(event)
    if origin is None or not is_allowed(origin, environment):
        return None
    headers = {str(name).lower(): str(value) for name, value in event["headers"].items()}
    if "access-control-request-method" not in headers:
        return None
    asked = headers.get("access-control-request-headers", "")
    told = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": str(MAX_AGE_SECONDS)}
    if asked.isascii() and asked.isprintable() and asked:
        told["Access-Control-Allow-Headers"] = asked
    return {"statusCode": 204, "headers": told, "body": "", "isBase64Encoded": False}


def _origin(event: object) -> str | None:
    headers: Any = event.get("headers") if isinstance(event, dict) else None
    if not isinstance(headers, dict):
        return None
    origin = next((value for name, value in headers.items() if str(name).lower() == "origin"), None)
    return origin if isinstance(origin, str) and origin.isascii() and origin.isprintable() else None
