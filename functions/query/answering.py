"""Run what a request asks, and make an answer of its rows."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from alluvia import Lake
from alluvia.access.rights import Rights
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.query.engine import Rendered, run_rendered
from alluvia.query.formats import Format, choose_format, format_named
from alluvia.query.limits import QueryLimits
from alluvia.query.permitted import permitted
from alluvia.query.scans import TableScan
from alluvia.serverless.http import Response
from alluvia.serverless.log_lines import Logger
from alluvia.table.schema.names import fold

from .asking import QueryRequest
from .codings import choose_coding, encoded
from .rights import allowed_statements
from .settings import QuerySettings

# An answer's text is escaped once more on its way out of Lambda, which may double it; base64 adds a third.
TEXT_LIMIT_BYTES = 1_000_000
ROWS, VERSIONS = "Alluvia-Rows", "Alluvia-Versions"
FILES_READ, BYTES_READ, ELAPSED = "Alluvia-Files-Read", "Alluvia-Bytes-Read", "Alluvia-Elapsed-Ms"
VERSIONS_CHARS_MAX = 4000
NO_STORE = "no-store"
VARY = "Accept, Accept-Encoding, Authorization"

logger = Logger(service=os.environ.get("POWERTOOLS_SERVICE_NAME", "query"), child=True)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, of which lake: `rights` is what it may do; None: all that the settings allow."""

    settings: QuerySettings
    lake: Lake
    rights: Rights | None = None


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What the answer is to be like: the form of its rows and, if it may be compressed, the coding."""

    form: Format
    coding: str | None = None


def wanted(asked: QueryRequest, headers: Mapping[str, str]) -> AnswerForm:
    """Return what a request wants, by the form that it names, else by its headers, in lower case.

    Raises `Invalid`, `NotAcceptable`.
    """
    form = choose_format(headers.get("accept")) if asked.format is None else format_named(asked.format)
    return AnswerForm(form, choose_coding(headers.get("accept-encoding")))


def answer(asked: QueryRequest, wish: AnswerForm, caller: Caller) -> Response:
    """Run a query or statements, and answer. Raises what they raise."""
    began_ms = caller.lake.clock.now_ms()
    statements = allowed_statements(asked.text, writes=caller.settings.allow_writes)
    if statements and (asked.dry_run or asked.max_bytes is not None):
        field = "dry_run" if asked.dry_run else "max_bytes"
        raise Invalid(f"{field}: send one SELECT, and not several statements or one that writes")
    if not statements:
        found = run_query(asked, wish.form, caller)
        body, told = found.body, told_of(found, caller.rights)
        notes: dict[str, Any] = {"tables": [_numbers(table) for table in found.tables]}
    else:
        from .running import run_statements

        settings = replace(caller.settings, limits=limits_of(asked, caller))
        done = run_statements(caller.lake, asked.text, asked.parameters, wish.form, settings, caller.rights)
        body, told = done.body, {ROWS: str(done.rows)}
        notes = {"statements": [statement.kind for statement in statements]}
    logger.info("answered", extra={"bytes": len(body), **notes})
    return success(body, wish, told | {ELAPSED: elapsed(caller, began_ms), "Cache-Control": NO_STORE})


def limits_of(asked: QueryRequest, caller: Caller) -> QueryLimits:
    """Return the limits of the settings, or those that a request sets below them."""
    limits = caller.settings.limits
    times = [each for each in (limits.timeout_seconds, asked.max_seconds) if each is not None]
    return replace(limits, timeout_seconds=min(times, default=None), asked_bytes=asked.max_bytes)


def run_query(asked: QueryRequest, form: Format, caller: Caller) -> Rendered:
    """Run one query. Raises what it raises."""
    catalog, settings = permitted(caller.lake, caller.rights), caller.settings
    limit_bytes = settings.result_limit_bytes
    return run_rendered(
        catalog, asked.text, form, limit_bytes, limits_of(asked, caller), asked.parameters, dry_run=asked.dry_run
    )


def told_of(found: Rendered, rights: Rights | None) -> dict[str, str]:
    """Return what the headers tell of a result: not how much was read, where the caller may not see all of it."""
    tables = found.tables
    told = {ROWS: str(found.rows)}
    if tables:
        named = dict.fromkeys(f"{fold(table.table)}={table.version}" for table in tables)
        versions = ", ".join(named)
        if len(versions) <= VERSIONS_CHARS_MAX:
            told[VERSIONS] = versions
    if sees_all(rights):
        told[FILES_READ] = str(sum(table.files_read for table in tables))
        told[BYTES_READ] = str(sum(table.bytes_read for table in tables))
    return told


def sees_all(rights: Rights | None) -> bool:
    """Whether a caller may see all rows and columns of the tables that it may read."""
    return rights is None or not any(grant.where or grant.hide for grant in rights.grants)


def elapsed(caller: Caller, began_ms: int) -> str:
    """Return how long it took, in ms, since a moment of the lake's clock."""
    return str(max(0, caller.lake.clock.now_ms() - began_ms))


def success(body: bytes, wish: AnswerForm, headers: Mapping[str, str]) -> Response:
    """Return the answer to a query that succeeded."""
    sent, coding = encoded(body, wish.form, wish.coding)
    is_base64 = coding is not None or not wish.form.is_text or len(sent) > TEXT_LIMIT_BYTES
    all_headers = {"Content-Type": wish.form.content_type, "Vary": VARY, **headers}
    if coding is not None:
        all_headers["Content-Encoding"] = coding
        if "ETag" in headers:  # another tag for other bytes
            all_headers["ETag"] = f'{headers["ETag"][:-1]}-{coding}"'
    return {
        "statusCode": 200,
        "headers": all_headers,
        "body": base64.b64encode(sent).decode() if is_base64 else sent.decode(),
        "isBase64Encoded": is_base64,
    }


def _numbers(table: TableScan) -> dict[str, Any]:
    return {"table": table.table, "version": table.version, "files": table.files_read, "bytes": table.bytes_read}
