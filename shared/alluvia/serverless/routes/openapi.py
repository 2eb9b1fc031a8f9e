"""OpenAPI 3.1: the document of the HTTP interface, made of the routes. Pure; loaded when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from alluvia.serverless.http import BRANCH_HEADER
from alluvia.serverless.routes.contents import ANSWERS, BODIES, PATH_FIELDS, content
from alluvia.serverless.routes.fields import IN_PATH, IN_QUERY, TEXT, Json, RequestField, in_header, schema_of
from alluvia.serverless.routes.query_fields import JSON_TYPE
from alluvia.serverless.routes.route import LINKED, SENDER, Route

VERSION = "3.1.1"
_ON_BRANCH = in_header(
    BRANCH_HEADER,
    "A branch of the lake, to which the request goes. The caller has the same rights there as on the lake.",
)
_ERROR = {"$ref": "#/components/schemas/Error"}
ERRORS = {
    400: "Something in the request is wrong: the message names the field and what to send.",
    401: "A missing, bad, expired or revoked token, or a signature that proves nothing.",
    403: "The caller lacks a right, which the message names, or it is off here.",
    404: "There is no such table, version, query or branch.",
    405: "The path takes other methods, or the statement writes and this method only reads.",
    406: "None of the formats in Accept is available.",
    409: "Another writer changed what was read: the message says whether to send it again. Or a branch has conflicts.",
    410: "The version has expired. The message names the oldest one left.",
    412: "The published version is not the one that If-Match or If-None-Match expects.",
    413: "The body, or a result that cannot be a link, is over a limit.",
    415: "The type of the body is not supported.",
    416: "The range is beyond the end of the result, whose size is in Content-Range.",
    422: "A limit on bytes, time, memory or size was exceeded, or a table has a feature that cannot be read.",
    429: "The caller is over its limit of requests. Retry-After says when to send the next one.",
    500: "A file of the lake is damaged, or it is unknown whether a commit was made.",
    503: "The store did not answer, or too many requests are waiting: send the same one again.",
}
_OF_CALLERS = (400, 401, 403, 429, 500, 503)
"""Any request of a caller may get these. One that names something may also get a 404."""
_SCHEMES: Mapping[str, Json] = {
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
"""By the value of ALLUVIA_AUTH."""
_TAGS = {
    "queries": "Queries",
    "jobs": "Queries",
    "published": "Published queries",
    "publishing": "Published queries",
    "tables": "Tables",
    "branches": "Branches",
    "events": "Events",
    "uploads": "Events",
    "upload_parts": "Events",
    "webhooks": "Webhooks",
}
"""By the module of a route's taker."""


def document(routes: Iterable[Route], *, version: str, description: str, scheme: str | None, all_ask: bool) -> Json:
    """Return the document. `scheme` is how callers prove who they are; None: they need not.

    `all_ask`: a gateway in front of the functions asks for it on public routes, too.
    """
    paths: dict[str, Json] = {}
    for route in routes:
        for method in route.methods:
            paths.setdefault(route.path, {})[method.lower()] = _operation(route, method, all_ask=all_ask)
    used = {status for methods in paths.values() for each in methods.values() for status in each["responses"]}
    errors = {
        f"Error{status}": content(text, {JSON_TYPE: _ERROR}) for status, text in ERRORS.items() if str(status) in used
    }
    error = {"type": "object", "required": ["error"], "properties": {"error": TEXT}}
    contract: Json = {
        "openapi": VERSION,
        "info": {"title": "Alluvia", "version": version, "description": description},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": {"Error": error}, "responses": errors},
    }
    if scheme is not None:
        contract["components"]["securitySchemes"] = {scheme: _SCHEMES[scheme]}
        contract["security"] = [{scheme: []}]
    return contract


def _operation(route: Route, method: str, *, all_ask: bool) -> Json:
    name = route.name if method != "HEAD" else f"head_{route.name}"
    tag = _TAGS.get(route.module, "Service")
    operation: Json = {"operationId": name, "tags": [tag], "summary": route.summary}
    if route.right.scope:
        operation["description"] = f"Needs the scope {route.right.scope}."
    described = {each.name for each in route.fields if each.place == IN_PATH}
    named = [PATH_FIELDS[name] for name in re.findall(r"{(\w+)}", route.path) if name not in described]
    fields = [*named, *route.fields, *([_ON_BRANCH] if route.on_branch else ())]
    if fields:
        operation["parameters"] = [parameter(each) for each in fields]
    if route.body or route.json_body:
        operation["requestBody"] = BODIES[route.body or route.json_body]
    operation["responses"] = _responses(route, method)
    if route.right in (SENDER, LINKED) or (route.public and not all_ask):
        operation["security"] = []
    return operation | ({"x-sender-signs": True} if route.right is SENDER else {})


def _responses(route: Route, method: str) -> Json:
    """Return the answers by status. Those to HEAD have no body."""
    statuses = {*route.errors}
    if not route.public:
        statuses.update(_OF_CALLERS, (404,) if "{" in route.path else ())
    responses: dict[int, Json] = {status: {"$ref": f"#/components/responses/Error{status}"} for status in statuses}
    for status, name in route.answers.items():
        answer = ANSWERS[name]
        responses[status] = answer if method != "HEAD" else {key: answer[key] for key in answer if key != "content"}
    return {str(status): each for status, each in sorted(responses.items())}


def parameter(field: RequestField) -> Json:
    """Return a field of a path, a query string or the headers."""
    schema: dict[str, Any] = schema_of(field)
    text = schema.pop("description")
    described: Json = {
        "name": field.name,
        "in": field.place,
        "description": text,
        "required": field.missing is not None,
    }
    if field.place == IN_QUERY and schema["type"] == "object":
        return described | {"style": "form", "explode": True, "schema": schema}
    if field.place == IN_QUERY and not isinstance(schema["type"], str):
        return described | {"description": f"{text} As JSON.", "content": {JSON_TYPE: {"schema": schema}}}
    return described | {"schema": schema}
