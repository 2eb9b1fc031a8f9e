"""POST /v1/upload/{table}: a file of rows in the body, raw or as a form, for the table that the path names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

from alluvia import Lake
from alluvia.access.rights import ADMIN, READ
from alluvia.errors import AlluviaError, Invalid, Unsupported
from alluvia.events.formats.charset import charset_of
from alluvia.events.ingest.compression import TooLarge, UnknownEncoding, inflate, known_encoding
from alluvia.events.ingest.envelope import media_type
from alluvia.events.ingest.values import IngestOutcome
from alluvia.files.file_rows import FORMAT_BYTES, format_of
from alluvia.files.limits import FileLimits, Misfit
from alluvia.files.reading_options import ReadingOptions, reading_options
from alluvia.files.sent import SentFile
from alluvia.files.uploads.schemas import declared_schema
from alluvia.files.uploads.storing import Stored, Upload, store
from alluvia.serverless.http import TABLE_HEADER, Request, Response, answer, refusal
from alluvia.serverless.log_lines import Logger
from alluvia.serverless.routes.ingest_routes import BYTES, CREATE, EVOLVE, PARTS, READING_FIELDS, UPLOAD_FIELDS

from .events import KEY_LIMIT_CHARS, REFUSED, errors_of, event_headers
from .settings import SERVICE, IngestSettings

PARAMETERS = tuple(field.name for field in UPLOAD_FIELDS)
REPLAYED = "Idempotent-Replayed"
STATUSES: dict[type[AlluviaError], int] = {TooLarge: 413, UnknownEncoding: 415, Misfit: 422, Unsupported: 400}

logger = Logger(service=SERVICE, child=True)


def take_file(request: Request, settings: IngestSettings, lake: Lake, table: str) -> Response:
    """Store the file of a request, and answer with the outcome of its rows, errors included."""
    try:
        check_takes_files(settings)
        asked = upload_fields(request)
        if not asked.keys().isdisjoint((PARTS.name, BYTES.name)):
            from .upload_parts import begin_parts  # loads what signs

            return begin_parts(table, asked, request, settings, lake)
        content_type = request.headers.get("content-type")
        data, kind_said, name = request.body(), media_type(content_type), ""
        if kind_said == "multipart/form-data":
            from .forms import read_form  # loads the parser, for forms alone

            form = read_form(data, request.headers["content-type"])
            data, kind_said, name = form.data, form.media_type, form.file_name
            asked = asked | form.fields
        if not data:
            raise Invalid("the body is empty: send a file, such as curl --data-binary @rows.csv")
        if len(data) > settings.limits.body_bytes:
            raise TooLarge(f"the body has {len(data)} bytes, more than the limit of {settings.limits.body_bytes}")
        data = _inflated(data, request.headers.get("content-encoding", ""), settings.files.bytes_max)
        kind = format_of(asked.get("format"), kind_said, name, data[:FORMAT_BYTES])
        if kind != "parquet" and (charset := charset_of(content_type)):
            asked = {"encoding": charset} | asked
        file = SentFile(data, kind, limits_of(settings, request), options_of(asked, kind)).begun()
        upload = upload_of(table, file, asked, settings, key_of(request, asked))
        return stored_answer(table, store(lake.catalog, upload))
    except REFUSED as error:
        return refusal(error, logger, STATUSES)


def upload_of(
    table: str,
    file: SentFile,
    asked: Mapping[str, str],
    settings: IngestSettings,
    key: str | None,
    content: str | None = None,
) -> Upload:
    """Return a file with what its sender asked for and may do. Raises `Invalid` and `Forbidden`."""
    rights = settings.rights
    evolve = EVOLVE.read(asked.get(EVOLVE.name))
    if evolve and rights is not None:
        rights.check(ADMIN, table)
    admin = rights is None or rights.may(ADMIN, table)
    if key is not None and content is None:
        content = file.digest()
    why = None if admin or settings.create_tables else f"this caller lacks the scope admin:{table}, to create it"
    hidden = rights.restriction(table).hide if rights is not None and rights.may(READ, table) else frozenset()
    return Upload(
        table,
        file,
        declared_schema(asked["schema"]) if asked.get("schema") else None,
        key,
        content or "",
        why if CREATE.read(asked.get(CREATE.name)) else "create=false forbids to create it",
        evolve,
        None if admin else settings.tables_max,
        hidden,
        events_key=key,
    )


def upload_fields(request: Request) -> dict[str, str]:
    """Return a request's parameters. Raises `Invalid` for one that there is not, or that comes twice."""
    values: dict[str, str] = {}
    for name, value in parse_qsl(request.query_string, keep_blank_values=True):
        if name not in PARAMETERS:
            raise Invalid(f"{name!r:.100} is not a parameter of uploads: use {', '.join(PARAMETERS)}")
        if name in values:
            raise Invalid(f"{name} is given twice")
        values[name] = value
    return values


def stored_answer(table: str, done: Stored | IngestOutcome) -> Response:
    """Return the answer of a file that was stored, or whose events were all rejected."""
    headers = {TABLE_HEADER: table}
    if isinstance(done, IngestOutcome):
        counts = done.counts()
        logger.info("committed", extra={"table": table, **counts})
        headers = event_headers(table, counts)
        status = 200 if done.accepted or not done.rejected else 400
        return answer(status, done.said() | errors_of(done.rejects, done.rejected), **headers)
    logger.info("uploaded", extra={"table": table, "rows": done.rows, "version": done.version})
    body: dict[str, Any] = {"table": table, "rows": done.rows, "version": done.version}
    if done.columns:
        body["columns"] = dict(done.columns)
    if done.notes:
        body["notes"] = list(done.notes)
    if done.repeated:
        headers[REPLAYED] = "true"
    return answer(200, body, **headers)


def options_of(asked: Mapping[str, str], kind: str) -> ReadingOptions:
    """Return how a request says that its file is written. Raises `Invalid`, naming the parameter."""
    options = reading_options(
        **{each.name: each.read(asked[each.name]) for each in READING_FIELDS if each.name in asked}
    )
    options.check(kind)
    return options


def limits_of(settings: IngestSettings, request: Request) -> FileLimits:
    """Return what reading a request's file may take."""
    return replace(settings.files, cancelled=request.gone)


def check_takes_files(settings: IngestSettings) -> None:
    """Raise `Unsupported` where files cannot be stored."""
    if settings.queue_url is not None:
        raise Unsupported("this function only puts events into a queue: send files to one whose mode is direct")


def key_of(request: Request, asked: Mapping[str, str]) -> str | None:
    """Return what identifies an upload. Raises `Invalid`."""
    header, parameter = request.headers.get("idempotency-key"), asked.get("key")
    if header and parameter and header != parameter:
        raise Invalid("Idempotency-Key and key: send one of them, or the same in both")
    key = header or parameter
    if key and len(key) > KEY_LIMIT_CHARS:
        raise Invalid(f"key: longer than {KEY_LIMIT_CHARS} characters")
    return key or None


def _inflated(data: bytes, encoding: str, bytes_max: int) -> bytes:
    """Return a body without deflate. Files tell gzip and zstd by themselves, and are inflated as they are read."""
    return inflate(data, encoding, bytes_max) if known_encoding(encoding) == "deflate" else data
