"""How long the values in the dictionaries of a Parquet file are, without the columns that they are in.

Arrow reads a dictionary value by value into a hash table, which takes as long as reading all rows of a column of many
values. A dictionary's page holds its values as a plain data page of a required column holds its own, so they are read
as such pages, those of a row group as one file. Source: Parquet format, "Dictionary Encoding", and parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import IO, NamedTuple

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.arrow_parquet import pq
from alluvia.delta.log.files.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    Items,
    Struct,
    read_struct_at,
    written_struct,
)

MAGIC = b"PAR1"
_HEADER_BYTES = 1 << 10
"""More than the header of such a page takes."""
_DATA, _DICTIONARY = 0, 2
"""Types of pages."""
_PLAIN, _PLAIN_DICTIONARY, _RLE = 0, 2, 3
_HELD_BYTES = 16 << 20
"""How much of the pages of a row group is held at once."""
_LENGTH_BYTES = 4
"""Before each value stands its length."""
_BYTE_ARRAY = 6
_REQUIRED = 0
_CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6, "LZ4": 7}
_DATA_STARTS = (b"\x15\x00", b"\x15\x06")
"""With these begin the headers of data pages of both versions: field 1 is the type, 0 or 3."""
_DAMAGE = (AttributeError, IndexError, KeyError, OSError, RecursionError, TypeError, ValueError)
"""Errors of reading a damaged header, also at a place that no file has."""


class _Page(NamedTuple):
    """A dictionary's page as a data page: its number of values and size inflated, its codec, header and content."""

    values: int
    size: int
    codec: int
    header: bytes
    content: bytes


def has_dictionary(stream: IO[bytes], chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether a column chunk begins with a dictionary, also one that the footer does not name, or with no page."""
    if chunk.has_dictionary_page:
        return True
    try:
        stream.seek(chunk.data_page_offset)
        return stream.read(2) not in _DATA_STARTS
    except _DAMAGE:
        return True


def longest_values(stream: IO[bytes], chunks: Mapping[int, pq.ColumnChunkMetaData]) -> dict[int, int]:
    """Return how many bytes the longest value in the dictionary of each text column of a row group has.

    Columns are left out whose dictionary is empty, missing, damaged, or compressed in another way than Arrow reads.
    """
    longest: dict[int, int] = {}
    pages: dict[int, _Page] = {}
    held = 0
    for at, chunk in chunks.items():
        page = _page(stream, chunk)
        if page is None:
            continue
        pages[at] = page
        held += len(page.content)
        if held > _HELD_BYTES:
            longest.update(_measured(pages))
            pages, held = {}, 0
    longest.update(_measured(pages))
    return longest


def _measured(pages: Mapping[int, _Page]) -> Iterator[tuple[int, int]]:
    """Yield the longest value of each page that Arrow can read."""
    file = pq.ParquetFile(pa.BufferReader(_file_of(list(pages.values()))))
    for number, at in enumerate(pages):
        try:
            [values] = file.read_row_group(number, use_threads=False).columns
        except (pa.ArrowException, OSError):
            continue
        size = pc.max(pc.binary_length(values)).as_py()
        if size is not None:
            yield at, size


def _page(stream: IO[bytes], chunk: pq.ColumnChunkMetaData) -> _Page | None:
    """Return the dictionary with which a column chunk begins; None if it cannot be read."""
    try:
        first = chunk.dictionary_page_offset or 0
        start = first if 0 < first < chunk.data_page_offset else chunk.data_page_offset  # as Arrow finds it
        stream.seek(start)
        header, length = read_struct_at(stream.read(_HEADER_BYTES), 0)
        kind, size, packed, about = (header[at].value for at in (1, 2, 3, 7))
        values, encoding = about[1].value, about[2].value
        whole = 0 <= packed <= chunk.total_compressed_size and 0 <= size <= chunk.total_uncompressed_size
        whole = whole and 0 <= values * _LENGTH_BYTES <= size
        if kind != _DICTIONARY or encoding not in (_PLAIN, _PLAIN_DICTIONARY) or not whole:
            return None
        stream.seek(start + length)
        content = stream.read(packed)
        as_data = {1: _i32(values), 2: _i32(_PLAIN), 3: _i32(_RLE), 4: _i32(_RLE)}
        changed = {1: _i32(_DATA), 2: _i32(size), 3: _i32(packed), 5: Field(STRUCT, as_data)}
        return _Page(values, size, _CODECS[chunk.compression], written_struct(changed), content)
    except _DAMAGE:
        return None


def _file_of(pages: list[_Page]) -> bytes:
    """Return a file of one column, in which each page is a row group."""
    parts, at = [MAGIC], len(MAGIC)
    groups = []
    for page in pages:
        groups.append(_group(page, at))
        parts += [page.header, page.content]
        at += len(page.header) + len(page.content)
    root: Struct = {4: _text(b"root"), 5: _i32(1)}
    leaf: Struct = {1: _i32(_BYTE_ARRAY), 3: _i32(_REQUIRED), 4: _text(b"value")}
    footer: Struct = {
        1: _i32(1),
        2: Field(LIST, Items(STRUCT, [root, leaf])),
        3: _i64(sum(page.values for page in pages)),
        4: Field(LIST, Items(STRUCT, groups)),
    }
    data = written_struct(footer)
    return b"".join([*parts, data, len(data).to_bytes(4, "little"), MAGIC])


def _group(page: _Page, at: int) -> Struct:
    packed = len(page.header) + len(page.content)
    about: Struct = {
        1: _i32(_BYTE_ARRAY),
        2: Field(LIST, Items(I32, [_PLAIN, _RLE])),
        3: Field(LIST, Items(BINARY, [b"value"])),
        4: _i32(page.codec),
        5: _i64(page.values),
        6: _i64(len(page.header) + page.size),
        7: _i64(packed),
        9: _i64(at),
    }
    chunk: Struct = {2: _i64(at), 3: Field(STRUCT, about)}
    return {1: Field(LIST, Items(STRUCT, [chunk])), 2: _i64(page.size), 3: _i64(page.values)}


def _i32(number: int) -> Field:
    return Field(I32, number)


def _i64(number: int) -> Field:
    return Field(I64, number)


def _text(name: bytes) -> Field:
    return Field(BINARY, name)
