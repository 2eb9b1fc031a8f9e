"""Signed links to published queries: `GET /v1/links/{name}.{form}?link-token=…`, for browsers and spreadsheets.

These send no header. The token in the address is one of the lake's, and allows one query, with some parameters fixed.
An address is stored in histories and logs, so no other token is taken from one, and the answer keeps it from spreading:
no Referer, and no cache that others share.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

from alluvia.serverless.authorization import rights_of_link
from alluvia.serverless.http import Response
from alluvia.serverless.routes.query_fields import LINK_TOKEN

from .answering import Caller, QueryNotFound
from .published import run_published
from .query_request import pairs_of

_PRIVATE = frozenset({"private", "no-store"})
_NOT_FOR_LINKS = frozenset({"authorization", "prefer"})
"""A link answers with its rows to every holder."""


def open_link(caller: Caller, name: str) -> Response:
    """Run the published query of a link. Raises its errors, and `Forbidden` for an invalid link."""
    request = caller.request
    pairs = pairs_of(request.query_string, "parameters")
    tokens = [value for key, value in pairs if key == LINK_TOKEN.name]
    rights = rights_of_link(LINK_TOKEN.read(tokens[0] if len(tokens) == 1 else None), caller.lake)
    if "." not in name:
        raise QueryNotFound("a link leads to rows: name a form, as in .csv")
    others = urlencode([(key, value) for key, value in pairs if key != LINK_TOKEN.name])
    headers = {key: value for key, value in request.headers.items() if key not in _NOT_FOR_LINKS}
    asked = replace(request, headers=headers, event={**request.event, "rawQueryString": others})
    response = run_published(replace(caller, rights=rights, request=asked), name)
    kept = response["headers"].get("Cache-Control", "")
    if _PRIVATE.isdisjoint(directive.strip() for directive in kept.split(",")):
        response["headers"]["Cache-Control"] = "private, no-cache"
    return response
