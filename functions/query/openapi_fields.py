"""What the operations of queries have in common: the fields of requests, and what answers hold."""

from __future__ import annotations

from collections.abc import Mapping

from alluvia.operations.results.jobs import CANCELLED, DONE, FAILED, QUEUED, RUNNING
from alluvia.query.formats import FORMATS, JSON
from alluvia.serverless.openapi import (
    AT_LEAST_ONE,
    COUNT,
    FLAG,
    JSON_TYPE,
    ON_BRANCH,
    TEXT,
    Json,
    both,
    content,
    in_header,
    in_query,
    operation,
    told,
)

from .answering import BYTES_READ, ELAPSED, FILES_READ, ROWS, VERSIONS
from .asking import (
    ASYNC,
    DRY_RUN,
    ERROR,
    FIELDS,
    FORM_TYPE,
    FORMAT,
    LARGE,
    LIMIT_HEADERS,
    LINK,
    MAX_BYTES,
    MAX_RESULT_BYTES,
    MAX_SECONDS,
    MODE,
    OTHER_NAMES,
    PARAM,
    PARAMETERS,
    QUERY,
    QUERY_HEADERS,
    SYNC,
    TEXT_TYPES,
)
from .costs import DOLLARS, REQUESTS
from .jobs import EXPIRED, NUMBERS
from .reading import CACHE, HIT, MISS, OFF

QUERIES, PUBLISHED, TABLES, SERVICE = "Queries", "Published queries", "Tables", "Service"
FORMAT_NAMES: Json = {"type": "string", "enum": [each.name.lower() for each in FORMATS]}
_FIELD_SCHEMAS: Mapping[str, Json] = {
    QUERY: TEXT | {"description": "The text of one SELECT, or of several statements."},
    PARAMETERS: {
        "oneOf": [{"type": "array"}, {"type": "object"}],
        "description": "Values of ?, in a list, or of $name, in an object.",
    },
    FORMAT: FORMAT_NAMES | {"description": "The form of the answer; without it, Accept decides."},
    DRY_RUN: FLAG | {"description": "Answer what the query would read, and read nothing."},
    LARGE: {
        "type": "string",
        "enum": [LINK, ERROR],
        "description": "What a result is answered with that is too large for an answer: a link, or 413.",
    },
    MODE: {"type": "string", "enum": [SYNC, ASYNC], "description": "Whether to answer with the rows, or with a job."},
    MAX_BYTES: AT_LEAST_ONE | {"description": "Refuse a query that would read more bytes of data files."},
    MAX_SECONDS: AT_LEAST_ONE | {"description": "End a query that takes longer."},
    MAX_RESULT_BYTES: AT_LEAST_ONE | {"description": "Refuse a result with more bytes."},
}
_BODY_FIELDS: Json = {
    "type": "object",
    "properties": {name: _FIELD_SCHEMAS[name] for name in FIELDS}
    | {other: _FIELD_SCHEMAS[name] | {"description": f"The same as {name}."} for other, name in OTHER_NAMES.items()},
    "anyOf": [
        {"required": [name]} for name in (QUERY, *(other for other in OTHER_NAMES if OTHER_NAMES[other] == QUERY))
    ],
}
_NAMED_VALUES: Json = {
    "name": "values",
    "in": "query",
    "style": "form",
    "explode": True,
    "description": f"{PARAM}name=value is the text of a value of $name.",
    "schema": {"type": "object", "patternProperties": {f"^{PARAM}": TEXT}, "additionalProperties": False},
}
_HEADERS: Mapping[str, Json] = {
    ROWS: {"schema": COUNT, "description": "Rows of the answer."},
    VERSIONS: {"schema": TEXT, "description": "The tables that were read with their versions: events=7, users=3."},
    FILES_READ: {"schema": COUNT, "description": "Data files that were left after pruning."},
    BYTES_READ: {"schema": COUNT, "description": "The bytes of these files."},
    ELAPSED: {"schema": COUNT, "description": "How long it took, in milliseconds."},
    REQUESTS: {"schema": COUNT, "description": "Requests that were sent to the lake's storage on S3."},
    DOLLARS: {"schema": {"type": "number"}, "description": "The price of these and of the function's memory, in USD."},
}
READ_HEADERS: Mapping[str, Json] = {
    **_HEADERS,
    CACHE: {"schema": {"type": "string", "enum": [HIT, MISS, OFF]}, "description": "Whether the result was kept."},
    "ETag": {"schema": TEXT, "description": "Stands for all that the answer depends on."},
    "Cache-Control": {"schema": TEXT},
}
ROW_BODIES: Mapping[str, Json] = {
    form.content_type.partition(";")[0]: {"type": "array", "items": {"type": "object"}} if form is JSON else TEXT
    for form in FORMATS
}
LINKED: Json = told(
    "The result is too large for an answer. It is at Location, which needs no token and is valid for an hour.",
    {"result": TEXT, "bytes": COUNT, "expires": {"type": "string", "format": "date-time"}},
    required=["result", "bytes", "expires"],
)
JOB: Json = told(
    "What has become of the job.",
    {
        "id": TEXT,
        "state": {"type": "string", "enum": [QUEUED, RUNNING, DONE, FAILED, CANCELLED, EXPIRED]},
        **{name: {"type": ["string", "null"], "format": "date-time"} for name in ("asked", "started", "ended")},
        **{name: {"type": "number"} for name in NUMBERS},
        **dict.fromkeys(("versions", "result", "error"), TEXT),
        "status": COUNT,
    },
    required=["id", "state", "asked", "started", "ended"],
)
ASYNC_HEADERS = [
    in_header("Prefer", "respond-async: answer with a job, where there are any."),
    in_header("Idempotency-Key", "Of a job: the same key is the same job."),
]
QUERY_ERRORS = (400, 403, 404, 405, 406, 410, 413, 422, 500, 503)
LIMITS = [
    in_header(header, str(_FIELD_SCHEMAS[name]["description"]), AT_LEAST_ONE) for name, header in LIMIT_HEADERS.items()
]
IF_NONE_MATCH = in_header("If-None-Match", "Tags of answers that the caller has.")
READ_ANSWERS = {
    200: content("The rows.", ROW_BODIES, READ_HEADERS),
    303: LINKED,
    304: {"description": "The caller has the answer.", "headers": {"ETag": READ_HEADERS["ETag"]}},
}


