"""`GET /openapi.json`: a document of all routes, and of the published queries that the caller may run.

The routes are public. A caller without a token sees no published query. Loaded when it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from alluvia.query.parameters import Declared
from alluvia.query.published import PublishedQuery, list_published
from alluvia.serverless.authorization import IAM, OPEN
from alluvia.serverless.http import Request, Response, Unauthenticated
from alluvia.serverless.http import answer as json_answer
from alluvia.serverless.openapi import FLAG, TEXT, Json, both, document, in_path, in_query, operation
from alluvia.serverless.openapi_ingest import INGEST_OPERATIONS
from alluvia.version import __version__

from .answering import NO_STORE, Caller
from .openapi_fields import FORMAT_NAMES, IF_NONE_MATCH, LIMITS, PUBLISHED, QUERY_ERRORS, READ_ANSWERS
from .openapi_routes import QUERY_OPERATIONS
from .published import runnable
from .publishing import PAGE

PUBLISHED_MAX = 1000
"""The document has no more published queries than that."""
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


def tell_openapi(request: Request, caller: Caller) -> Response:
    """Answer with the document. Raises `Unauthenticated` for a token that is not valid, and what the lake raises."""
    authorization, in_lambda = caller.settings.authorization, "AWS_LAMBDA_FUNCTION_NAME" in os.environ
    try:
        known = replace(caller, rights=authorization.rights(request, caller.lake))
        published = list(islice(_runnable(known), PUBLISHED_MAX))
    except Unauthenticated as error:
        if error.given:
            raise
        published = []
    found = document(
        {**INGEST_OPERATIONS, **QUERY_OPERATIONS, **published_operations(published)},
        version=__version__,
        description="A lakehouse for event data: events come in, and SQL asks for them. Some routes may be off here.",
        scheme=None if authorization.mode == OPEN else authorization.mode,
        all_ask=in_lambda and authorization.mode in (IAM, "jwt"),
    )
    return json_answer(200, found, **{"Cache-Control": NO_STORE, "Vary": "Authorization"})


def published_operations(queries: Iterable[PublishedQuery]) -> dict[str, Mapping[str, Json]]:
    """Return an operation for each published query, with its parameters."""
    found: dict[str, Mapping[str, Json]] = {}
    for each in queries:
        form = in_path("format", "The form of the answer.", FORMAT_NAMES)
        parameters = [form, *map(_declared, each.parameters), *LIMITS, IF_NONE_MATCH]
        name, summary = f"published_{each.name}", f"Run the published query {each.name}, version {each.version}"
        run = operation(name, PUBLISHED, summary, READ_ANSWERS, parameters=parameters, errors=QUERY_ERRORS)
        found[f"/v1/queries/{each.name}.{{format}}"] = both(run)
    return found


def _runnable(caller: Caller) -> Iterator[PublishedQuery]:
    """Yield the published queries that the caller may run."""
    after: str | None = ""
    while after is not None:
        page, after = list_published(caller.lake.store, after, PAGE)
        yield from (found for each in page if (found := runnable(caller, each)) is not None)


def _declared(parameter: Declared) -> Json:
    """Return a parameter of a published query, with its default as JSON has it."""
    kind = parameter.type.partition("(")[0]
    schema = dict(_TYPES.get(kind, TEXT))
    if parameter.default is not None:
        value = parameter.value(parameter.default)
        schema["default"] = value if isinstance(value, bool | int | float | str) else _text(value)
    return in_query(parameter.name, f"A {parameter.type}.", schema, required=parameter.default is None)


def _text(value: Any) -> str:
    return str(value.isoformat() if hasattr(value, "isoformat") else value)
