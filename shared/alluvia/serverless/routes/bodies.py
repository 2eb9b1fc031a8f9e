"""JSON objects as bodies of requests, declared once for their parser and the OpenAPI document."""

from __future__ import annotations

from alluvia.engine.queries.parse import QUERY_LIMIT_BYTES
from alluvia.operations.transactions.lake_commit import ISOLATION, SERIALIZABLE
from alluvia.serverless.routes.fields import FLAG, TEXT, Json, JsonBody, RequestField

TYPE, DEFAULT = "type", "default"
PARAMETER: Json = {"type": "object", "properties": {TYPE: TEXT, DEFAULT: {}}, "required": [TYPE]}


_BRANCH, _PUBLISHED = (
    '{"name": "fix", "expires": "7d"}',
    '{"query": "SELECT …", "parameters": {"path": "string", "least": "long=10"}}',
)
_SELECT_EXPECTED = f"send the text of one SELECT, as in {_PUBLISHED}"
_TEXT_EXPECTED = f"send text, as in {_BRANCH}"
JSON_BODIES = {
    "branch": JsonBody(
        "The branch.",
        "a branch",
        _BRANCH,
        (
            RequestField("name", TEXT, wrong=_TEXT_EXPECTED, missing=f"send the name of the branch, as in {_BRANCH}"),
            RequestField("at", TEXT, "A moment in the past, or a tag of the lake.", _TEXT_EXPECTED),
            RequestField("expires", TEXT, "How long it is kept: 7d, 12h.", _TEXT_EXPECTED),
        ),
    ),
    "publish": JsonBody(
        "Options.",
        "a publish",
        '{"dry_run": true}',
        (
            RequestField("isolation", TEXT | {"default": SERIALIZABLE}, documented={"enum": [*ISOLATION]}),
            RequestField("dry_run", FLAG | {"default": False}),
        ),
        required=False,
    ),
    "published query": JsonBody(
        "The query.",
        "a query to publish",
        _PUBLISHED,
        (
            RequestField("query", TEXT, "The text of one SELECT.", _SELECT_EXPECTED, missing=_SELECT_EXPECTED),
            RequestField(
                "parameters",
                {"type": "object", "default": {}},
                "The types of $name by name: long, long=10 with a default, or an object.",
                f"send an object with a type for each name, as in {_PUBLISHED}",
                documented={"additionalProperties": {"oneOf": [TEXT, PARAMETER]}},
            ),
        ),
        4 * QUERY_LIMIT_BYTES,
    ),
}
