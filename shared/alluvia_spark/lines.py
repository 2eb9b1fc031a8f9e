"""Reading the lines of a split, in blocks of complete lines, each block with its place in the file's text."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from alluvia.errors import Invalid
from alluvia.store import Store
from alluvia_spark.source import FileSplit, SourceFile

FETCH_BYTES = 8 << 20
BLOCK_BYTES = 512 << 10  # so that the events parsed from a block stay in a core's cache: twice as fast as 8 MB
TAIL_BYTES = 64 << 10
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW_BITS = 31


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines. `offset` is the place of the first byte in the file's text (what a .gz inflates to).

    `cut_bytes` is 0, or says that `data` is one line over the limit, without that many bytes at its end.
    """

    offset: int
    data: bytes
    cut_bytes: int = 0


def read_blocks(store: Store, split: FileSplit, *, line_limit_bytes: int) -> Iterator[Block]:
    """Read the lines that begin in a split; of a line far over the limit, the first `line_limit_bytes`.

    Raises `Invalid` when a .gz file is damaged or cut short, or a gzip file is not named .gz.
    """
    if split.file.is_gzip:
        return whole_lines(0, _inflate(split.file, _fetch(store, split.file, 0)), line_limit_bytes)
    return _plain_blocks(store, split, line_limit_bytes)


def _plain_blocks(store: Store, split: FileSplit, line_limit_bytes: int) -> Iterator[Block]:
    offset = split.start
    if split.start:
        offset = _next_line(store, split.file, split.start)
    elif store.get(split.file.key, 0, len(_GZIP_MAGIC)) == _GZIP_MAGIC:
        raise Invalid(f"source file {split.file.name} is gzip: name it .gz")
    end = split.end if split.end >= split.file.size else _next_line(store, split.file, split.end)
    if offset < end:
        yield from whole_lines(offset, _cut(_fetch(store, split.file, offset, end)), line_limit_bytes)


def _next_line(store: Store, file: SourceFile, position: int) -> int:
    """Return where the first line begins that begins at or after a position (the file's size if there is none)."""
    at = position - 1
    while at < file.size:
        data = store.get(file.key, at, min(at + TAIL_BYTES, file.size))
        found = data.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += TAIL_BYTES
    return file.size


def _fetch(store: Store, file: SourceFile, start: int, end: int | None = None) -> Iterator[bytes]:
    end = file.size if end is None else end
    for at in range(start, end, FETCH_BYTES):
        data = store.get(file.key, at, min(at + FETCH_BYTES, end))
        if len(data) != min(FETCH_BYTES, end - at):
            msg = f"source file {file.name} has become shorter than the {file.size} bytes it had when the job began"
            raise Invalid(msg)
        yield data


def _cut(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for at in range(0, len(piece), BLOCK_BYTES):
            yield piece[at : at + BLOCK_BYTES]


def _inflate(file: SourceFile, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Inflate gzip of any number of members, at most `BLOCK_BYTES` at a time."""
    inflater = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        for piece in pieces:
            rest = piece
            while rest:
                if inflater.eof:
                    rest = rest.lstrip(b"\0")  # padding between members, as gzip allows it
                    inflater = zlib.decompressobj(_GZIP_WINDOW_BITS) if rest else inflater
                    continue
                if text := inflater.decompress(rest, BLOCK_BYTES):
                    yield text
                rest = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
    except zlib.error as error:
        raise Invalid(f"source file {file.name} is not valid gzip: {error}") from error
    if not inflater.eof:
        raise Invalid(f"source file {file.name} is truncated: its gzip stream has no end")


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
