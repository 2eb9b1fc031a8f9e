"""Decompression within a limit. The first bytes of data tell how it is compressed, or why it cannot be read. Pure."""

from __future__ import annotations

import re
import zlib

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.events.ingest.values import TOO_MANY_BYTES

GZIP = b"\x1f\x8b"
ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes((first,)) + b"\x2a\x4d\x18" for first in range(0x50, 0x60)))
"""Zstandard begins with a frame, or with a frame to skip (RFC 8878, sections 3.1.1 and 3.1.2)."""
START_BYTES = 4
"""How many bytes tell each compression."""
_UNREAD = {
    "bzip2": re.compile(rb"BZh[1-9]"),
    "xz": re.compile(rb"\xfd7zX"),
    "7z": re.compile(rb"7z\xbc\xaf"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
}
_ZIP, _OLD_EXCEL = (b"PK\x03\x04", b"PK\x05\x06"), b"\xd0\xcf\x11\xe0"
_LARGE_WINDOW = "too much memory"  # as libzstd says it: ZSTD_error_frameParameter_windowTooLarge


def unread_compression(start: bytes) -> str | None:
    """Say what to do about data that starts so, if it is compressed in a way that is never read."""
    if start.startswith(_ZIP):
        return (
            "the data is a zip archive, as an Excel workbook (.xlsx) is: save the sheet as CSV UTF-8, or compress with "
            "gzip or zstd"
        )
    if start.startswith(_OLD_EXCEL):
        return "the data is a workbook of old Excel (.xls), which is not read: save the sheet as CSV UTF-8"
    name = next((name for name, magic in _UNREAD.items() if magic.match(start)), None)
    return None if name is None else f"the data is compressed with {name}, which is not read: use gzip, zstd or none"


def zstd_fault(error: OSError) -> str:
    """Say why zstd could not be read."""
    if _LARGE_WINDOW in str(error):
        return (
            "the window of the zstd data is larger than 128 MB: compress it with --long=27 at most, or without --long"
        )
    return f"the zstd data is damaged ({error})"


_ENCODINGS = ("", "identity", "gzip", "x-gzip", "zstd", "deflate")
_GZIP_MAGIC = b"\x1f\x8b\x08"
_PIECE_BYTES = 16 * 1024  # small: what is left of a piece is copied once per gzip member
_GZIP_ONLY = 31  # zlib's window bits for a gzip header and trailer
_BOMB = "the body inflates to more than the limit of {} bytes"


class TooLarge(Invalid):
    """The data is larger than the limit allows."""


class UnknownEncoding(Invalid):
    """The data is compressed in a way that is never read."""


def inflate(body: bytes, content_encoding: str | None, limit_bytes: int) -> bytes:
    """Return the bytes of a body sent with gzip, zstd or deflate (zlib), or with none.

    Gzip and zstd are recognised by their first bytes, with or without the header, as some proxies inflate and leave the
    header. Raises TooLarge beyond the limit, UnknownEncoding for another one, Invalid if the data is damaged.
    """
    encoding = known_encoding(content_encoding)
    if body.startswith(_GZIP_MAGIC):
        return gunzip(body, limit_bytes)
    if body.startswith(ZSTD):
        return unzstd(body, limit_bytes)
    if (why := unread_compression(body)) is not None:
        raise UnknownEncoding(why)
    if encoding == "deflate" and _is_zlib(body):
        return _unzlib(body, limit_bytes)
    if len(body) > limit_bytes:
        raise TooLarge(TOO_MANY_BYTES.format(what="body", size=len(body), limit=limit_bytes))
    return body


def known_encoding(content_encoding: str | None) -> str:
    """Return a Content-Encoding in lower case, "" for none. Raises UnknownEncoding for one that is never read."""
    encoding = (content_encoding or "").strip().lower()
    if encoding not in _ENCODINGS:
        raise UnknownEncoding(
            f"Content-Encoding {encoding!r:.99} is not supported: send gzip, zstd or deflate, or none"
        )
    return encoding


def unzstd(data: bytes, limit_bytes: int) -> bytes:
    """Inflate one or more Zstandard frames (RFC 8878). TooLarge as soon as the limit is passed; Invalid if damaged."""
    try:
        text = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(limit_bytes + 1)
    except OSError as error:
        raise Invalid(zstd_fault(error)) from None
    return _within(text, limit_bytes)


def gunzip(data: bytes, limit_bytes: int) -> bytes:
    """Inflate one or more gzip members (RFC 1952). TooLarge as soon as the limit is passed; Invalid if damaged."""
    out: list[bytes] = []
    size = 0
    member = zlib.decompressobj(_GZIP_ONLY)
    started = False
    for start in range(0, len(data), _PIECE_BYTES):
        piece = data[start : start + _PIECE_BYTES]
        while piece:
            if not started and not piece.strip(b"\0"):  # zeros after the last member are padding
                break
            started = True
            try:
                inflated = member.decompress(piece, limit_bytes + 1 - size)
            except zlib.error as error:
                raise Invalid(f"the gzip data is damaged: {error}") from None
            out.append(inflated)
            size += len(inflated)
            if size > limit_bytes:
                raise TooLarge(_BOMB.format(limit_bytes))
            piece = member.unused_data if member.eof else member.unconsumed_tail
            if member.eof:
                member, started = zlib.decompressobj(_GZIP_ONLY), False
    if started:
        raise Invalid("the gzip data is truncated")
    return b"".join(out)


def _is_zlib(data: bytes) -> bool:
    """Whether data begins with the header of RFC 1950, with a window that every decoder has."""
    return len(data) > 1 and data[0] & 0x0F == 8 and data[0] >> 4 <= 7 and int.from_bytes(data[:2]) % 31 == 0


def _unzlib(data: bytes, limit_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        text = _within(stream.decompress(data, limit_bytes + 1), limit_bytes)
    except zlib.error as error:
        raise Invalid(f"the deflate data is damaged: {error}") from None
    if not stream.eof or stream.unused_data:
        raise Invalid("the deflate data is truncated, or has more after its end")
    return text


def _within(text: bytes, limit_bytes: int) -> bytes:
    if len(text) > limit_bytes:
        raise TooLarge(_BOMB.format(limit_bytes))
    return text
