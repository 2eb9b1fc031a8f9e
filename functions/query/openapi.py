"""`GET /openapi.json`: a document of all routes, and of the published queries that the caller may run.

The routes are public. A caller without a token sees no published query. Loaded when it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from alluvia.query.parameters import Declared
from alluvia.query.published import PublishedQuery, list_published
from alluvia.serverless.authorization import IAM, OPEN
from alluvia.serverless.http import Response, Unauthenticated
from alluvia.serverless.routes.fields import FLAG, TEXT, Json, RequestField, in_path
from alluvia.serverless.routes.ingest_routes import INGEST_ROUTES
from alluvia.serverless.routes.openapi import document
from alluvia.serverless.routes.query_fields import FORMATS, LIMIT, LIMIT_HEADERS, WRITING_FIELDS
from alluvia.serverless.routes.query_routes import IF_NONE_MATCH, QUERY_ERRORS, QUERY_ROUTES, ROWS
from alluvia.serverless.routes.route import ANY_CALLER, Route
from alluvia.version import __version__

from .answering import Caller, facts
from .published import runnable

PUBLISHED_MAX = 1000
"""The document has no more published queries than that."""
_FORM = in_path("format", "The format of the answer.", TEXT | FORMATS)
_TYPES: Mapping[str, Json] = {
    "byte": {"type": "integer", "minimum": -(2**7), "maximum": 2**7 - 1},
    "short": {"type": "integer", "minimum": -(2**15), "maximum": 2**15 - 1},
    "integer": {"type": "integer", "format": "int32"},
    "long": {"type": "integer", "format": "int64"},
    "float": {"type": "number", "format": "float"},
    "double": {"type": "number", "format": "double"},
    "decimal": {"type": "string", "format": "decimal"},
    "boolean": FLAG,
    "date": {"type": "string", "format": "date"},
    "timestamp": {"type": "string", "format": "date-time"},
}
"""Schemas of parameters, by Delta's names of their types; all others are text."""


def show_openapi(caller: Caller) -> Response:
    """Answer with the document. Raises `Unauthenticated` for a token that is not valid, and what the lake raises."""
    authorization, in_lambda = caller.settings.authorization, "AWS_LAMBDA_FUNCTION_NAME" in os.environ
    try:
        known = replace(caller, rights=authorization.rights(caller.request, caller.lake))
        published = list(islice(_runnable(known), PUBLISHED_MAX))
    except Unauthenticated as error:
        if error.given:
            raise
        published = []
    description = document(
        (*INGEST_ROUTES, *QUERY_ROUTES, *map(_route, published)),
        version=__version__,
        description="A lakehouse for event data: events come in, SQL answers. Some routes may be off here.",
        scheme=None if authorization.mode == OPEN else authorization.mode,
        all_ask=in_lambda and authorization.mode in (IAM, "jwt"),
    )
    return facts(description, Vary="Authorization")


def _route(query: PublishedQuery) -> Route:
    """Return a published query as a route of its own, with its parameters."""
    return Route(
        f"GET,HEAD /v1/queries/{query.name}.{{format}}",
        "published.run_published",
        ANY_CALLER,
        f"Run the published query {query.name}, version {query.version}",
        ROWS,
        QUERY_ERRORS,
        (_FORM, *map(_field, query.parameters), *_written(query), *LIMIT_HEADERS, IF_NONE_MATCH),
        named=f"published_{query.name}",
    )


def _written(query: PublishedQuery) -> list[RequestField]:
    """Return the fields for how CSV is written, but for those whose names parameters of the query have."""
    own = {each.name for each in query.parameters}
    return [field for field in WRITING_FIELDS if field.name not in own]


def _runnable(caller: Caller) -> Iterator[PublishedQuery]:
    """Yield the published queries that the caller may run."""
    after: str | None = ""
    while after is not None:
        page, after = list_published(caller.lake.store, after, LIMIT.schema["default"])
        yield from (query for each in page if (query := runnable(caller, each)) is not None)


def _field(parameter: Declared) -> RequestField:
    """Return a parameter of a published query, with its default as JSON."""
    schema, text = _TYPES.get(parameter.type.partition("(")[0], TEXT), f"A {parameter.type}."
    if parameter.default is None:
        return RequestField(parameter.name, schema, text, missing="send it")
    value = parameter.value(parameter.default)
    default = value if isinstance(value, bool | int | float | str) else _text(value)
    return RequestField(parameter.name, schema | {"default": default}, text)


def _text(value: Any) -> str:
    return str(value.isoformat() if hasattr(value, "isoformat") else value)
