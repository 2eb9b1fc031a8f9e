"""Errors in gRPC's form: a code, and a text that fits the headers of an answer. Pure."""

from __future__ import annotations

from urllib.parse import quote

import grpc

from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.errors import (
    AlluviaError,
    CommitUnknown,
    Conflict,
    Corrupt,
    Forbidden,
    Invalid,
    StoreRefused,
    TableExists,
    TableNotFound,
    Unavailable,
    Unsupported,
    VersionExpired,
    VersionNotFound,
)
from alluvia.serverless.http import STORE_REFUSES, TooManyRequests, Unauthenticated

TEXT_BYTES_MAX = 4000
"""Clients take 8 KiB of headers."""


class HandleNotFound(Invalid):
    """The server holds no prepared statement, transaction or running query of that handle for this caller."""


_CODES: tuple[tuple[type[AlluviaError], grpc.StatusCode], ...] = (
    (Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (TooManyRequests, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Forbidden, grpc.StatusCode.PERMISSION_DENIED),
    (QueryTooCostly, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (HandleNotFound, grpc.StatusCode.NOT_FOUND),
    (TableNotFound, grpc.StatusCode.NOT_FOUND),  # before Conflict: a table that was dropped meanwhile is both
    (VersionNotFound, grpc.StatusCode.NOT_FOUND),
    (VersionExpired, grpc.StatusCode.NOT_FOUND),
    (TableExists, grpc.StatusCode.ALREADY_EXISTS),
    (Unsupported, grpc.StatusCode.UNIMPLEMENTED),
    (Conflict, grpc.StatusCode.ABORTED),
    (CommitUnknown, grpc.StatusCode.UNKNOWN),  # not UNAVAILABLE, after which clients send the same again
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
    (StoreRefused, grpc.StatusCode.UNAVAILABLE),
    (Corrupt, grpc.StatusCode.DATA_LOSS),
    (Invalid, grpc.StatusCode.INVALID_ARGUMENT),
)


def status_of(error: AlluviaError) -> tuple[grpc.StatusCode, str]:
    """Return the code and the text that tell a caller of an error."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
    text = STORE_REFUSES if isinstance(error, StoreRefused) else str(error)
    if code is grpc.StatusCode.ABORTED and not error.partly:
        text = f"nothing was done, send the same again: {text}"
    if code is grpc.StatusCode.UNKNOWN:
        text = f"check whether the statements took effect before you send them again: {text}"
    return code, fitting(text)


def fitting(text: str) -> str:
    """Return a text, cut where it would not fit as gRPC sends it: percent-encoded."""
    sizes = 0
    for at, character in enumerate(text):
        sizes += len(quote(character, safe=" ", errors="replace"))
        if sizes > TEXT_BYTES_MAX:
            return f"{text[:at]}…"
    return text