def _asked(name: str) -> Json:
    """Return a field of a request as a field of the query string has it."""
    schema = dict(_FIELD_SCHEMAS[name])
    text = str(schema.pop("description"))
    if name == PARAMETERS:
        found = in_query(name, f"{text} As JSON.")
        del found["schema"]
        return found | {"content": {JSON_TYPE: {"schema": schema}}}
    return in_query(name, text, schema)


def by_post(name: str, summary: str) -> Json:
    """Return the operation that takes queries in bodies."""
    bodies: dict[str, Json] = {JSON_TYPE: _BODY_FIELDS | {"additionalProperties": False}}
    bodies |= dict.fromkeys(TEXT_TYPES, TEXT)
    bodies[FORM_TYPE] = _BODY_FIELDS | {"patternProperties": {f"^{PARAM}": TEXT}, "additionalProperties": False}
    body = content("The query: as JSON, as its text, or as a form. The fields may also be in the query string.", bodies)
    return operation(
        name,
        QUERIES,
        summary,
        {200: content("The rows of the last read.", ROW_BODIES, _HEADERS), 202: JOB, 303: LINKED},
        parameters=[*ASYNC_HEADERS, *(_asked(field) for field in FIELDS), _NAMED_VALUES, *LIMITS, ON_BRANCH],
        body=body,
        errors=(*QUERY_ERRORS, 409, 415),
    )


def by_get(name: str, summary: str, *parameters: Json) -> dict[str, Json]:
    """Return the operations, of GET and HEAD, that take queries in the query string or a header."""
    header = in_header(QUERY_HEADERS[0].title(), "The text of the query, percent-encoded, in place of the field.")
    fields = [_asked(field) for field in FIELDS]
    given = [*parameters, *fields, _NAMED_VALUES, header, *LIMITS, IF_NONE_MATCH, ON_BRANCH]
    return both(operation(name, QUERIES, summary, READ_ANSWERS, parameters=given, errors=QUERY_ERRORS))
