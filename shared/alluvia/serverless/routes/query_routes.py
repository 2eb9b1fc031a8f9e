"""The routes of the query function. Loaded at a cold start."""

from __future__ import annotations

from alluvia.access import rights
from alluvia.serverless.routes.fields import TEXT, RequestField, in_header, in_path
from alluvia.serverless.routes.query_fields import (
    AFTER,
    FIELDS,
    KEY,
    LIMIT,
    LIMIT_HEADERS,
    LINK_TOKEN,
    PARAM,
    QUERY_HEADER,
    TABLE,
    VERSION,
    WRITING_FIELDS,
)
from alluvia.serverless.routes.route import (
    ANY_CALLER,
    ANY_TABLE,
    LINKED,
    PUBLIC,
    PUBLISHES,
    Right,
    Route,
    RouteTable,
    of_lake,
)

HINT = ": to run the query, name a form, as in .json"
QUERIES_PATH, JOBS_PATH = "/v1/queries", "/v1/jobs/"
_NAMED_VALUES = RequestField(
    "values",
    {"type": "object", "patternProperties": {f"^{PARAM}": TEXT}, "additionalProperties": False},
    f"{PARAM}name=value is the text of a value of $name.",
)
_PUBLISHED_VALUES = RequestField(
    "values", {"type": "object", "additionalProperties": TEXT}, "Values of its parameters, by name."
)
_ASYNC_HEADERS = (
    in_header("Prefer", "respond-async: answer with a job, where jobs can run."),
    in_header("Idempotency-Key", "Of a job: the same key is the same job."),
)
IF_NONE_MATCH = in_header("If-None-Match", "Tags of the copies that the caller has.")
_IN_RANGES = (
    IF_NONE_MATCH,
    in_header("Range", "One range of bytes of the result: bytes=0-99. Several are answered with the whole result."),
    in_header("If-Range", "The tag of the result that the range is of. Of another result, the answer is the whole."),
)
_CONDITIONS = (
    in_header("If-Match", "Only if the published version has one of these tags. * stands for any version."),
    in_header("If-None-Match", "Only if it has none of these tags. * means that nothing is published."),
)
_ASKED = (*FIELDS, _NAMED_VALUES)
_POSTED = (*_ASYNC_HEADERS, *_ASKED, *LIMIT_HEADERS)
_READ = (
    *_ASKED,
    in_header(QUERY_HEADER, "The text of the query, percent-encoded, in place of the field."),
    *LIMIT_HEADERS,
    *_IN_RANGES,
)
ROWS, _DONE = (
    {200: "rows", 206: "range", 303: "link", 304: "unchanged"},
    {200: "rows of the last read", 202: "job", 303: "link"},
)
QUERY_ERRORS = (404, 405, 406, 410, 413, 422)
_READ_ERRORS = (*QUERY_ERRORS, 416)


def _change(what: str) -> Right:
    return of_lake(rights.ADMIN, what)


