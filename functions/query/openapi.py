"""`GET /openapi.json`: a document of all routes, and of the published queries that the caller may run.

The routes are public. A caller without a token sees no published query. Loaded when it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from alluvia.operations.jobs import CANCELLED, DONE, FAILED, QUEUED, RUNNING
from alluvia.query.declared import VERSION, Declared
from alluvia.query.formats import FORMATS, JSON
from alluvia.query.published import PublishedQuery, list_published
from alluvia.serverless.http import Request, Response, Unauthenticated
from alluvia.serverless.http import answer as json_answer
from alluvia.serverless.openapi import (
    AT_LEAST_ONE,
    COUNT,
    FLAG,
    JSON_TYPE,
    TEXT,
    Json,
    both,
    content,
    document,
    in_header,
    in_path,
    in_query,
    operation,
    told,
)
from alluvia.serverless.openapi_ingest import INGEST_OPERATIONS
from alluvia.version import __version__

from .answering import BYTES_READ, ELAPSED, FILES_READ, NO_STORE, ROWS, VERSIONS, Caller
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
from .published import runnable
from .publishing import AFTER, DEFAULT, LIMIT, PAGE, PAGE_MAX, TYPE
from .reading import CACHE, HIT, MISS, OFF

PUBLISHED_MAX = 1000
"""The document has no more published queries than that."""
_QUERIES, _PUBLISHED, _TABLES, _SERVICE = "Queries", "Published queries", "Tables", "Service"
_FORMAT_NAMES: Json = {"type": "string", "enum": [each.name.lower() for each in FORMATS]}
_FIELD_SCHEMAS: Mapping[str, Json] = {
    QUERY: TEXT | {"description": "The text of one SELECT, or of several statements."},
    PARAMETERS: {
        "oneOf": [{"type": "array"}, {"type": "object"}],
        "description": "Values of ?, in a list, or of $name, in an object.",
    },
    FORMAT: _FORMAT_NAMES | {"description": "The form of the answer; without it, Accept decides."},
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
_READ_HEADERS: Mapping[str, Json] = {
    **_HEADERS,
    CACHE: {"schema": {"type": "string", "enum": [HIT, MISS, OFF]}, "description": "Whether the result was kept."},
    "ETag": {"schema": TEXT, "description": "Stands for all that the answer depends on."},
    "Cache-Control": {"schema": TEXT},
}
_ROWS: Mapping[str, Json] = {
    form.content_type.partition(";")[0]: {"type": "array", "items": {"type": "object"}} if form is JSON else TEXT
    for form in FORMATS
}
_LINKED: Json = told(
    "The result is too large for an answer. It is at Location, which needs no token and is valid for an hour.",
    {"result": TEXT, "bytes": COUNT, "expires": {"type": "string", "format": "date-time"}},
    required=["result", "bytes", "expires"],
)
_JOB: Json = told(
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
_ASYNC_HEADERS = [
    in_header("Prefer", "respond-async: answer with a job, where there are any."),
    in_header("Idempotency-Key", "Of a job: the same key is the same job."),
]
_JOB_ID = in_path("job", "Its id.")
_QUERY_ERRORS = (400, 403, 404, 405, 406, 410, 413, 422, 500, 503)
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
_LIMITS = [
    in_header(header, str(_FIELD_SCHEMAS[name]["description"]), AT_LEAST_ONE) for name, header in LIMIT_HEADERS.items()
]
_IF_NONE_MATCH = in_header("If-None-Match", "Tags of answers that the caller has.")
_READ_ANSWERS = {
    200: content("The rows.", _ROWS, _READ_HEADERS),
    303: _LINKED,
    304: {"description": "The caller has the answer.", "headers": {"ETag": _READ_HEADERS["ETag"]}},
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


def _posting(name: str, summary: str) -> Json:
    bodies: dict[str, Json] = {JSON_TYPE: _BODY_FIELDS | {"additionalProperties": False}}
    bodies |= dict.fromkeys(TEXT_TYPES, TEXT)
    bodies[FORM_TYPE] = _BODY_FIELDS | {"patternProperties": {f"^{PARAM}": TEXT}, "additionalProperties": False}
    body = content("The query: as JSON, as its text, or as a form. The fields may also be in the query string.", bodies)
    return operation(
        name,
        _QUERIES,
        summary,
        {200: content("The rows of the last read.", _ROWS, _HEADERS), 202: _JOB, 303: _LINKED},
        parameters=[*_ASYNC_HEADERS, *(_asked(field) for field in FIELDS), _NAMED_VALUES, *_LIMITS],
        body=body,
        errors=(*_QUERY_ERRORS, 409, 415),
    )


def _reading(name: str, summary: str, *parameters: Json) -> dict[str, Json]:
    header = in_header(QUERY_HEADERS[0].title(), "The text of the query, percent-encoded, in place of the field.")
    given = [*parameters, *(_asked(field) for field in FIELDS), _NAMED_VALUES, header, *_LIMITS, _IF_NONE_MATCH]
    return both(operation(name, _QUERIES, summary, _READ_ANSWERS, parameters=given, errors=_QUERY_ERRORS))


_PARAMETER: Json = {"type": "object", "properties": {TYPE: TEXT, DEFAULT: {}}, "required": [TYPE]}
_PUBLISHED_BODY: Json = {
    "type": "object",
    "properties": {
        "query": TEXT | {"description": "The text of one SELECT."},
        "parameters": {
            "type": "object",
            "additionalProperties": {"oneOf": [TEXT, _PARAMETER]},
            "description": "The types of $name by name: long, long=10 with a default, or an object.",
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}
_PUBLISHED_KNOWN = ("name", "version", "parameters", "published")
_PUBLISHED_FACTS: Mapping[str, Json] = {
    "name": TEXT,
    "version": COUNT,
    "parameters": {"type": "object", "additionalProperties": _PARAMETER},
    "published": {"type": "string", "format": "date-time"},
    "query": TEXT | {"description": "For callers who may read all its tables."},
    "publisher": {"type": ["string", "null"]},
}
_PUBLISHED_OBJECT: Json = {"type": "object", "properties": _PUBLISHED_FACTS, "required": [*_PUBLISHED_KNOWN]}
_PUBLISHED_PAGE: Mapping[str, Json] = {
    "queries": {"type": "array", "items": _PUBLISHED_OBJECT},
    "next": {"type": ["string", "null"]},
}
_PUBLISHED_ANSWERS = _READ_ANSWERS | {
    200: content(
        "The rows or, without a form in the path, what there is to know of the query.",
        {**_ROWS, JSON_TYPE: {"oneOf": [_ROWS[JSON_TYPE], _PUBLISHED_OBJECT]}},
        _READ_HEADERS,
    ),
    202: _JOB,
}
_QUERY_NAME = in_path("query", "Its name.")
_CONDITIONS = [
    in_header("If-Match", "Only if the version that is published has one of these tags; * stands for any."),
    in_header("If-None-Match", "Only if it has none of them; * means that nothing is published."),
]
_TABLE_FACTS: Mapping[str, Json] = {
    "name": TEXT,
    "version": COUNT,
    "versions": {"type": "object", "properties": {"oldest": COUNT, "newest": COUNT}},
    "committed": {"type": "string", "format": "date-time"},
    "columns": {
        "type": "array",
        "items": {"type": "object", "properties": {"name": TEXT, "type": TEXT, "nullable": FLAG}},
    },
    **{name: {"type": ["array", "null"], "items": TEXT} for name in ("partition_by", "sort_by", "cluster_by")},
    **{name: {"type": ["integer", "null"]} for name in ("files", "bytes", "rows", "rejects")},
}
_TABLE_LIST: Json = {"type": "array", "items": {"type": "object", "properties": {"name": TEXT}}}
QUERY_OPERATIONS: Mapping[str, Mapping[str, Json]] = {
    "/q": {
        **_reading("read", "Run one query, or several reads"),
        "POST": _posting("query", "Run one query, or several statements as one transaction"),
    },
    "/q/{hash}": _reading(
        "read_by_hash",
        "Run a query that caches know by its path",
        in_path("hash", "The SHA-256 of the query's text in hexadecimal, and a form if you like: .csv."),
    ),
    "/sql": {"POST": _posting("sql", "Run statements that may write, as one transaction")},
    "/v1/queries": both(
        operation(
            "list_published",
            _PUBLISHED,
            "List the published queries that the caller may run or publish",
            {200: told("A page of them, in the order of their names.", _PUBLISHED_PAGE, required=[*_PUBLISHED_PAGE])},
            parameters=[
                in_query(AFTER, "Names that come after this one: `next` of the page before."),
                in_query(LIMIT, "How many names are looked at.", AT_LEAST_ONE | {"maximum": PAGE_MAX}),
            ],
            errors=(400, 500, 503),
        )
    ),
    "/v1/queries/{query}": both(
        operation(
            "run_published",
            _PUBLISHED,
            "Run a published query, or tell of it",
            _PUBLISHED_ANSWERS,
            parameters=[
                in_path("query", "Its name and a form, top_pages.csv; without a form, the answer tells of the query."),
                in_query(VERSION, "An earlier version of it.", COUNT),
                {
                    "name": "values",
                    "in": "query",
                    "style": "form",
                    "explode": True,
                    "description": "Values of its parameters, by name.",
                    "schema": {"type": "object", "additionalProperties": TEXT},
                },
                *_LIMITS,
                *_ASYNC_HEADERS,
                _IF_NONE_MATCH,
            ],
            errors=_QUERY_ERRORS,
        )
    )
    | {
        "PUT": operation(
            "publish",
            _PUBLISHED,
            "Publish a query",
            {200: told("A new version, or none where nothing changes.", _PUBLISHED_FACTS, required=_PUBLISHED_KNOWN)}
            | {201: told("A new query.", _PUBLISHED_FACTS, required=_PUBLISHED_KNOWN)},
            parameters=[_QUERY_NAME, *_CONDITIONS],
            body=content("The query.", {JSON_TYPE: _PUBLISHED_BODY}),
            errors=(400, 403, 404, 409, 412, 415, 422, 500, 503),
        ),
        "DELETE": operation(
            "withdraw",
            _PUBLISHED,
            "Withdraw a published query with all its versions",
            {200: told("It is withdrawn.", {"name": TEXT, "withdrawn": FLAG, "version": COUNT})},
            parameters=[_QUERY_NAME, *_CONDITIONS],
            errors=(400, 403, 404, 409, 412, 500, 503),
        ),
    },
    "/v1/jobs/{job}": {
        **both(
            operation("look_at_job", _QUERIES, "Tell of a job", {200: _JOB}, parameters=[_JOB_ID], errors=(404, 503))
        ),
        "DELETE": operation(
            "cancel_job", _QUERIES, "Cancel a job", {200: _JOB}, parameters=[_JOB_ID], errors=(404, 503)
        ),
    },
    "/v1/jobs/{job}/{result}": both(
        operation(
            "fetch_result",
            _QUERIES,
            "Fetch the result of a job",
            {200: content("It has no rows.", _ROWS), 303: _LINKED},
            parameters=[_JOB_ID, in_path("result", "result., and the form that was asked for: result.csv.")],
            errors=_QUERY_ERRORS,
        )
    ),
    "/v1/tables": both(
        operation(
            "list_tables",
            _TABLES,
            "List the tables that the caller may read",
            {200: told("Their names.", {"tables": _TABLE_LIST}, required=["tables"])},
            errors=(503,),
        )
    ),
    "/v1/tables/{table}": both(
        operation(
            "show_table",
            _TABLES,
            "Tell of a table",
            {200: told("What there is to know without a query.", _TABLE_FACTS, required=[*_TABLE_FACTS])},
            parameters=[in_path("table", "Its name; events._rejects is the table of rejected events.")],
            errors=(400, 404, 422, 500, 503),
        )
    ),
    "/readyz": both(
        operation(
            "say_ready",
            _SERVICE,
            "Tell whether the lake's storage answers",
            {status: told(text, {"status": TEXT}) for status, text in ((200, "It does."), (503, "It does not."))},
            public=True,
        )
    ),
    "/openapi.json": both(
        operation(
            "tell_openapi",
            _SERVICE,
            "This document",
            {200: content("OpenAPI 3.1.", {JSON_TYPE: {"type": "object"}})},
            errors=(401, 403, 429, 503),
            public=True,
        )
    ),
}


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
        scheme=authorization.mode if authorization.mode != "iam" or in_lambda else None,
        all_ask=in_lambda and authorization.mode != "tokens",
    )
    return json_answer(200, found, **{"Cache-Control": NO_STORE, "Vary": "Authorization"})


def published_operations(queries: Iterable[PublishedQuery]) -> dict[str, Mapping[str, Json]]:
    """Return an operation for each published query, with its parameters."""
    found: dict[str, Mapping[str, Json]] = {}
    for each in queries:
        form = in_path("format", "The form of the answer.", _FORMAT_NAMES)
        parameters = [form, *map(_declared, each.parameters), *_LIMITS, _IF_NONE_MATCH]
        name, summary = f"published_{each.name}", f"Run the published query {each.name}, version {each.version}"
        run = operation(name, _PUBLISHED, summary, _READ_ANSWERS, parameters=parameters, errors=_QUERY_ERRORS)
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
