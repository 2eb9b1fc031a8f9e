"""Files in parts: their routes give out signed URLs, say what has come, and store the file when all of it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson

from alluvia import Lake
from alluvia.errors import AlluviaError, Forbidden, Invalid, TableNotFound, Unavailable, Unsupported
from alluvia.events.ingest.compression import TooLarge
from alluvia.files.file_rows import format_of
from alluvia.files.limits import FileLimits, Misfit
from alluvia.files.sent import SentFile
from alluvia.files.uploads import parts
from alluvia.files.uploads.storing import store
from alluvia.operations.results.upload_parts import UPLOAD_MS_MAX
from alluvia.serverless.http import BRANCH_HEADER, Request, Response, TooManyRequests, answer, refusal
from alluvia.serverless.log_lines import Logger
from alluvia.serverless.routes.ingest_routes import BYTES, CHECKED_FIELDS, PARTS
from alluvia.serverless.signed_paths import current_signer

from .events import REFUSED
from .settings import CALLER_UPLOAD_BYTES, CALLER_UPLOADS, SERVICE, IngestSettings
from .uploads import REPLAYED, STATUSES, check_takes_files, key_of, limits_of, options_of, stored_answer, upload_of

PART_BYTES = 64 << 20
LOCAL_PART_BYTES = 8 << 20
"""A server takes bodies of up to 10 MiB."""
_PART = re.compile("[0-9]{1,5}")
_STATUSES: dict[type[AlluviaError], int] = {parts.NoUpload: 404, **STATUSES}

logger = Logger(service=SERVICE, child=True)


def begin_parts(
    table: str, asked: Mapping[str, str], request: Request, settings: IngestSettings, lake: Lake
) -> Response:
    """Begin an upload, and answer with the URLs of its parts. Raises `Invalid`."""
    if request.body():
        raise Invalid("parts, bytes: the body must be empty: its parts come by the URLs in the answer")
    if "format" not in asked:
        raise Invalid("format: say what the parts are together: csv, tsv, ndjson or parquet")
    key = key_of(request, asked)
    size, part_bytes = BYTES.read(asked.get(BYTES.name)), PART_BYTES if _signs(lake) else LOCAL_PART_BYTES
    if size is not None and size > settings.files.bytes_max:
        raise TooLarge(_too_large(size, settings))
    count = PARTS.read(asked.get(PARTS.name)) or -(-(size or 1) // part_bytes)
    if count > parts.PARTS_MAX:
        raise Invalid(f"parts: at most {parts.PARTS_MAX}, got {count}")
    kept = {name: value for name, value in asked.items() if name not in ("parts", "bytes", "key")}
    kept |= {} if key is None else {"key": key}
    kind = format_of(asked["format"], "", "", b"")
    checked = upload_of(table, SentFile(b"", kind, options=options_of(kept, kind)), kept, settings, None)
    if checked.create is not None and table not in lake:
        raise TableNotFound(f"there is no table {table!r}, and {checked.create}")
    upload = _begun(table, count, size, kept, settings, lake)
    body = _shown(upload, lake) | {"complete": f"{_path(upload)}/complete"}
    if size is not None and "parts" not in asked:
        body["part_bytes"] = part_bytes
    return answer(201, body, Location=_path(upload))


def _begun(
    table: str, count: int, size: int | None, kept: Mapping[str, str], settings: IngestSettings, lake: Lake
) -> parts.PartedUpload:
    """Begin an upload, if its sender has not begun too many. A caller that may do all is not limited.

    Of those that begin at once, some find too many after their own came, and take it back.
    """
    caller = "" if settings.rights is None else settings.rights.caller
    most = settings.files.bytes_max if size is None else size
    share = parts.UploadAllowance(settings.caller_uploads, settings.upload_bytes_of_one)
    if caller and most > share.bytes:
        hint = "say how many it has (bytes=…)" if size is None else "cut the file into several"
        raise TooLarge(f"bytes: an upload of {most} bytes is more than one caller may have unfinished, {share.bytes} "
                       f"({CALLER_UPLOAD_BYTES}): {hint}")  # fmt: skip
    if caller:
        _check_room(caller, share, parts.UploadAllowance(1, most), lake)
    upload = parts.begin(lake.store, lake.clock, table, count, size, kept, lake.catalog.origin)
    if caller:
        note = parts.note(lake.store, caller, upload, most)
        try:
            _check_room(caller, share, parts.UploadAllowance(0, 0), lake)
        except TooManyRequests:
            parts.forget(lake.store, note)
            raise
    return upload


def _check_room(caller: str, share: parts.UploadAllowance, more: parts.UploadAllowance, lake: Lake) -> None:
    held = parts.lacking(lake.store, lake.clock, caller, share, more)
    if held is not None:
        raise TooManyRequests(
            f"you have {held.uploads} unfinished uploads of up to {held.bytes} bytes together. One caller may have "
            f"{share.uploads} ({CALLER_UPLOADS}) of {share.bytes} bytes ({CALLER_UPLOAD_BYTES}): complete one. The "
            f"first of them expires in {held.seconds} seconds",
            held.seconds,
        )


def show_upload(request: Request, settings: IngestSettings, lake: Lake, table: str, upload_id: str) -> Response:  # noqa: ARG001
    """Answer which parts have come, with fresh URLs for all, and the state of the upload."""
    try:
        upload = _found(table, upload_id, settings, lake)
        state = dict(parts.state_of(lake.store, upload))
        if state["state"] == "running" and state.pop("until_ms") < lake.clock.now_ms():
            state["state"] = "open"
        return answer(200, _shown(upload, lake) | state)
    except REFUSED as error:
        return refusal(error, logger, _STATUSES)


def put_part(request: Request, settings: IngestSettings, lake: Lake, table: str, upload_id: str, part: str) -> Response:
    """Take a part at a path that this server has signed. Parts together are no longer than the file may be."""
    try:
        signer = current_signer()
        if signer is None or not _PART.fullmatch(part):
            raise Forbidden("parts are sent to the URLs that the upload's answer has")
        signer.check("PUT", request.path, request.query_string)
        upload = parts.find(lake.store, lake.clock, table, upload_id)
        number, body = int(part), request.body()
        others = sum(info.size for other, info in parts.parts_there(lake.store, upload).items() if other != number)
        most = settings.files.bytes_max if upload.bytes is None else upload.bytes
        if others + len(body) > most:
            raise TooLarge(f"the other parts have {others} bytes, and with this one the file has more than {most}")
        lake.store.put(upload.part_key(number), body)
        return answer(200, {"part": number, "bytes": len(body)})
    except REFUSED as error:
        return refusal(error, logger, _STATUSES)


def complete_upload(request: Request, settings: IngestSettings, lake: Lake, table: str, upload_id: str) -> Response:
    """Store the file whose parts have come, and answer as for a file in one request."""
    try:
        upload = _found(table, upload_id, settings, lake)
        told = _told(request)
        state = parts.take_lease(lake.store, lake.clock, upload)
    except REFUSED as error:
        return refusal(error, logger, _STATUSES)
    if state is not None and state["state"] == "done":
        return answer(state["status"], state["answer"], **{REPLAYED: "true"})
    if state is not None:
        text = "another request stores this upload: ask again, or GET its state"
        return answer(202, {"state": "running", "error": text}, **{"Retry-After": "5"})
    done: Response | None = None
    try:
        done = _stored(upload, told, settings, lake, limits_of(settings, request))
    except REFUSED as error:
        done = refusal(error, logger, _STATUSES)
    finally:
        failed = {"error": "internal error"}
        status, body = (500, failed) if done is None else (done["statusCode"], orjson.loads(done["body"]))
        try:
            parts.end_lease(lake.store, upload, status, body)
        except Unavailable as error:  # the table's log knows, and the lease ends by itself
            logger.warning("the end of an upload was not noted", extra={"reason": str(error)})
    return done


def _stored(
    upload: parts.PartedUpload, told: Mapping[str, Any], settings: IngestSettings, lake: Lake, limits: FileLimits
) -> Response:
    infos = parts.complete_parts(lake.store, upload)
    size = sum(info.size for info in infos)
    if size > settings.files.bytes_max:
        raise TooLarge(_too_large(size, settings))
    if told.get("bytes", size) != size:
        raise Misfit(f"bytes: the parts have {size} together, not {told['bytes']}")
    asked = upload.asked
    with parts.gathered(lake.store, infos) as (path, digest):
        if told.get("sha256", digest).lower() != digest:
            raise Misfit(f"sha256: that of the parts is {digest}: send those again that were damaged on the way")
        kind = format_of(asked["format"], "", "", b"")
        key, content = (asked["key"], None) if "key" in asked else (f"parts/{upload.id}", digest)
        sent = SentFile(path, kind, limits, options_of(asked, kind)).begun()
        file = upload_of(upload.table, sent, asked, settings, key, content)
        there = partial(parts.check_there, lake.store, upload)
        file = replace(file, before_commit=there, events_key=asked.get("key"))
        return stored_answer(upload.table, store(lake.catalog, file))


def _found(table: str, upload_id: str, settings: IngestSettings, lake: Lake) -> parts.PartedUpload:
    check_takes_files(settings)
    upload = parts.find(lake.store, lake.clock, table, upload_id)
    if upload.origin != lake.catalog.origin:
        raise parts.NoUpload(
            f"this upload was begun elsewhere: complete it with the {BRANCH_HEADER} that it was begun with"
        )
    return upload


def _told(request: Request) -> Mapping[str, Any]:
    """Return what the request to complete an upload says of the file."""
    body = request.body()
    if not body.strip():
        return {}
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Invalid(f"the body is not valid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise Invalid('the body must be a JSON object, such as {"sha256": "…"}')
    known = {field.name: field for field in CHECKED_FIELDS}
    for name, value in fields.items():
        if name not in known or not known[name].fits(value):
            raise Invalid(f"{name!r:.100}: the fields are sha256, in hex, and bytes, a number")
    return fields


def _shown(upload: parts.PartedUpload, lake: Lake) -> dict[str, Any]:
    seconds = max(1, (upload.expires_ms - lake.clock.now_ms()) // 1000)
    there = parts.parts_there(lake.store, upload) if seconds < UPLOAD_MS_MAX // 1000 else {}
    shown = []
    for part in range(1, upload.parts + 1):
        one: dict[str, Any] = {"part": part, "url": _url(upload, part, seconds, lake)}
        shown.append(one | ({"bytes": there[part].size} if part in there else {}))
    expires = datetime.fromtimestamp(upload.expires_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"id": upload.id, "table": upload.table, "expires": expires, "parts": shown}


def _url(upload: parts.PartedUpload, part: int, seconds: int, lake: Lake) -> str:
    url = lake.store.signed_url("PUT", upload.part_key(part), seconds)
    if url is not None:
        return url
    signer = current_signer()
    if signer is None:
        raise Unsupported("this lake's store takes no signed URLs: send the file in one request")
    return signer.sign("PUT", f"{_path(upload)}/parts/{part}", seconds)


def _signs(lake: Lake) -> bool:
    return lake.store.signed_url("PUT", "_alluvia/uploads/x", 60) is not None


def _path(upload: parts.PartedUpload) -> str:
    return f"/v1/upload/{upload.table}/{upload.id}"


def _too_large(size: int, settings: IngestSettings) -> str:
    return (
        f"the file has {size} bytes, more than the limit of {settings.files.bytes_max}: cut it into several files, or "
        "start a backfill, which reads files of any size from a bucket"
    )
