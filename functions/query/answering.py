"""Run what a request asks, and make an answer of its rows."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from alluvia import Lake
from alluvia.access.rights import Rights
from alluvia.query.engine import run_rendered
from alluvia.query.formats import Format, choose_format, format_named
from alluvia.query.permitted import permitted
from alluvia.query.scans import TableScan
from alluvia.serverless.http import Response
from alluvia.serverless.log_lines import Logger

from .asking import QueryRequest
from .rights import allowed_statements
from .settings import QuerySettings

# An answer's text is escaped once more on its way out of Lambda, which may double it; base64 adds a third.
TEXT_LIMIT_BYTES = 1_000_000

logger = Logger(service=os.environ.get("POWERTOOLS_SERVICE_NAME", "query"), child=True)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, of which lake: `rights` is what it may do; None: all that the settings allow."""

    settings: QuerySettings
    lake: Lake
    rights: Rights | None = None


def chosen_format(asked: QueryRequest, accept: object) -> Format:
    """Return the form that a request names, else one that its sender accepts. Raises `Invalid`, `NotAcceptable`."""
    if asked.format is not None:
        return format_named(asked.format)
    return choose_format(accept if isinstance(accept, str) else None)


def answer(asked: QueryRequest, form: Format, caller: Caller, headers: Mapping[str, str] | None = None) -> Response:
    """Run a query or statements. The answer has `headers` too. Raises what they raise."""
    body, notes = _run(asked, form, caller)
    logger.info("answered", extra={"bytes": len(body), **notes})
    return success(body, form, {"Cache-Control": "no-store", "Vary": "Accept"} | dict(headers or {}))


def _run(asked: QueryRequest, form: Format, caller: Caller) -> tuple[bytes, dict[str, Any]]:
    """Return an answer in a form, and what the log tells of it."""
    settings, lake, rights = caller.settings, caller.lake, caller.rights
    statements = allowed_statements(asked.text, writes=settings.allow_writes)
    if not statements:
        limit_bytes = settings.result_limit_bytes
        found = run_rendered(permitted(lake, rights), asked.text, form, limit_bytes, settings.limits, asked.parameters)
        return found.body, {"tables": [_numbers(table) for table in found.tables]}
    from .running import run_statements

    body = run_statements(lake, asked.text, asked.parameters, form, settings, rights)
    return body, {"statements": [statement.kind for statement in statements]}


def success(body: bytes, form: Format, headers: Mapping[str, str]) -> Response:
    """Return the answer to a query that succeeded."""
    encoded = not form.is_text or len(body) > TEXT_LIMIT_BYTES
    return {
        "statusCode": 200,
        "headers": {"Content-Type": form.content_type, **headers},
        "body": base64.b64encode(body).decode() if encoded else body.decode(),
        "isBase64Encoded": encoded,
    }


def _numbers(table: TableScan) -> dict[str, Any]:
    return {"table": table.table, "version": table.version, "files": table.files_read, "bytes": table.bytes_read}
