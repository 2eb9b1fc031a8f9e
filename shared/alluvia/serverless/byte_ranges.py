"""Ranges of bytes in requests (RFC 9110, section 14). Several ranges in one request get the whole result. Pure.

Section 14.2 leaves this choice to a server, and it makes a request of many overlapping ranges harmless.
"""

from __future__ import annotations

import re

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """Return the bytes [start, end) of a Range header with one range; None: all of `size`. Empty: none of them."""
    match = _RANGE.fullmatch(header.strip())
    if match is None or match[1] == match[2] == "":
        return None
    if not match[1]:
        return (max(0, size - int(match[2])), size) if int(match[2]) else (size, size)
    start, last = int(match[1]), int(match[2] or size)
    return None if match[2] and last < start else (start, min(last + 1, size))


def is_range(header: str) -> bool:
    """Whether a header asks for one range."""
    return byte_range(header, 1) is not None


def begins(header: str) -> bool:
    """Whether a reader begins with this range: at the first byte, or with the last ones, where Parquet has its index.

    A reader that begins otherwise has asked for the size before.
    """
    return header.strip().removeprefix("bytes=").startswith(("0-", "-"))


def content_range(start: int, end: int, size: int) -> str:
    """Return the header of an answer with the bytes [start, end), or with none if the range is beyond the end."""
    return f"bytes {start}-{end - 1}/{size}" if start < end else f"bytes */{size}"
