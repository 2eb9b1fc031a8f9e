"""Decompress a request body, but never beyond a limit."""

from __future__ import annotations

import zlib

from alluvia.errors import Invalid

MAGIC = b"\x1f\x8b\x08"
_PIECE_BYTES = 16 * 1024  # small: what is left of a piece is copied once per gzip member
_GZIP_ONLY = 31  # zlib's window bits for a gzip header and trailer


class TooLarge(Invalid):
    """The data is larger than the limit allows."""


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
                raise TooLarge(f"the body inflates to more than the limit of {limit_bytes} bytes")
            piece = member.unused_data if member.eof else member.unconsumed_tail
            if member.eof:
                member, started = zlib.decompressobj(_GZIP_ONLY), False
    if started:
        raise Invalid("the gzip data is truncated")
    return b"".join(out)
