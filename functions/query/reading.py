"""Reads by GET, whose answers caches may keep."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from alluvia.errors import Invalid
from alluvia.serverless.http import Request, Response, failure

from .answering import Caller, answer, chosen_format
from .asking import QueryRequest, shown
from .rights import has_writes


def read(request: Request, name: str, caller: Caller) -> Response:  # noqa: ARG001
    """Answer a query in the query string or a header."""
    return _read(request, shown(request), caller)


def read_by_hash(request: Request, name: str, caller: Caller) -> Response:
    """Answer a query whose hash is in the path, so that a cache knows it by its path: `{SHA-256 of the text}.{form}`.

    Raises `Invalid` for the hash of another text.
    """
    given, _, suffix = name.partition(".")
    asked = shown(request)
    expected = sha256(asked.text.encode("utf-8", "surrogatepass")).hexdigest()
    if given != expected:
        raise Invalid(f"the path has not the SHA-256 of the query's text: send GET /q/{expected}, or GET /q?query=…")
    return _read(request, replace(asked, format=suffix) if suffix else asked, caller)


def _read(request: Request, asked: QueryRequest, caller: Caller) -> Response:
    form = chosen_format(asked, request.headers.get("accept"))
    if has_writes(asked.text):
        return failure(405, "GET only reads: send statements that write by POST", Allow="POST")
    return answer(asked, form, caller)
