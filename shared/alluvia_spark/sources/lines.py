"""Blocks of complete lines, each with its place in its file's text; and those of a part of a file."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from alluvia.files.file_text import PIECE_BYTES
from alluvia.store import Store
from alluvia_spark.sources.files import FileSplit, fetch, read_range


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
        data = self._fetch(self._at, end) if self._at < end else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


TAIL_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines. `offset` is the place of the first byte in the file's text (what a .gz inflates to).

    `cut_bytes` is 0, or says that `data` is one line over the limit, without that many bytes at its end. With a
    `media_type`, `data` is a body of that type instead: it has about so many `events`, the first of which is the
    `offset`-th of the file.
    """

    offset: int
    data: bytes
    cut_bytes: int = 0
    media_type: str = ""
    events: int = 0

    @property
    def end(self) -> int:
        """Return the offset of what follows."""
        return self.offset + (self.events if self.media_type else len(self.data) + self.cut_bytes)


def part_blocks(store: Store, split: FileSplit, line_limit_bytes: int) -> Iterator[Block]:
    """Read the lines that begin in a part of a file, up to the end of the last of them.

    The byte before the part tells whether a line begins with it.
    """
    at, end = max(0, split.start - 1), split.end
    pieces = chain(fetch(store, split.file, at, end, TAIL_BYTES), _tail(store, split, end + TAIL_BYTES))
    head = b""
    if split.start:
        for piece in pieces:
            head_end = piece.find(b"\n") + 1
            at += head_end or len(piece)
            if head_end or at >= end:
                head = piece[head_end:]
                break
    if at < end:
        yield from whole_lines(at, _cut(_until(at, end, chain([head], pieces))), line_limit_bytes)


def _tail(store: Store, split: FileSplit, start: int) -> Iterator[bytes]:
    """Yield what follows, more and more at a time, for a last line that is long."""
    size, length = split.file.size, TAIL_BYTES
    while start < size:
        yield read_range(store, split.file, start, min(start + length, size))
        start, length = start + length, length * 2


def _until(at: int, end: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces of a text, the first of which is at `at`, up to the first line's end at or after `end`."""
    for piece in pieces:
        stop = piece.find(b"\n", max(0, end - 1 - at)) + 1 if at + len(piece) >= end else 0
        yield piece[: stop or None]
        if stop:
            return
        at += len(piece)


def _cut(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for at in range(0, len(piece), PIECE_BYTES):
            yield piece[at : at + PIECE_BYTES]


def whole_lines(offset: int, pieces: Iterable[bytes], line_limit_bytes: int) -> Iterator[Block]:
    """Cut consecutive pieces of text, the first at `offset`, into blocks that end with a line's end or the text's.

    A line that does not fit into `line_limit_bytes` may be cut to that, and then is a block of its own.
    """
    kept = bytearray()
    dropped = 0
    for piece in pieces:
        begin, cut = 0, piece.rfind(b"\n") + 1
        if not cut:
            room = max(0, line_limit_bytes - len(kept))
            kept += piece[:room]
            dropped += max(0, len(piece) - room)
            continue
        if dropped:
            begin = piece.find(b"\n") + 1
            yield Block(offset, bytes(kept), dropped + begin - 1)
            offset += len(kept) + dropped + begin
            kept, dropped = bytearray(), 0
        kept += piece[begin:cut]
        if kept:
            yield Block(offset, bytes(kept))
        offset += len(kept)
        kept = bytearray(piece[cut:])
    if kept:
        yield Block(offset, bytes(kept), dropped)
