"""From the bytes of a file to its text in UTF-8. The first bytes tell gzip and zstd, UTF-16 and UTF-32. Pure."""

from __future__ import annotations

import codecs
import io
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.events.ingest.compression import GZIP, START_BYTES, ZSTD, unread_compression, zstd_fault

PIECE_BYTES = 512 << 10  # so that the events parsed from a piece stay in a core's cache: twice as fast as 8 MB
_CHUNK_BYTES = 1 << 20
_GZIP_PIECE_BYTES = 64 << 10  # small: what is left of a piece is copied once per gzip member
_PARQUET = b"PAR1"
_GZIP_WINDOW_BITS = 31
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
MARK = codecs.BOM_UTF8


class Damaged(Invalid):
    """A file's data cannot be read, or not further."""


def is_parquet(start: bytes) -> bool:
    """Whether a file that starts so is Parquet."""
    return start.startswith(_PARQUET)


def is_plain(start: bytes) -> bool:
    """Whether a file that starts so is its own text, in UTF-8."""
    return not start.startswith((GZIP, *ZSTD, *_MARKS)) and unread_compression(start) is None


def text_pieces(pieces: Iterable[bytes], encoding: str = "") -> Iterator[bytes]:
    """Yield the text of a file whose bytes come in pieces, in pieces of at most `PIECE_BYTES`.

    `encoding`: of a file without a byte order mark, as `codec_named` returns it. A file of UTF-8 keeps its byte order
    mark. An unpaired surrogate of UTF-16 becomes bytes that are not valid UTF-8.
    Raises `Damaged`, after what came before the damage.
    """
    start, pieces = _started(pieces)
    if start.startswith(GZIP):
        start, pieces = _started(_gunzipped(pieces))
    elif start.startswith(ZSTD):
        start, pieces = _started(_unzstd(pieces))
    if (why := unread_compression(start)) is not None:
        raise Damaged(why)
    marked = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
    if marked is not None:
        pieces = _recoded(pieces, marked, mark_chars=1)
    elif encoding and not start.startswith(MARK):
        pieces = _recoded(pieces, encoding, mark_chars=0)
    yield from _cut(pieces, PIECE_BYTES)


def text_start(start: bytes) -> bytes:
    """Return how the text of a file begins, inflated, from its first bytes; `b""` if these are too few to tell."""
    try:
        return next(text_pieces([start]), b"")[:_CHUNK_BYTES]
    except Damaged:
        return b""


def _cut(pieces: Iterable[bytes], bytes_max: int) -> Iterator[bytes]:
    for piece in pieces:
        for at in range(0, len(piece), bytes_max):
            yield piece[at : at + bytes_max]


def _started(pieces: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes, as far as they tell what a file is, and all pieces."""
    pieces, start = iter(pieces), b""
    while len(start) < START_BYTES and (piece := next(pieces, None)) is not None:
        start += piece
    return start[:START_BYTES], chain([start], pieces)


def _gunzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Inflate gzip of any number of members."""
    inflater = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        for piece in _cut(pieces, _GZIP_PIECE_BYTES):
            rest = piece
            while rest:
                if inflater.eof:
                    rest = rest.lstrip(b"\0")  # padding between members, as gzip allows it
                    inflater = zlib.decompressobj(_GZIP_WINDOW_BITS) if rest else inflater
                    continue
                if text := inflater.decompress(rest, PIECE_BYTES):
                    yield text
                rest = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
    except zlib.error as error:
        raise Damaged(f"the gzip data is damaged ({error})") from error
    if not inflater.eof:
        raise Damaged("the gzip data is damaged (it ends before its end)")


def _unzstd(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Inflate zstd of any number of frames."""
    source = pa.CompressedInputStream(buffered(pieces), "zstd")
    try:
        while text := source.read(PIECE_BYTES):
            yield text
    except OSError as error:
        raise Damaged(zstd_fault(error)) from error


def _recoded(pieces: Iterable[bytes], encoding: str, mark_chars: int) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    try:
        for piece, last in chain(((piece, False) for piece in pieces), [(b"", True)]):
            text = decoder.decode(piece, last)
            yield text[mark_chars:].encode("utf-8", "surrogatepass")
            mark_chars = mark_chars if not text else 0
    except UnicodeError as error:
        raise Damaged(f"the text is not valid {encoding.upper()}") from error


def buffered(pieces: Iterable[bytes]) -> io.BufferedReader[Any]:
    """Return a file whose bytes are some pieces."""
    return io.BufferedReader(_Pieces(iter(pieces)), _CHUNK_BYTES)


class _Pieces(io.RawIOBase):
    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = memoryview(piece)
        part = self._piece[: len(buffer)]
        buffer[: len(part)] = part
        self._piece = self._piece[len(part) :]
        return len(part)
