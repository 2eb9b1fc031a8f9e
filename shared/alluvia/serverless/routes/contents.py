"""The contents of bodies and answers, by the names that routes give them. Loaded for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alluvia.operations.branches.branch_changes import CHANGED, CREATED, DROPPED, REPLACED
from alluvia.operations.branches.branch_publish import CONFLICT, FAST_FORWARD, REBASED
from alluvia.operations.results import jobs
from alluvia.query import formats
from alluvia.serverless.routes import query_fields
from alluvia.serverless.routes.bodies import JSON_BODIES, PARAMETER
from alluvia.serverless.routes.fields import AT_LEAST_ONE, COUNT, FLAG, TEXT, Json, RequestField, in_path, schema_of
from alluvia.serverless.routes.ingest_routes import CHECKED_FIELDS, FORM_FIELDS
from alluvia.serverless.routes.query_fields import FORM_TYPE, JSON_TYPE, OTHER_NAMES, PARAM, QUERY, TEXT_TYPES

NUMBER: Json = {"type": "number"}
NAMES: Json = {"type": ["array", "null"], "items": TEXT}
MOMENT: Json = {"type": "string", "format": "date-time"}
MOMENT_OR_NULL: Json = {"type": ["string", "null"], "format": "date-time"}
TEXT_OR_NULL: Json = {"type": ["string", "null"]}
NUMBER_OR_NULL: Json = {"type": ["integer", "null"]}
COUNT_OR_NULL: Json = {"type": ["integer", "null"], "minimum": 0}
BINARY: Json = {"type": "string", "format": "binary"}
OBJECT: Json = {"type": "object"}
ANYTHING: Mapping[str, Json] = {"*/*": {}}


def content(description: str, bodies: Mapping[str, Json], headers: Mapping[str, Json] | None = None) -> Json:
    """Return a body, of a request or an answer: its schema by media type."""
    described: Json = {"description": description, "content": {kind: {"schema": each} for kind, each in bodies.items()}}
    return described if headers is None else described | {"headers": {**headers}}


def told(description: str, properties: Mapping[str, Json], required: Sequence[str] = ()) -> Json:
    """Return an answer that is a JSON object."""
    return content(description, {JSON_TYPE: _object(properties, required)})


def _object(properties: Mapping[str, Json], required: Sequence[str] = ()) -> Json:
    return OBJECT | {"properties": {**properties}} | ({"required": [*required]} if required else {})


def _list_of(properties: Mapping[str, Json], required: Sequence[str] = ()) -> Json:
    return {"type": "array", "items": _object(properties, required)}


def _of_fields(fields: Sequence[RequestField]) -> Json:
    """Return the schema of a JSON object that has some fields and no others."""
    required = [each.name for each in fields if each.missing is not None]
    return _object({each.name: schema_of(each) for each in fields}, required) | {"additionalProperties": False}


def _body(description: str, bodies: Mapping[str, Json]) -> Json:
    return content(description, bodies) | {"required": True}


# Queries

_FIELDS: dict[str, Json] = {each.name: schema_of(each) for each in query_fields.FIELDS}
_BODY_FIELDS: Json = OBJECT | {
    "properties": {
        **_FIELDS,
        **{other: _FIELDS[name] | {"description": f"The same as {name}."} for other, name in OTHER_NAMES.items()},
    },
    "anyOf": [
        {"required": [name]}
        for name in (QUERY.name, *(other for other in OTHER_NAMES if OTHER_NAMES[other] == QUERY.name))
    ],
}
_HEADERS: dict[str, Json] = {
    query_fields.ROWS: {"schema": COUNT, "description": "Rows of the answer."},
    query_fields.VERSIONS: {
        "schema": TEXT,
        "description": "The tables that were read with their versions: events=7, users=3.",
    },
    query_fields.FILES_READ: {"schema": COUNT, "description": "Data files that were left after pruning."},
    query_fields.BYTES_READ: {"schema": COUNT, "description": "The bytes of these files."},
    query_fields.ELAPSED: {"schema": COUNT, "description": "How long it took, in milliseconds."},
    query_fields.REQUESTS: {"schema": COUNT, "description": "Requests that were sent to the lake's storage on S3."},
    query_fields.DOLLARS: {"schema": NUMBER, "description": "The price of these and of the function's memory, in USD."},
}
_READ_HEADERS: dict[str, Json] = {
    **_HEADERS,
    query_fields.CACHE: {
        "schema": TEXT | {"enum": [*query_fields.CACHE_STATES]},
        "description": "Whether the result was kept.",
    },
    "ETag": {"schema": TEXT, "description": "Stands for everything that the answer depends on."},
    "Cache-Control": {"schema": TEXT},
    "Accept-Ranges": {"schema": TEXT, "description": "bytes, for a result that can be read in ranges."},
}
_ROWS: dict[str, Json] = {
    form.content_type.partition(";")[0]: {"type": "array", "items": OBJECT} if form is formats.JSON else TEXT
    for form in formats.FORMATS
}
_JOB: dict[str, Json] = {
    "id": TEXT,
    "state": TEXT | {"enum": [jobs.QUEUED, jobs.RUNNING, jobs.DONE, jobs.FAILED, jobs.CANCELLED, query_fields.EXPIRED]},
    **dict.fromkeys(("asked", "started", "ended"), MOMENT_OR_NULL),
    **dict.fromkeys(query_fields.JOB_NUMBERS, NUMBER),
    **dict.fromkeys(("versions", "result", "error"), TEXT),
    "status": COUNT,
}
_LINK: dict[str, Json] = {"result": TEXT, "bytes": COUNT, "expires": MOMENT}
_VERSION: dict[str, Json] = {
    "name": TEXT,
    "version": COUNT,
    "path": TEXT | {"description": "Of its rows as JSON. Other formats have other suffixes."},
    "parameters": OBJECT | {"additionalProperties": PARAMETER},
    "published": MOMENT,
    "query": TEXT | {"description": "For callers who may read all its tables."},
    "publisher": TEXT_OR_NULL,
}
_VERSION_KNOWN = ("name", "version", "path", "parameters", "published")
_VERSION_OBJECT = _object(_VERSION, _VERSION_KNOWN)
_PAGE: dict[str, Json] = {"queries": {"type": "array", "items": _VERSION_OBJECT}, "next": TEXT_OR_NULL}

# Tables and branches

_TABLE: dict[str, Json] = {
    "name": TEXT,
    "version": COUNT,
    "versions": _object({"oldest": COUNT, "newest": COUNT}),
    "committed": MOMENT,
    "comment": TEXT_OR_NULL,
    "columns": _list_of({"name": TEXT, "type": TEXT, "nullable": FLAG, "comment": TEXT}),
    **dict.fromkeys(("partition_by", "sort_by", "cluster_by"), NAMES),
    **dict.fromkeys(("files", "bytes", "rows", "rejects", "unreadable_times", "future_times"), NUMBER_OR_NULL),
}
_BRANCH: dict[str, Json] = {
    "name": TEXT,
    "moment": MOMENT | {"description": "The branch begins with the lake at this moment."},
    "created": MOMENT,
    "expires": MOMENT_OR_NULL,
    "expired": FLAG,
}
_CHANGE: Json = TEXT | {"enum": [CREATED, DROPPED, REPLACED, CHANGED]}
_TYPES: Json = {"type": ["object", "null"], "additionalProperties": TEXT, "description": "Types by name."}
_PAIRS: Json = {
    "type": ["object", "null"],
    "additionalProperties": {"type": "array", "items": TEXT_OR_NULL, "minItems": 2, "maxItems": 2},
    "description": "The value before and the value now, by name.",
}
_DIFFERENCE: dict[str, Json] = {
    "table": TEXT,
    "change": _CHANGE,
    "base_version": COUNT_OR_NULL | {"description": "The lake's version that the branch began with."},
    "version": COUNT | {"description": "The branch's version."},
    **dict.fromkeys(("rows_added", "rows_removed"), COUNT_OR_NULL),
    "rows_changed": COUNT_OR_NULL | {"description": "Null without columns by which rows are found again."},
    **dict.fromkeys(("files_added", "files_removed"), COUNT_OR_NULL),
    **dict.fromkeys(("columns_added", "columns_removed"), _TYPES),
    **dict.fromkeys(("columns_changed", "properties"), _PAIRS),
}
_TABLE_PUBLISHED: dict[str, Json] = {
    "table": TEXT,
    "change": _CHANGE,
    "how": TEXT | {"enum": [FAST_FORWARD, REBASED, CONFLICT]},
    "version": COUNT_OR_NULL,
    "files_added": COUNT,
    "files_removed": COUNT,
    "conflict": TEXT_OR_NULL | {"description": "In a dry run: the reason why it cannot be published."},
}

# Events and files

_EVENT: Json = OBJECT | {"description": "Any fields. `event_id` identifies it, `ts` is its time."}
_OTLP: dict[str, Json] = {JSON_TYPE: OBJECT, "application/x-protobuf": BINARY}
_QUEUED: dict[str, Json] = {
    "accepted": COUNT,
    "rejected": COUNT,
    "errors": _list_of({"position": COUNT, "reason": TEXT}),
    "errors_left_out": COUNT,
}
_ODD_TIMES: Json = _object({"events": COUNT, "field": TEXT, "value": TEXT}, ["events", "field", "value"]) | {
    "description": "How many events have such a time, and the field and the text of the first; absent if none has."
}
_COMMITTED = (
    _QUEUED
    | dict.fromkeys(("stored", "duplicates", "conflicting"), COUNT)
    | {"version": COUNT_OR_NULL}
    | dict.fromkeys(("unreadable_times", "future_times"), _ODD_TIMES)
)
_REFUSED = _COMMITTED | {"error": TEXT}
_CREATED: Json = OBJECT | {"description": "Types of the columns that were created.", "additionalProperties": TEXT}
_UPLOADED = _COMMITTED | {"table": TEXT, "rows": COUNT, "columns": _CREATED, "notes": {"type": "array", "items": TEXT}}
_PART: dict[str, Json] = {"part": AT_LEAST_ONE, "bytes": COUNT}
_PARTED: dict[str, Json] = {"id": TEXT, "table": TEXT, "expires": MOMENT, "parts": _list_of({**_PART, "url": TEXT})}
_STATE: Json = TEXT | {"enum": ["open", "running", "done", "failed"]}
_FORM_FILE = _object({"data": BINARY} | {each.name: schema_of(each) for each in FORM_FIELDS}, ["data"])

PATH_FIELDS = {
    "branch": in_path("branch", "The name of the branch."),
    "hash": in_path("hash", "The SHA-256 of the query's text in hexadecimal and, if you like, a format: .csv."),
    "job": in_path("job", "The id of the job."),
    "part": in_path("part", "The number of the part.", AT_LEAST_ONE),
    "query": in_path("query", "The name of the published query."),
    "result": in_path("result", "result. and the format of the request: result.csv."),
    "source": in_path("source", "The name of a webhook source of the lake."),
    "table": in_path("table", "The table that takes the rows: events, or bronze.events in a schema."),
    "upload": in_path("upload", "The id of an upload in parts."),
}
"""Names in paths, where a route does not describe them itself."""
BODIES: Mapping[str, Json] = {
    **{
        name: content(body.description, {JSON_TYPE: _of_fields(body.fields)}) | {"required": body.required}
        for name, body in JSON_BODIES.items()
    },
    "query": content(
        "The query: as JSON, as its text, or as a form. The fields may also be in the query string.",
        {
            JSON_TYPE: _BODY_FIELDS | {"additionalProperties": False},
            **dict.fromkeys(TEXT_TYPES, TEXT),
            FORM_TYPE: _BODY_FIELDS | {"patternProperties": {f"^{PARAM}": TEXT}, "additionalProperties": False},
        },
    ),
    "events": _body(
        "One event, or several.",
        {
            JSON_TYPE: {"oneOf": [_EVENT, {"type": "array", "items": _EVENT}]},
            "application/x-ndjson": TEXT | {"description": "One event per line."},
            "application/cloudevents+json": OBJECT,
            "application/cloudevents-batch+json": {"type": "array", "items": OBJECT},
            "text/csv": TEXT,
            "text/tab-separated-values": TEXT,
            FORM_TYPE: OBJECT | {"additionalProperties": TEXT},
        },
    ),
    "logs": _body("An ExportLogsServiceRequest.", _OTLP),
    "file": _body(
        "The file, or a form with it.",
        {
            **dict.fromkeys(("text/csv", "text/tab-separated-values", "application/x-ndjson"), TEXT),
            JSON_TYPE: {"type": "array", "items": OBJECT},
            "application/vnd.apache.parquet": BINARY,
            "multipart/form-data": _FORM_FILE,
        },
    ),
    "whole file": content(
        "The size and the hash that the whole file must have.", {JSON_TYPE: _of_fields(CHECKED_FIELDS)}
    ),
    "part": _body("The part's bytes.", ANYTHING),
    "call": content("A call of Segment's API.", {JSON_TYPE: OBJECT}),
    "delivery": content("A delivery of the source's sender.", ANYTHING),
}
ANSWERS: Mapping[str, Json] = {
    "rows": content("The rows.", _ROWS, _READ_HEADERS),
    "rows or query": content(
        "The rows or, without a format in the path, the description of the query.",
        {**_ROWS, JSON_TYPE: {"oneOf": [_ROWS[JSON_TYPE], _VERSION_OBJECT]}},
        _READ_HEADERS,
    ),
    "rows of the last read": content("The rows of the last read.", _ROWS, _HEADERS),
    "no rows": content("It has no rows.", _ROWS),
    "range": content("Bytes of the rows.", ANYTHING, _READ_HEADERS | {"Content-Range": {"schema": TEXT}}),
    "unchanged": {"description": "The caller's copy is current.", "headers": {"ETag": _READ_HEADERS["ETag"]}},
    "link": told(
        "The result is too large for an answer. It is at Location, which needs no token and is valid for an hour.",
        _LINK,
        [*_LINK],
    ),
    "job": told("The state of the job.", _JOB, ["id", "state", "asked", "started", "ended"]),
    "published queries": told("A page of them, ordered by name.", _PAGE, [*_PAGE]),
    "published": told("The new version, or the current one if nothing changed.", _VERSION, _VERSION_KNOWN),
    "new query": told("The new query.", _VERSION, _VERSION_KNOWN),
    "withdrawn": told("The query was withdrawn.", {"name": TEXT, "withdrawn": FLAG, "version": COUNT}),
    "tables": told("Their names.", dict.fromkeys(("tables", "views"), _list_of({"name": TEXT})), ["tables", "views"]),
    "table": told("The table's columns, versions and sizes.", _TABLE, [*_TABLE]),
    "branches": told("Branches, ordered by name.", {"branches": _list_of(_BRANCH, [*_BRANCH])}, ["branches"]),
    "branch": told("The branch.", _BRANCH, [*_BRANCH]),
    "discarded": told("The branch was discarded.", {"name": TEXT, "discarded": FLAG}, ["name", "discarded"]),
    "differences": told(
        "The tables that the branch has changed and the caller may read. Most is null for a table seen in part.",
        {"name": TEXT, "tables": _list_of(_DIFFERENCE, [*_DIFFERENCE])},
        ["name", "tables"],
    ),
    "published branch": told(
        "The change of each table, which a dry run does not make.",
        {
            "name": TEXT,
            "tables": _list_of(_TABLE_PUBLISHED, [*_TABLE_PUBLISHED]),
            "rollups": {"type": "array", "items": TEXT, "description": "They follow their sources."},
            "dry_run": FLAG,
        },
        ["name", "tables", "rollups", "dry_run"],
    ),
    "ready": told("The storage answers.", {"status": TEXT}),
    "not ready": told("The storage does not answer.", {"status": TEXT}),
    "healthy": told("The process runs.", {"status": TEXT}),
    "document": content("OpenAPI 3.1.", {JSON_TYPE: OBJECT}),
    "committed": told("Committed.", _COMMITTED, ["accepted", "rejected"]),
    "queued": told("Queued. Types and conflicts are checked later.", _QUEUED, ["accepted", "rejected"]),
    "refused": told("Every event was rejected, or the request is wrong, as `error` says.", _REFUSED),
    "logs": content("Taken. With a partial success, the rejects are counted.", _OTLP),
    "logs refused": content("Refused, as google.rpc.Status says.", _OTLP),
    "stored": told("Stored. For a table of events, the outcome of each.", _UPLOADED),
    "upload": told(
        "An upload in parts has begun: PUT each part at its URL, then complete it.",
        _PARTED | {"part_bytes": AT_LEAST_ONE, "complete": TEXT},
    ),
    "upload state": told("Its state, with fresh URLs.", _PARTED | {"state": _STATE, "answer": OBJECT}),
    "running": told("Another request stores it.", {"state": _STATE, "error": TEXT}),
    "part": told("The part was kept.", _PART),
    "call": told("Taken.", {"success": FLAG}),
    "call refused": content("Refused.", {JSON_TYPE: OBJECT}),
    "delivery": content("Stored, or kept as rejects. Some senders get an answer in their own format.", ANYTHING),
    "challenge": content("The challenge, in the form that the sender expects.", ANYTHING),
    "allowed": {"description": "Yes, without a body."},
}
"""Of answers that are not errors of the function, or errors in a form of their own."""
