"""OpenAPI 3.1: what the document of the HTTP interface is made of. Pure; loaded when somebody asks for the document.

The functions say what their operations are, by path and method, in terms of this module; tests compare that with the
routes that they serve.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from alluvia.serverless.http import BRANCH_HEADER

Json = dict[str, Any]
Operations = Mapping[str, Mapping[str, Json]]
"""By path, and by method in capitals."""

VERSION = "3.1.1"
ON_BRANCH: Json = {
    "name": BRANCH_HEADER,
    "in": "header",
    "required": False,
    "description": "A branch of the lake, to which the request goes: with the rights that the caller has on the lake.",
    "schema": {"type": "string"},
}
ERROR = {"$ref": "#/components/schemas/Error"}
JSON_TYPE = "application/json"
TEXT: Json = {"type": "string"}
COUNT: Json = {"type": "integer", "minimum": 0}
AT_LEAST_ONE: Json = {"type": "integer", "minimum": 1}
FLAG: Json = {"type": "boolean"}
ERRORS = {
    400: "Something in the request is wrong: the message names the field and what to send.",
    401: "A missing, bad, expired or revoked token, or a signature that proves nothing.",
    403: "The caller lacks a right, which the message names, or it is off here.",
    404: "There is no such table, version, query or branch.",
    405: "The path takes other methods, or the statement writes and this method only reads.",
    406: "None of the forms in Accept is available.",
    409: "Another writer has changed what was read: nothing was done, send it again. Or a branch has conflicts.",
    410: "The version has expired; the message names the oldest one left.",
    412: "What is published is not the version that If-Match or If-None-Match expects.",
    413: "The body, or a result that may be no link, is over a limit.",
    415: "The body is in a form that requests do not come in.",
    422: "A limit on bytes, time, memory or size stands in the way, or a table has a feature that cannot be read.",
    429: "The caller has made as many requests as it may for now: Retry-After says when to come back.",
    500: "A file of the lake is damaged, or it is unknown whether a commit was made.",
    503: "The store did not answer, or too many requests are waiting: send the same one again.",
}
_CALLER = (401, 403, 429)
SCHEMES: Mapping[str, Json] = {
    "iam": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "AWS Signature Version 4, of a principal that may execute-api:Invoke the route.",
        "x-amazon-apigateway-authtype": "awsSigv4",
    },
    "tokens": {"type": "http", "scheme": "bearer", "description": "A token of the lake: `alluvia token create`."},
    "jwt": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A token of the identity provider that the settings name.",
    },
}
"""By what ALLUVIA_AUTH says."""


def operation(
    name: str,
    tag: str,
    summary: str,
    answers: Mapping[int, Json],
    *,
    parameters: Sequence[Json] = (),
    body: Json | None = None,
    errors: Iterable[int] = (),
    public: bool = False,
) -> Json:
    """Return an operation. `public`: no token is asked for, so it has none of the errors about callers."""
    statuses = sorted({*errors, *(() if public else _CALLER)})
    responses = {status: {"$ref": f"#/components/responses/Error{status}"} for status in statuses} | dict(answers)
    found: Json = {"operationId": name, "tags": [tag], "summary": summary}
    if parameters:
        found["parameters"] = [*parameters]
    if body is not None:
        found["requestBody"] = body
    found["responses"] = {str(status): each for status, each in sorted(responses.items())}
    return found | ({"security": []} if public else {})


def in_path(name: str, description: str, schema: Json = TEXT) -> Json:
    """Return a part of a path."""
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def in_query(name: str, description: str, schema: Json = TEXT, *, required: bool = False) -> Json:
    """Return a field of the query string."""
    return {"name": name, "in": "query", "required": required, "description": description, "schema": schema}


def in_header(name: str, description: str, schema: Json = TEXT) -> Json:
    """Return a header."""
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def content(description: str, bodies: Mapping[str, Json], headers: Mapping[str, Json] | None = None) -> Json:
    """Return a body, of a request or an answer: its schema by media type."""
    found: Json = {"description": description, "content": {kind: {"schema": each} for kind, each in bodies.items()}}
    if headers:
        found["headers"] = {name: dict(each) for name, each in headers.items()}
    return found


def told(description: str, properties: Mapping[str, Json], *, required: Sequence[str] = ()) -> Json:
    """Return an answer that is a JSON object."""
    schema: Json = {"type": "object", "properties": dict(properties)}
    return content(description, {JSON_TYPE: schema | ({"required": [*required]} if required else {})})


def both(get: Json) -> dict[str, Json]:
    """Return an operation for GET, and the same for HEAD, which has no body."""
    answers = {
        status: {name: each for name, each in answer.items() if name != "content"}
        for status, answer in get["responses"].items()
    }
    return {"GET": get, "HEAD": get | {"operationId": f"head_{get['operationId']}", "responses": answers}}


def document(operations: Operations, *, version: str, description: str, scheme: str | None, all_ask: bool) -> Json:
    """Return the document. `scheme` is the one that callers are known by (None: all are let in).

    `all_ask`: what is in front of the functions asks for it on public routes, too.
    """
    paths: dict[str, Json] = {
        path: {method.lower(): _asking(each) if all_ask else each for method, each in methods.items()}
        for path, methods in operations.items()
    }
    used = {status for methods in paths.values() for each in methods.values() for status in each["responses"]}
    responses = {
        f"Error{status}": content(text, {JSON_TYPE: ERROR}) for status, text in ERRORS.items() if str(status) in used
    }
    schema = {"type": "object", "required": ["error"], "properties": {"error": TEXT}}
    found: Json = {
        "openapi": VERSION,
        "info": {"title": "Alluvia", "version": version, "description": description},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": {"Error": schema}, "responses": responses},
    }
    if scheme is not None:
        found["components"]["securitySchemes"] = {scheme: dict(SCHEMES[scheme])}
        found["security"] = [{scheme: []}]
    return found


def _asking(found: Json) -> Json:
    return {name: each for name, each in found.items() if name != "security" or found.get("x-sender-signs")}
