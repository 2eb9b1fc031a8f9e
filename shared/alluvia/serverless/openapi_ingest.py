"""The operations of ingestion, for the OpenAPI document. Pure.

The function that answers with the document is not the one that takes events, so they are here, where both can be seen.
"""

from __future__ import annotations

from collections.abc import Mapping

from alluvia.events.formats.segment_format import PATHS as CALL_PATHS
from alluvia.events.formats.segment_format import SHORT_PATHS
from alluvia.files.rows import FORMATS
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
    415: told("The body is of a kind, or compressed in a way, that is never read.", _REFUSED),
}
_ERRORS = (404, 405, 503)
_HEALTHY: Mapping[int, Json] = {200: told("It does.", {"status": TEXT})}
_NONE: Json = {"description": "Yes, without a body."}


def _signed(found: Json) -> Json:
    """Return an operation whose senders are verified by the function: by a signature of their own, or its own."""
    return found | {"x-sender-signs": True}


def _call(name: str) -> dict[str, Json]:
    call = SHORT_PATHS.get(name, name)
    body = content(f"A call of Segment's API: {call}.", {JSON_TYPE: {"type": "object"}})
    errors = {status: content("Refused.", {JSON_TYPE: {"type": "object"}}) for status in (400, 401, 413, 415, 503)}
    done = content("Taken.", {JSON_TYPE: {"type": "object", "properties": {"success": {"type": "boolean"}}}})
    summary = f"Take a {call} call of Segment's API, for the source of kind segment that has its write key"
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
_UPLOAD_PARAMETERS = (
    in_query(
        "format", "What the file is; else its type, name or first bytes tell.", {"type": "string", "enum": [*FORMATS]}
    ),
    in_query("schema", "The file's columns: sku:string,price:decimal(9,2), or a schema as JSON."),
    in_query("key", "Identifies the upload, so that it is stored once; the same as Idempotency-Key."),
    in_query("create", "Whether a table that is not there is created.", FLAG | {"default": True}),
    in_query("evolve", "Whether columns that the table lacks are added.", FLAG | {"default": False}),
    in_query("parts", "Begin an upload of so many parts, without a body.", AT_LEAST_ONE | {"maximum": 1000}),
    in_query("bytes", "Begin an upload of a file of so many bytes, without a body.", AT_LEAST_ONE),
)
_PART: Json = {"type": "object", "properties": {"part": AT_LEAST_ONE, "bytes": COUNT, "url": TEXT}}
_PARTED: Mapping[str, Json] = {
    "id": TEXT,
    "table": TEXT,
    "expires": {"type": "string", "format": "date-time"},
    "parts": {"type": "array", "items": _PART},
}
_STATE: Json = {"type": "string", "enum": ["open", "running", "done", "failed"]}
_CHECKED: Json = {"type": "object", "properties": {"sha256": TEXT, "bytes": COUNT}, "additionalProperties": False}
_UPLOADED_TO = in_path("table", "The table that takes the rows.")
_IN_PARTS = [_UPLOADED_TO, in_path("upload", "The id of an upload in parts.")]
_SOURCE = in_path("source", "The name of a webhook source of the lake.")
_SIGNED_ERRORS = (400, 401, 405, 413, 415, 500, 503)
INGEST_OPERATIONS: Mapping[str, Mapping[str, Json]] = {
    "/v1/events/{table}": {
        "POST": operation(
            "post_events",
            _TAG,
            "Store events, each once",
            _ANSWERS,
            parameters=[in_path("table", "The table that takes the events."), _CODING, _KEY, ON_BRANCH],
            body=content("One event, or many.", _EVENTS) | {"required": True},
            errors=_ERRORS,
        )
    },
    "/v1/logs": {
        "POST": operation(
            "post_logs",
            _TAG,
            "Store log records of OpenTelemetry (OTLP/HTTP)",
            {
                200: content("Taken; with a partial success, the rejects are counted.", _OTLP),
                **dict.fromkeys((400, 403, 404, 413, 415, 503), content("Refused, as google.rpc.Status says.", _OTLP)),
            },
            parameters=[_CODING, ON_BRANCH],
            body=content("An ExportLogsServiceRequest.", _OTLP) | {"required": True},
            errors=(405,),
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
                201: told(
                    "An upload in parts has begun: PUT each part at its URL, then complete it.",
                    {**_PARTED, "part_bytes": AT_LEAST_ONE, "complete": TEXT},
                ),
                400: told("The request is wrong, or every event was rejected.", _REFUSED),
            },
            parameters=[_UPLOADED_TO, *_UPLOAD_PARAMETERS, _CODING, _KEY, ON_BRANCH],
            body=content("The file, or a form with it.", _FILES) | {"required": True},
            errors=(404, 405, 409, 413, 415, 422, 503),
        )
    },
    "/v1/upload/{table}/{upload}": {
        "GET": operation(
            "tell_upload",
            _TAG,
            "Tell which parts of a file have come, and what became of it",
            {200: told("How it stands, with fresh URLs.", {**_PARTED, "state": _STATE, "answer": {"type": "object"}})},
            parameters=_IN_PARTS,
            errors=(400, 404, 405, 503),
        )
    },
    "/v1/upload/{table}/{upload}/complete": {
        "POST": operation(
            "complete_upload",
            _TAG,
            "Store a file whose parts have come, once",
            {
                200: told("Stored, as for a file in one request.", {**_UPLOADED, **_COUNTED, **_COMMITTED}),
                202: told("Another request stores it.", {"state": _STATE, "error": TEXT}),
                400: told("The request is wrong, or every event was rejected.", _REFUSED),
            },
            parameters=[*_IN_PARTS, ON_BRANCH],
            body=content("What the file must be, if anything.", {JSON_TYPE: _CHECKED}),
            errors=(404, 405, 409, 413, 422, 503),
        )
    },
    "/v1/upload/{table}/{upload}/parts/{part}": {
        "PUT": _signed(
            operation(
                "put_part",
                _TAG,
                "Take a part of a file, at a path that a server without S3 has signed",
                {200: told("Kept.", {"part": AT_LEAST_ONE, "bytes": COUNT})},
                parameters=[*_IN_PARTS, in_path("part", "The number of the part.", AT_LEAST_ONE)],
                body=content("The part's bytes.", {"*/*": {}}) | {"required": True},
                errors=(400, 403, 404, 405, 413, 503),
                public=True,
            )
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
