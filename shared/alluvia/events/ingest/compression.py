"""Which compression the first bytes of data tell, and why it cannot be read. Pure."""

from __future__ import annotations

import re

GZIP = b"\x1f\x8b"
ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes((first,)) + b"\x2a\x4d\x18" for first in range(0x50, 0x60)))
"""Zstandard begins with a frame, or with a frame to skip (RFC 8878, sections 3.1.1 and 3.1.2)."""
START_BYTES = 4
"""How many bytes tell each compression."""
_UNREAD = {
    "bzip2": re.compile(rb"BZh[1-9]"),
    "xz": re.compile(rb"\xfd7zX"),
    "zip": re.compile(rb"PK(?:\x03\x04|\x05\x06)"),
    "7z": re.compile(rb"7z\xbc\xaf"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
}
_LARGE_WINDOW = "too much memory"  # as libzstd says it: ZSTD_error_frameParameter_windowTooLarge


def unread_compression(start: bytes) -> str | None:
    """Say what to do about data that starts so, if it is compressed in a way that is never read."""
    name = next((name for name, magic in _UNREAD.items() if magic.match(start)), None)
    return None if name is None else f"the data is compressed with {name}, which is not read: use gzip, zstd or none"


def zstd_fault(error: OSError) -> str:
    """Say why zstd could not be read."""
    if _LARGE_WINDOW in str(error):
        return (
            "the window of the zstd data is larger than 128 MB: compress it with --long=27 at most, or without --long"
        )
    return f"the zstd data is damaged ({error})"
