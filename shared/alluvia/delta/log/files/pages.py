"""How many bytes the columns of a Parquet file take once decoded, from its pages' headers. Pure.

A page of a few bytes can stand for a text of a megabyte in each of thousands of rows, because a dictionary holds it
once. The footer does not show that, and its sizes may be false: only the pages are believed, as Arrow decodes them.
Source: Parquet format, "File format", "Encodings" and parquet.thrift.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from alluvia.delta.log.files.thrift import I32, STRUCT, Struct, read_struct_at

TEXT_BYTES = 16
"""At most, of what there is for a text once decoded besides itself: offsets, levels, or a view."""
FIXED_BYTES = 12
"""At most, of a number or a time."""
_TYPE, _UNPACKED, _PACKED, _DATA, _DICTIONARY, _DATA_V2 = 1, 2, 3, 5, 7, 8
"""Fields of `PageHeader`."""
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_BY_DICTIONARY = (2, 8)
_BY_PREFIX = 7
_CODECS = ("uncompressed", "snappy", "gzip", "brotli", "zstd")
FALSE = (IndexError, KeyError, TypeError, ValueError, RecursionError, struct.error, pa.ArrowException, OSError)
"""What `expansion` raises for bytes that are no pages, or Arrow for false footers."""


class _Page(NamedTuple):
    values: int
    encoding: int
    """-1 of a dictionary."""
    size: int
    """In bytes, unpacked."""
    body: bytes
    """Of a dictionary alone, packed."""


class Expansion(NamedTuple):
    """At most how many bytes a column chunk takes.

    `least` counts what is there for every value whatever it holds. `prefixed` is what a text takes at most if some
    share prefixes with those before them, else 0.
    """

    most: int
    least: int
    prefixed: int


def expansion(data: bytes, chunk: Any, width: int | None, enough: int) -> Expansion:
    """Return what a column chunk of a Parquet file takes. `width` is that of its values in bytes, None for texts.

    Its dictionary is only looked into if it could take more than `enough` bytes without.
    Raises the errors in `FALSE` for bytes that are no pages.
    """
    pages = list(_pages(data, chunk))
    values = sum(page.values for page in pages if page.encoding >= 0)
    least = sum(page.size for page in pages) + values * (width or TEXT_BYTES)
    if width is not None:
        return Expansion(least, least, 0)
    dictionary = next((page for page in pages if page.encoding < 0), None)
    longest = dictionary.size if dictionary is not None else 0
    if dictionary is not None and least <= enough < least + values * longest:
        longest = _longest(dictionary, chunk.compression.lower())
    most = least
    by_prefix = False
    for page in pages:
        if page.encoding in _BY_DICTIONARY:
            most += page.values * longest
        elif page.encoding == _BY_PREFIX:
            by_prefix = True
            most += page.values * page.size
    return Expansion(most, least, max(page.size for page in pages) if by_prefix else 0)


def _longest(dictionary: _Page, codec: str) -> int:
    """Return the length of a dictionary's longest text, or at most its size."""
    if codec not in _CODECS:
        return dictionary.size
    body = dictionary.body
    if codec != "uncompressed":
        body = pa.decompress(body, dictionary.size, codec, asbytes=True)
    stride = 4 + int.from_bytes(body[:4], "little")
    if not len(body) % stride and all(len(set(body[at::stride])) == 1 for at in range(4)):
        return stride - 4  # paths are often of one length
    at = longest = 0
    length_at = struct.Struct("<I").unpack_from
    while at < len(body):
        (length,) = length_at(body, at)
        at += 4 + length
        longest = max(longest, length)
    return longest


def _pages(data: bytes, chunk: Any) -> Iterator[_Page]:
    at, count = chunk.data_page_offset, chunk.num_values
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < at:
        at = chunk.dictionary_page_offset
    while count > 0:
        header, at = read_struct_at(data, at)
        kind, size = _number(header, _TYPE), _number(header, _UNPACKED)
        at += _number(header, _PACKED)
        if at > len(data):
            raise ValueError("a page ends after the file")
        if kind == _DICTIONARY_PAGE:
            yield _Page(0, -1, size, data[at - _number(header, _PACKED) : at])
        elif kind in (_DATA_PAGE, _DATA_PAGE_V2):
            about = _struct(header, _DATA if kind == _DATA_PAGE else _DATA_V2)
            values = _number(about, 1)
            count -= values
            yield _Page(values, _number(about, 2 if kind == _DATA_PAGE else 4), size, b"")


def _number(fields: Struct, at: int) -> int:
    found = fields[at]
    if found.kind != I32 or not 0 <= found.value < 1 << 31:
        raise ValueError(f"field {at} of a page's header is {found.value!r}")
    return int(found.value)


def _struct(fields: Struct, at: int) -> Struct:
    found = fields[at]
    if found.kind != STRUCT:
        raise ValueError(f"field {at} of a page's header is not a struct")
    value: Struct = found.value
    return value
