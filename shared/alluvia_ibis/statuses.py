"""What a server's answer that is not a success stands for. Pure."""

from __future__ import annotations

import orjson

from alluvia.errors import (
    AlluviaError,
    CommitUnknown,
    Conflict,
    Forbidden,
    Invalid,
    TableNotFound,
    Unavailable,
    VersionExpired,
    VersionNotFound,
    cut,
)


class NotThere(TableNotFound, VersionNotFound):
    """The lake has no such table or version."""


class NotYet(Unavailable):
    """The server, or what is in front of it, did not answer in time."""


_ERRORS: dict[int, type[AlluviaError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotThere,
    409: Conflict,
    410: VersionExpired,
    413: Invalid,
    422: Invalid,
    429: Unavailable,
    500: CommitUnknown,
    502: NotYet,
    503: NotYet,
    504: NotYet,
}


def error_of(status: int, body: bytes, place: str) -> AlluviaError:
    """Return the error that an answer stands for: what the server says, or where nothing it understands was sent."""
    kind = _ERRORS.get(status, Invalid if status < 500 else AlluviaError)
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        told = None
    if isinstance(told, dict) and isinstance(told.get("error"), str):
        return kind(told["error"])
    said = told.get("message") if isinstance(told, dict) else None  # API Gateway's word for it
    said = said if isinstance(said, str) else f"no answer of Alluvia, but {cut(body.decode(errors='replace'), 200)!r}"
    return kind(f"{place} answered with status {status}: {said}")
