"""The operations of ingestion, for the OpenAPI document. Pure.

The function that answers with the document is not the one that takes events, so they are here, where both can be seen.
"""

from __future__ import annotations

from collections.abc import Mapping

from alluvia.formats.segment_format import PATHS as CALL_PATHS
from alluvia.serverless.openapi import (
    COUNT,
    FLAG,
    JSON_TYPE,
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
from alluvia.uploads.rows import FORMATS

_TAG, _WEBHOOKS = "Events", "Webhooks"
_EVENT: Json = {"type": "object", "description": "Any fields. `event_id` identifies it, `ts` is its time."}
_EVENTS: Mapping[str, Json] = {
    JSON_TYPE: {"oneOf": [_EVENT, {"type": "array", "items": _EVENT}]},
    "application/x-ndjson": {"type": "string", "description": "One event per line."},
    "application/cloudevents+json": {"type": "object"},
    "application/cloudevents-batch+json": {"type": "array", "items": {"type": "object"}},
    "text/csv": TEXT,
    "text/tab-separated-values": TEXT,
    "application/x-www-form-urlencoded": {"type": "object", "additionalProperties": TEXT},
}
_REJECT: Json = {"type": "object", "properties": {"position": COUNT, "reason": TEXT}}
_COUNTED: Mapping[str, Json] = {
    "accepted": COUNT,
    "rejected": COUNT,
    "errors": {"type": "array", "items": _REJECT},
    "errors_left_out": COUNT,
}
_COMMITTED: Mapping[str, Json] = {
    "stored": COUNT,
    "duplicates": COUNT,
    "conflicting": COUNT,
    "version": {"type": ["integer", "null"], "minimum": 0},
}
_OTLP: Mapping[str, Json] = {
    JSON_TYPE: {"type": "object"},
    "application/x-protobuf": {"type": "string", "format": "binary"},
}
_CODING = in_header("Content-Encoding", "How the body is compressed, if it is: gzip, zstd or deflate.")
_KEY = in_header("Idempotency-Key", "Identifies events without an id, with their position, so that a retry adds none.")
_REFUSED: Mapping[str, Json] = {**_COUNTED, **_COMMITTED, "error": TEXT}
_ANSWERS: Mapping[int, Json] = {
    200: told("Committed.", {**_COUNTED, **_COMMITTED}, required=["accepted", "rejected"]),
    202: told("Queued: types and conflicts are looked at later.", _COUNTED, required=["accepted", "rejected"]),
    400: told("Every event was rejected, or the request is wrong, as `error` says.", _REFUSED),
    413: told("The body is over a limit.", _REFUSED),
}
_ERRORS = (404, 405, 503)
_HEALTHY: Mapping[int, Json] = {200: told("It does.", {"status": TEXT})}
_NONE: Json = {"description": "Yes, without a body."}


def _signed(found: Json) -> Json:
    """Return an operation whose senders are verified by the function, whatever is in front of it."""
    return found | {"x-sender-signs": True}


def _call(name: str) -> dict[str, Json]:
    body = content(f"A call of Segment's API: {name}.", {JSON_TYPE: {"type": "object"}})
    errors = {status: content("Refused.", {JSON_TYPE: {"type": "object"}}) for status in (400, 401, 413, 503)}
    done = content("Taken.", {JSON_TYPE: {"type": "object", "properties": {"success": {"type": "boolean"}}}})
    summary = f"Take a {name} call of Segment's API, for the source of kind segment that has its write key"
    post = operation(f"segment_{name}", _WEBHOOKS, summary, {200: done, **errors}, body=body, public=True)
    allow = operation(
        f"segment_{name}_preflight",
        _WEBHOOKS,
        "Answer a browser before it calls",
        {204: _NONE},
        errors=[401],
        public=True,
    )
    return {"POST": _signed(post), "OPTIONS": _signed(allow)}


_FILES: Mapping[str, Json] = {
    "text/csv": TEXT,
    "text/tab-separated-values": TEXT,
    "application/x-ndjson": TEXT,
    JSON_TYPE: {"type": "array", "items": {"type": "object"}},
    "application/vnd.apache.parquet": {"type": "string", "format": "binary"},
    "multipart/form-data": {
        "type": "object",
        "required": ["data"],
        "properties": {"data": {"type": "string", "format": "binary"}, "schema": TEXT},
    },
}
_UPLOADED: Mapping[str, Json] = {
    "table": TEXT,
    "rows": COUNT,
    "version": COUNT,
    "columns": {
        "type": "object",
        "description": "Types of the columns that were created.",
        "additionalProperties": TEXT,
    },
}
_FORMATS: Json = {"type": "string", "enum": [*FORMATS]}
_UPLOAD_PARAMETERS = (
    in_query(
        "format", "What the file is; else its type, name or first bytes tell.", {"type": "string", "enum": [*FORMATS]}
    ),
    in_query("schema", "The file's columns: sku:string,price:decimal(9,2), or a schema as JSON."),
    in_query("key", "Identifies the upload, so that it is stored once; the same as Idempotency-Key."),
    in_query("create", "Whether a table that is not there is created.", FLAG | {"default": True}),
    in_query("evolve", "Whether columns that the table lacks are added.", FLAG | {"default": False}),
)
_SOURCE = in_path("source", "The name of a webhook source of the lake.")
_SIGNED_ERRORS = (400, 401, 405, 413, 500, 503)
INGEST_OPERATIONS: Mapping[str, Mapping[str, Json]] = {
    "/v1/events/{table}": {
        "POST": operation(
            "post_events",
            _TAG,
            "Store events, each once",
            _ANSWERS,
            parameters=[in_path("table", "The table that takes the events."), _CODING, _KEY],
            body=content("One event, or many.", _EVENTS) | {"required": True},
            errors=_ERRORS,
        )
    },
    "/v1/logs": {
        "POST": operation(
            "post_logs",
            _TAG,
            "Store log records of OpenTelemetry (OTLP/HTTP)",
            {200: content("Taken; with a partial success, the rejects are counted.", _OTLP)},
            parameters=[_CODING],
            body=content("An ExportLogsServiceRequest.", _OTLP) | {"required": True},
            errors=(400, *_ERRORS, 413),
        )
    },
    "/v1/upload/{table}": {
        "POST": operation(
            "upload",
            _TAG,
            "Store a file of rows, all or none of them",
            {
                200: told(
                    "Stored. Of a table of events, what became of each.", {**_UPLOADED, **_COUNTED, **_COMMITTED}
                ),
                400: told("The request is wrong, or every event was rejected.", _REFUSED),
            },
            parameters=[in_path("table", "The table that takes the rows."), *_UPLOAD_PARAMETERS, _CODING, _KEY],
            body=content("The file, or a form with it.", _FILES) | {"required": True},
            errors=(404, 405, 409, 413, 422, 503),
        )
    },
    **{f"/v1/{name}": _call(name) for name in CALL_PATHS},
    "/v1/webhooks/{source}": {
        "POST": _signed(
            operation(
                "post_webhook",
                _WEBHOOKS,
                "Store the events of a source, after its signature was verified",
                {
                    200: content("Stored, or kept as rejects; some senders get what they expect instead.", {"*/*": {}}),
                    202: told("Queued.", _COUNTED),
                },
                parameters=[_SOURCE],
                body=content("What the source's sender sends.", {"*/*": {}}),
                errors=_SIGNED_ERRORS,
                public=True,
            )
        ),
        "GET": _signed(
            operation(
                "shake_hands",
                _WEBHOOKS,
                "Answer a sender that checks the address",
                {200: content("The challenge, as that sender wants it.", {"*/*": {}})},
                parameters=[_SOURCE, in_query("challenge", "What to answer with; its name depends on the sender.")],
                errors=_SIGNED_ERRORS,
                public=True,
            )
        ),
        "OPTIONS": _signed(
            operation(
                "webhook_preflight",
                _WEBHOOKS,
                "Answer a browser before it posts",
                {204: _NONE},
                parameters=[_SOURCE],
                errors=_SIGNED_ERRORS,
                public=True,
            )
        ),
    },
    "/healthz": both(operation("say_healthy", "Service", "Tell whether the process runs", _HEALTHY, public=True)),
}
