"""A file for libraries that read files, of which only what they read is fetched."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any


class RangedFile(io.RawIOBase):
    """A file of `size` bytes; `fetch` returns those of a range [start, end) that is within it."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        self._size = size
        self._fetch = fetch
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        end = min(self._at + len(buffer), self._size)
        found = self._fetch(self._at, end) if self._at < end else b""
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)