_ROUTES = (
    Route(
        "POST /q",
        "queries.query",
        ANY_TABLE,
        "Run one query, or several statements as one transaction",
        _DONE,
        (*QUERY_ERRORS, 409, 415),
        _POSTED,
        body="query",
        on_branch=True,
    ),
    Route(
        "GET,HEAD /q",
        "queries.read",
        ANY_TABLE,
        "Run one query, or several reads",
        ROWS,
        _READ_ERRORS,
        _READ,
        on_branch=True,
    ),
    Route(
        "GET,HEAD /q/{hash}",
        "queries.read_by_hash",
        ANY_TABLE,
        "Run a query that caches know by its path",
        ROWS,
        _READ_ERRORS,
        _READ,
        on_branch=True,
    ),
    Route(
        "POST /sql",
        "queries.query",
        ANY_TABLE,
        "Run statements that may write, as one transaction",
        _DONE,
        (*QUERY_ERRORS, 409, 415),
        _POSTED,
        body="query",
        on_branch=True,
        named="sql",
    ),
    Route(
        "GET,HEAD /v1/queries",
        "publishing.list_published",
        ANY_CALLER,
        "List the published queries that the caller may run or publish",
        {200: "published queries"},
        fields=(AFTER, LIMIT),
        only=HINT,
    ),
    Route(
        "GET,HEAD /v1/queries/{query}",
        "published.run_published",
        ANY_CALLER,
        "Run a published query, or describe it",
        {200: "rows or query", 202: "job", 206: "range", 303: "link", 304: "unchanged"},
        _READ_ERRORS,
        (
            in_path("query", "Its name and a format, top_pages.csv. Without a format, the answer describes the query."),
            VERSION,
            _PUBLISHED_VALUES,
            *WRITING_FIELDS,
            *LIMIT_HEADERS,
            *_ASYNC_HEADERS,
            *_IN_RANGES,
        ),
    ),
    Route(
        "GET,HEAD /v1/links/{query}",
        "links.open_link",
        LINKED,
        "Run a published query by a signed link, which needs no token in a header",
        {200: "rows", 206: "range", 303: "link", 304: "unchanged"},
        (400, 403, *_READ_ERRORS, 429, 500, 503),
        (
            in_path("query", "Its name and a format, top_pages.csv."),
            LINK_TOKEN,
            VERSION,
            _PUBLISHED_VALUES,
            *WRITING_FIELDS,
            *LIMIT_HEADERS,
            *_IN_RANGES,
        ),
    ),
    Route(
        "PUT /v1/queries/{query}",
        "publishing.publish",
        PUBLISHES,
        "Publish a query",
        {200: "published", 201: "new query"},
        (409, 412, 415, 422),
        _CONDITIONS,
        json_body="published query",
        only=HINT,
    ),
    Route(
        "DELETE /v1/queries/{query}",
        "publishing.withdraw",
        PUBLISHES,
        "Withdraw a published query with all its versions",
        {200: "withdrawn"},
        (409, 412),
        _CONDITIONS,
        only=HINT,
    ),
    Route("GET,HEAD /v1/jobs/{job}", "jobs.look_at_job", ANY_CALLER, "Describe a job", {200: "job"}),
    Route("DELETE /v1/jobs/{job}", "jobs.cancel_job", ANY_CALLER, "Cancel a job", {200: "job"}),
    Route(
        "GET,HEAD /v1/jobs/{job}/{result}",
        "jobs.fetch_result",
        ANY_CALLER,
        "Fetch the result of a job",
        {200: "no rows", 303: "link"},
        QUERY_ERRORS,
    ),
    Route(
        "GET,HEAD /v1/tables",
        "tables.list_tables",
        ANY_TABLE,
        "List the tables and views that the caller may read",
        {200: "tables"},
        on_branch=True,
    ),
    Route(
        "GET,HEAD /v1/tables/{table}",
        "tables.show_table",
        ANY_TABLE,
        "Describe a table",
        {200: "table"},
        (422,),
        (in_path("table", "Its name, or bronze.events in a schema. events._rejects is the table of rejected events."),),
        on_branch=True,
    ),
    Route(
        "GET,HEAD /v1/branches",
        "branches.list_branches",
        of_lake(rights.READ, "to list branches"),
        "List the branches, for callers who may read all of the lake",
        {200: "branches"},
        only="",
    ),
    Route(
        "POST /v1/branches",
        "branches.cut_branch",
        _change("to cut a branch"),
        "Cut a branch, which begins with the lake as it is now",
        {201: "branch"},
        (404, 410, 415),
        json_body="branch",
        only="",
    ),
    Route(
        "GET,HEAD /v1/branches/{branch}",
        "branches.show_branch",
        of_lake(rights.READ, "to look at a branch"),
        "Describe a branch",
        {200: "branch"},
        only="",
    ),
    Route(
        "DELETE /v1/branches/{branch}",
        "branches.discard_branch",
        _change("to discard a branch"),
        "Discard a branch, with everything that was written on it and not published",
        {200: "discarded"},
        only="",
    ),
    Route(
        "GET,HEAD /v1/branches/{branch}/diff",
        "branches.diff_branch",
        ANY_TABLE,
        "Show the changes of a branch, by table",
        {200: "differences"},
        (410, 422),
        (TABLE, KEY),
        only="",
    ),
    Route(
        "POST /v1/branches/{branch}/publish",
        "branches.publish_branch",
        _change("to publish a branch"),
        "Commit the changes of a branch to the lake, in one transaction",
        {200: "published branch"},
        (409, 410, 415, 422),
        json_body="publish",
        only="",
    ),
    Route(
        "GET,HEAD /readyz",
        "readiness.say_ready",
        PUBLIC,
        "Check whether the lake's storage answers",
        {200: "ready", 503: "not ready"},
    ),
    Route(
        "GET,HEAD /openapi.json",
        "openapi.show_openapi",
        PUBLIC,
        "This document",
        {200: "document"},
        (401, 403, 429, 503),
    ),
)
QUERY_ROUTES = RouteTable(_ROUTES)
