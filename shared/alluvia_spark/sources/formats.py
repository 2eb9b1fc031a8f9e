"""From the bytes of a source file to blocks of events, whatever its format: as bulk ingestion reads files.

Only NDJSON in UTF-8 that is not compressed can be read from anywhere. Any other file is read by one task.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from alluvia.files.event_files import (
    NDJSON,
    Pieces,
    csv_parts,
    csv_type,
    has_lines,
    is_complete,
    parquet_parts,
    value_parts,
)
from alluvia.files.file_text import MARK, PIECE_BYTES, Damaged, buffered, is_parquet, is_plain, text_pieces
from alluvia.files.limits import Misfit
from alluvia.store import Store
from alluvia_spark.sources.files import FETCH_BYTES, BadFile, FileSplit, SourceFile, fetch, read_range
from alluvia_spark.sources.lines import Block, RangedFile, part_blocks, whole_lines

PROBE_BYTES = 64 << 10
_COMPRESSED = (".gz", ".gzip", ".zst", ".zstd")
_PARQUET = (".parquet", ".pq")
_SPACE = b" \t\r\n"


def may_be_lines(key: str, kind: str | None) -> bool:
    """Whether a file's name allows it to be NDJSON that is not compressed."""
    other = kind not in (None, "json") or csv_type(key, kind) is not None
    return not other and PurePosixPath(key.lower()).suffix not in (*_COMPRESSED, *_PARQUET)


def is_lines(start: bytes) -> bool:
    """Whether a file that starts so, and is longer, is NDJSON in UTF-8."""
    if not is_plain(start) or is_parquet(start):
        return False
    text = start.removeprefix(MARK).lstrip(_SPACE)
    first, ended, rest = text.partition(b"\n")
    if text.startswith(b"["):
        return bool(ended and rest.strip() and is_complete(first))
    return not (text.startswith(b"{") and ended) or is_complete(first) or has_lines(text)


def read_blocks(store: Store, split: FileSplit, *, line_limit_bytes: int, kind: str | None = None) -> Iterator[Block]:
    """Read the events of a split; of a line far over the limit, the first `line_limit_bytes`.

    `kind` is the format of the file; None if it tells. Raises `BadFile` when the file is missing or damaged, after what
    came before the damage; `Invalid` when it has changed.
    """
    if not split.is_whole:
        return part_blocks(store, split, line_limit_bytes)
    return _whole_file(store, split.file, line_limit_bytes, kind)


def parquet_rows(store: Store, file: SourceFile, kind: str | None) -> int | None:
    """Return how many rows a file of Parquet has, by its footer; None for other files, and for one that is damaged."""
    if kind == "parquet" or (kind is None and is_parquet(read_range(store, file, 0, min(4, file.size)))):
        import pyarrow.parquet as pq

        try:
            first = read_range(store, file, 0, file.size) if file.size <= FETCH_BYTES else b""
            return pq.ParquetFile(_opened(store, file, first)).metadata.num_rows
        except (OSError, pa.ArrowException):
            return None
    return None


def _whole_file(store: Store, file: SourceFile, line_limit_bytes: int, kind: str | None) -> Iterator[Block]:
    pieces = fetch(store, file, 0, file.size)
    end = 0
    try:
        first = next(pieces, b"")
        if kind == "parquet" or (kind is None and is_parquet(first)):
            blocks = _numbered(parquet_parts(partial(_opened, store, file, first)), NDJSON)
        else:
            _check_name(file, first)
            blocks = _text_blocks(file, text_pieces(chain([first], pieces)), line_limit_bytes, kind)
        for block in blocks:
            yield block
            end = block.end
    except (Damaged, Misfit, OSError, pa.ArrowException) as error:
        raise BadFile(file.name, f"cannot be read further: {error}", end) from error


def _check_name(file: SourceFile, start: bytes) -> None:
    if PurePosixPath(file.key.lower()).suffix in _COMPRESSED and is_plain(start):
        opening = start.removeprefix(MARK).lstrip(_SPACE)[:1]
        if opening not in (b"{", b"["):
            raise Damaged("its data is not what its name says")


def _text_blocks(file: SourceFile, text: Iterator[bytes], line_limit: int, kind: str | None) -> Iterator[Block]:
    media_type = csv_type(file.key, kind)
    if media_type is not None:
        return _numbered(csv_parts(buffered(text), media_type), media_type)
    first = next(text, b"")
    text = chain([first], text)
    if not _starts_with_line(first):
        source = buffered(text)
        value, start = value_parts(source)
        if value is not None:
            return _numbered(value, NDJSON)
        text = chain([start], iter(partial(source.read1, PIECE_BYTES), b""))
    return whole_lines(0, text, line_limit)


def _starts_with_line(text: bytes) -> bool:
    """Whether lines begin with an object, so that no further look is needed."""
    first, ended, _ = text.removeprefix(MARK).lstrip(_SPACE).partition(b"\n")
    return first.startswith(b"{") and bool(ended) and is_complete(first)


def _numbered(parts: Pieces, media_type: str) -> Iterator[Block]:
    position = 0
    for data, events in parts:
        yield Block(position, data, media_type=media_type, events=events)
        position += events


def _opened(store: Store, file: SourceFile, first: bytes) -> io.BufferedReader[Any]:
    """Return a file that is read from anywhere."""
    if file.size <= FETCH_BYTES:
        return io.BufferedReader(io.BytesIO(first))
    return io.BufferedReader(RangedFile(file.size, partial(read_range, store, file)), 1)
