"""The routes of the ingest function, and the fields of uploads. Loaded at a cold start.

They are in the library because the function that answers with the OpenAPI document is another one.
"""

from __future__ import annotations

from alluvia.access.rights import APPEND
from alluvia.events.formats.segment_format import PATHS as CALL_PATHS
from alluvia.events.formats.segment_format import SHORT_PATHS
from alluvia.files.limits import FORMATS
from alluvia.serverless.routes.fields import AT_LEAST_ONE, COUNT, FLAG, TEXT, RequestField, in_header
from alluvia.serverless.routes.route import ANY_CALLER, PUBLIC, SENDER, Route, RouteTable, of_table

_FLAG_EXPECTED, _NUMBER_EXPECTED = "expected true or false, got {value}", "expected a whole number above 0, got {value}"
FORMAT = RequestField(
    "format",
    TEXT,
    "The file's format. Without it, the file's type, name or first bytes decide.",
    documented={"enum": [*FORMATS]},
)
SCHEMA = RequestField("schema", TEXT, "Types of columns: sku:string,price:decimal(9,2), or JSON. Others are inferred.")
KEY = RequestField("key", TEXT, "Identifies the upload, so that it is stored once. The same as Idempotency-Key.")
CREATE = RequestField("create", FLAG | {"default": True}, "Whether a missing table is created.", _FLAG_EXPECTED)
EVOLVE = RequestField(
    "evolve", FLAG | {"default": False}, "Whether columns that the table lacks are added to it.", _FLAG_EXPECTED
)
PARTS = RequestField(
    "parts",
    AT_LEAST_ONE,
    "Begin an upload of this many parts, without a body.",
    _NUMBER_EXPECTED,
    documented={"maximum": 1000},
)
BYTES = RequestField(
    "bytes", AT_LEAST_ONE, "Begin an upload of a file of this many bytes, without a body.", _NUMBER_EXPECTED
)
READING_FIELDS = (
    RequestField("delimiter", TEXT, "The delimiter of CSV. Without it, the first rows show it."),
    RequestField(
        "decimal_separator",
        TEXT,
        "A comma, for numbers such as 12,50.",
        documented={"enum": [".", ","], "default": "."},
    ),
    RequestField(
        "thousands_separator",
        TEXT,
        "A separator between thousands, such as a comma for 1,234.50.",
        documented={"enum": [",", ".", "'", " ", "_"]},
    ),
    RequestField("null", TEXT, "Texts in CSV that mean null: n/a,- or a JSON array."),
    RequestField("date_format", TEXT, "How dates are written, such as %d.%m.%Y. Without it, as ISO 8601 says."),
    RequestField("timestamp_format", TEXT, "How times are written, such as %d.%m.%Y %H:%M."),
    RequestField("encoding", TEXT, "Of text, such as windows-1252. Without it, the charset in Content-Type, or UTF-8."),
    RequestField(
        "skip", COUNT | {"default": 0}, "Lines of CSV before the header.", "expected a whole number, got {value}"
    ),
    RequestField("rename", TEXT, "Names in the table of columns of the file: old=new,other=name, or a JSON object."),
)
"""How the file is written. Their names are those of `files.reading_options`."""
UPLOAD_FIELDS = (FORMAT, SCHEMA, KEY, CREATE, EVOLVE, *READING_FIELDS, PARTS, BYTES)
FORM_FIELDS = (SCHEMA, FORMAT, KEY, CREATE, EVOLVE, *READING_FIELDS)
"""Fields that may also be in a form, besides the file (`data`)."""
CHECKED_FIELDS = (RequestField("sha256", TEXT), RequestField("bytes", {"type": "integer"}, documented=COUNT))
"""Checks of the whole file, in the request that completes an upload in parts."""

_CODING = in_header("Content-Encoding", "How the body is compressed: gzip, zstd or deflate.")
_KEY = in_header("Idempotency-Key", "Identifies events without an id, with their position, so that a retry adds none.")
_EVENT_ANSWERS = {200: "committed", 202: "queued", **dict.fromkeys((400, 413, 415), "refused")}
_LOG_ANSWERS = {200: "logs", **dict.fromkeys((400, 403, 404, 413, 415, 503), "logs refused")}
_UPLOAD_ERRORS = (409, 413, 422)
_CALL_ANSWERS = {200: "call", **dict.fromkeys((400, 401, 413, 415, 503), "call refused")}
_SOURCE_ERRORS = (400, 401, 413, 415, 500, 503)
_WEBHOOKS = "/v1/webhooks/"


