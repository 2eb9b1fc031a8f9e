"""Compressed answers: the coding that a sender accepts, and bodies in it, whole or in parts. Pure."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from alluvia.query.formats import Format, accepted

LEAST_BYTES = 1024
"""Smaller bodies are sent as they are."""
_GZIP_LEVEL = 5
_GZIP = 16 + zlib.MAX_WBITS


def _gzip(body: bytes) -> bytes:
    return b"".join(_gzip_parts([body]))


def _gzip_parts(parts: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def _zstd(body: bytes) -> bytes:
    return pa.compress(body, codec="zstd", asbytes=True)


class _Packed(io.BytesIO):
    """Compressed bytes, until they are taken. Closing the stream into it writes the end, and does not close it."""

    def close(self) -> None:
        pass

    def take(self) -> bytes:
        data = self.getvalue()
        self.seek(0)
        self.truncate()
        return data


def _zstd_parts(parts: Iterable[bytes]) -> Iterator[bytes]:
    packed = _Packed()
    packer = pa.CompressedOutputStream(pa.PythonFile(packed, mode="w"), "zstd")
    for part in parts:
        packer.write(part)
        yield packed.take()
    packer.close()
    yield packed.take()


CODINGS: dict[str, Callable[[bytes], bytes]] = {"zstd": _zstd, "gzip": _gzip}


_OF_PARTS = {"zstd": _zstd_parts, "gzip": _gzip_parts}


def choose_coding(accept_encoding: str | None) -> str | None:
    """Return the coding that an Accept-Encoding header asks for, zstd where several are as good; None: as it is."""
    if not accept_encoding:
        return None
    qualities = accepted(accept_encoding)
    weights = {name: qualities.get(name, qualities.get("*", 0.0)) for name in CODINGS}
    best = max(weights, key=lambda name: weights[name])
    return best if weights[best] > 0 and weights[best] >= qualities.get("identity", 0.0) else None


def encoded_parts(parts: Iterable[bytes], coding: str | None) -> Iterator[bytes]:
    """Yield a body, which comes in parts, as it is stored, in parts."""
    return iter(parts) if coding is None else _OF_PARTS[coding](parts)


def encoded(body: bytes, form: Format, coding: str | None) -> tuple[bytes, str | None]:
    """Return a body as it is sent, and its coding; None for one that is sent as it is."""
    if coding is None or form.is_compressed or len(body) < LEAST_BYTES:
        return body, None
    return CODINGS[coding](body), coding
