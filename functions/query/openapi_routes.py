"""What the query function's routes are, by path and method: what a new route adds is here."""

from __future__ import annotations

from collections.abc import Mapping

from alluvia.query.parameters import VERSION
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
    in_path,
    in_query,
    operation,
    told,
)

from .openapi_branches import BRANCH_OPERATIONS
from .openapi_fields import (
    ASYNC_HEADERS,
    IF_NONE_MATCH,
    JOB,
    LIMITS,
    LINKED,
    PUBLISHED,
    QUERIES,
    QUERY_ERRORS,
    READ_ANSWERS,
    READ_HEADERS,
    ROW_BODIES,
    SERVICE,
    TABLES,
    by_get,
    by_post,
)
from .publishing import AFTER, DEFAULT, LIMIT, PAGE_MAX, TYPE

_JOB_ID = in_path("job", "Its id.")
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
_PUBLISHED_ANSWERS = READ_ANSWERS | {
    200: content(
        "The rows or, without a form in the path, what there is to know of the query.",
        {**ROW_BODIES, JSON_TYPE: {"oneOf": [ROW_BODIES[JSON_TYPE], _PUBLISHED_OBJECT]}},
        READ_HEADERS,
    ),
    202: JOB,
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
    **BRANCH_OPERATIONS,
    "/q": {
        **by_get("read", "Run one query, or several reads"),
        "POST": by_post("query", "Run one query, or several statements as one transaction"),
    },
    "/q/{hash}": by_get(
        "read_by_hash",
        "Run a query that caches know by its path",
        in_path("hash", "The SHA-256 of the query's text in hexadecimal, and a form if you like: .csv."),
    ),
    "/sql": {"POST": by_post("sql", "Run statements that may write, as one transaction")},
    "/v1/queries": both(
        operation(
            "list_published",
            PUBLISHED,
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
            PUBLISHED,
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
                *LIMITS,
                *ASYNC_HEADERS,
                IF_NONE_MATCH,
            ],
            errors=QUERY_ERRORS,
        )
    )
    | {
        "PUT": operation(
            "publish",
            PUBLISHED,
            "Publish a query",
            {200: told("A new version, or none where nothing changes.", _PUBLISHED_FACTS, required=_PUBLISHED_KNOWN)}
            | {201: told("A new query.", _PUBLISHED_FACTS, required=_PUBLISHED_KNOWN)},
            parameters=[_QUERY_NAME, *_CONDITIONS],
            body=content("The query.", {JSON_TYPE: _PUBLISHED_BODY}),
            errors=(400, 403, 404, 409, 412, 415, 422, 500, 503),
        ),
        "DELETE": operation(
            "withdraw",
            PUBLISHED,
            "Withdraw a published query with all its versions",
            {200: told("It is withdrawn.", {"name": TEXT, "withdrawn": FLAG, "version": COUNT})},
            parameters=[_QUERY_NAME, *_CONDITIONS],
            errors=(400, 403, 404, 409, 412, 500, 503),
        ),
    },
    "/v1/jobs/{job}": {
        **both(operation("look_at_job", QUERIES, "Tell of a job", {200: JOB}, parameters=[_JOB_ID], errors=(404, 503))),
        "DELETE": operation("cancel_job", QUERIES, "Cancel a job", {200: JOB}, parameters=[_JOB_ID], errors=(404, 503)),
    },
    "/v1/jobs/{job}/{result}": both(
        operation(
            "fetch_result",
            QUERIES,
            "Fetch the result of a job",
            {200: content("It has no rows.", ROW_BODIES), 303: LINKED},
            parameters=[_JOB_ID, in_path("result", "result., and the form that was asked for: result.csv.")],
            errors=QUERY_ERRORS,
        )
    ),
    "/v1/tables": both(
        operation(
            "list_tables",
            TABLES,
            "List the tables that the caller may read",
            {200: told("Their names.", {"tables": _TABLE_LIST}, required=["tables"])},
            parameters=[ON_BRANCH],
            errors=(400, 503),
        )
    ),
    "/v1/tables/{table}": both(
        operation(
            "show_table",
            TABLES,
            "Tell of a table",
            {200: told("What there is to know without a query.", _TABLE_FACTS, required=[*_TABLE_FACTS])},
            parameters=[in_path("table", "Its name; events._rejects is the table of rejected events."), ON_BRANCH],
            errors=(400, 404, 422, 500, 503),
        )
    ),
    "/readyz": both(
        operation(
            "say_ready",
            SERVICE,
            "Tell whether the lake's storage answers",
            {status: told(text, {"status": TEXT}) for status, text in ((200, "It does."), (503, "It does not."))},
            public=True,
        )
    ),
    "/openapi.json": both(
        operation(
            "tell_openapi",
            SERVICE,
            "This document",
            {200: content("OpenAPI 3.1.", {JSON_TYPE: {"type": "object"}})},
            errors=(401, 403, 429, 503),
            public=True,
        )
    ),
}