def _call_routes(path: str) -> tuple[Route, Route]:
    call = SHORT_PATHS.get(path, path)
    return (
        Route(
            f"POST /v1/{path}",
            "webhooks.take_calls",
            SENDER,
            f"Take a {call} call of Segment's API, for the source of kind segment that has its write key",
            _CALL_ANSWERS,
            body="call",
            named=f"segment_{path}",
        ),
        Route(
            f"OPTIONS /v1/{path}",
            "webhooks.allow_calls",
            SENDER,
            "Answer a browser before it calls",
            {204: "allowed"},
            (401,),
            named=f"segment_{path}_preflight",
        ),
    )


_ROUTES = (
    Route(
        "POST /v1/events/{table}",
        "events.post_events",
        of_table(APPEND),
        "Store events, each once",
        _EVENT_ANSWERS,
        fields=(_CODING, _KEY),
        body="events",
        on_branch=True,
    ),
    Route(
        "POST /v1/logs",
        "events.post_logs",
        ANY_CALLER,
        "Store log records of OpenTelemetry (OTLP/HTTP)",
        _LOG_ANSWERS,
        fields=(_CODING,),
        body="logs",
        on_branch=True,
    ),
    Route(
        "POST /v1/upload/{table}",
        "uploads.take_file",
        of_table(APPEND),
        "Store a file of rows, all or none of them",
        {200: "stored", 201: "upload", 400: "refused"},
        (*_UPLOAD_ERRORS, 415),
        (*UPLOAD_FIELDS, _CODING, _KEY),
        body="file",
        on_branch=True,
        named="upload",
    ),
    Route(
        "GET /v1/upload/{table}/{upload}",
        "upload_parts.show_upload",
        of_table(APPEND),
        "Show which parts of a file have come, and the state of the upload",
        {200: "upload state"},
        on_branch=True,
    ),
    Route(
        "POST /v1/upload/{table}/{upload}/complete",
        "upload_parts.complete_upload",
        of_table(APPEND),
        "Store a file whose parts have come, once",
        {200: "stored", 202: "running", 400: "refused"},
        _UPLOAD_ERRORS,
        body="whole file",
        on_branch=True,
    ),
    Route(
        "PUT /v1/upload/{table}/{upload}/parts/{part}",
        "upload_parts.put_part",
        SENDER,
        "Take a part of a file, at a path that a server without S3 has signed",
        {200: "part"},
        (400, 403, 404, 413, 503),
        body="part",
    ),
    *(route for path in CALL_PATHS for route in _call_routes(path)),
    Route(
        "POST /v1/webhooks/{source}",
        "webhooks.post_webhook",
        SENDER,
        "Store the events of a source, after its signature was verified",
        {200: "delivery", 202: "queued"},
        _SOURCE_ERRORS,
        body="delivery",
    ),
    Route(
        "GET /v1/webhooks/{source}",
        "webhooks.shake_hands",
        SENDER,
        "Answer a sender that checks the address",
        {200: "challenge"},
        _SOURCE_ERRORS,
        (RequestField("challenge", TEXT, "The text to answer with. The name of this field depends on the sender."),),
    ),
    Route(
        "OPTIONS /v1/webhooks/{source}",
        "webhooks.webhook_preflight",
        SENDER,
        "Answer a browser before it posts",
        {204: "allowed"},
        _SOURCE_ERRORS,
    ),
    Route("GET,HEAD /healthz", "handler.say_healthy", PUBLIC, "Check whether the process runs", {200: "healthy"}),
)
INGEST_ROUTES = RouteTable(_ROUTES)


def is_of_source(path: str) -> bool:
    """Whether a path is one whose source says itself which sites' pages may use it."""
    return path.startswith(_WEBHOOKS) or path.removeprefix("/v1/") in CALL_PATHS
