"""Run the statements of a request."""

from __future__ import annotations

import sys

import pyarrow as pa

from alluvia import Lake
from alluvia.access.rights import Rights
from alluvia.errors import CommitUnknown
from alluvia.query.formats import Format
from alluvia.query.parameters import Parameters
from alluvia.query.rendering import RenderedRows, render
from alluvia.serverless.query_settings import QuerySettings


def run_statements(
    lake: Lake, text: str, parameters: Parameters | None, form: Format, settings: QuerySettings, rights: Rights | None
) -> RenderedRows:
    """Run a text, and return its answer in a form. Nothing is committed if that is too large, or the time is up.

    A text of definitions that no transaction can hold runs statement by statement, and answers with one row.
    """
    from alluvia.sql.run import execute  # which no single query loads

    ready: tuple[pa.Table, RenderedRows] | None = None

    def rendered(answer: pa.Table, limit_bytes: int = settings.result_limit_bytes) -> RenderedRows:
        nonlocal ready
        body = render(answer.schema, answer.to_batches(), form, limit_bytes)
        ready = answer, body
        return body

    try:
        answer = execute(lake, text, parameters, limits=settings.limits, ready=rendered, rights=rights)
    except CommitUnknown as error:
        raise CommitUnknown(f"check whether the statements took effect before you send them again: {error}") from error
    if ready is not None and ready[0] is answer:
        return ready[1]
    return rendered(answer, sys.maxsize)  # one row, with versions that were not known before: nothing may fail now
