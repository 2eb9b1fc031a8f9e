"""Compressed answers: the coding that a sender accepts, and bodies in it. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pyarrow as pa

from alluvia.query.formats import Format, accepted

LEAST_BYTES = 1024
"""Smaller bodies are sent as they are."""
_GZIP_LEVEL = 5
_GZIP = 16 + zlib.MAX_WBITS


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP)
    return packer.compress(body) + packer.flush()


def _zstd(body: bytes) -> bytes:
    return pa.compress(body, codec="zstd", asbytes=True)


CODINGS: dict[str, Callable[[bytes], bytes]] = {"zstd": _zstd, "gzip": _gzip}


def choose_coding(accept_encoding: str | None) -> str | None:
    """Return the coding that an Accept-Encoding header asks for, zstd where several are as good; None: as it is."""
    if not accept_encoding:
        return None
    qualities = accepted(accept_encoding)
    found = {name: qualities.get(name, qualities.get("*", 0.0)) for name in CODINGS}
    best = max(found, key=lambda name: found[name])
    return best if found[best] > 0 and found[best] >= qualities.get("identity", 0.0) else None


def encoded(body: bytes, form: Format, coding: str | None) -> tuple[bytes, str | None]:
    """Return a body as it is sent, and its coding; None for one that is sent as it is."""
    if coding is None or form.is_compressed or len(body) < LEAST_BYTES:
        return body, None
    return CODINGS[coding](body), coding
