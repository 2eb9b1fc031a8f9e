"""How much memory the columns of a Parquet file of actions take once decoded, bounded before anything is decoded. Pure.

A page of a few bytes can stand for a text of a megabyte in each of thousands of rows, because a dictionary holds it
once. The footer does not show that, and its sizes may be false: only the pages are believed, as Arrow decodes them.
Tables of others are read in the process that serves, and a checkpoint of 100 kB can stand for terabytes of text.

Source: Parquet format, "File format", "Encodings" and parquet.thrift.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.arrow_parquet import pq
from alluvia.delta.log.files.thrift import I32, STRUCT, Struct, read_struct_at
from alluvia.errors import Corrupt

TEXT_BYTES = 16
"""The most that a decoded text takes besides its own bytes: offsets, levels, or a view."""
FIXED_BYTES = 12
"""At most, of a number or a time."""
_TYPE, _UNPACKED, _PACKED, _DATA, _DICTIONARY, _DATA_V2 = 1, 2, 3, 5, 7, 8
"""Fields of `PageHeader`."""
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_BY_DICTIONARY = (2, 8)
_BY_PREFIX = 7
_CODECS = ("uncompressed", "snappy", "gzip", "brotli", "zstd")
FALSE = (IndexError, KeyError, TypeError, ValueError, RecursionError, struct.error, pa.ArrowException, OSError)
"""Errors of `expansion` for bytes other than pages, and of Arrow for false footers."""


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

    `least` is the size of any value, whatever it holds. `prefixed` is the most that a text takes if some
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
    field = fields[at]
    if field.kind != I32 or not 0 <= field.value < 1 << 31:
        raise ValueError(f"field {at} of a page's header is {field.value!r}")
    return int(field.value)


def _struct(fields: Struct, at: int) -> Struct:
    field = fields[at]
    if field.kind != STRUCT:
        raise ValueError(f"field {at} of a page's header is not a struct")
    value: Struct = field.value
    return value


BYTES_MAX = 1 << 30
"""What all columns that are read of a file may take: a tenth of the memory that the largest function can have."""
TIMES_MAX = 64
"""What they may take instead, in sizes of the file, so that a table of millions of files is read."""
BATCH_BYTES = 1 << 28
"""What a batch of a column may take while it is measured."""
ROWS = 4096


class Expansions:
    """What the columns of one file take once decoded, as far as they have been asked for."""

    def __init__(self, name: str, data: bytes, file: Any) -> None:
        self._name = name
        self._data = data
        self._file = file
        self._limit = max(BYTES_MAX, TIMES_MAX * len(data))
        self._known: dict[tuple[int, int], Expansion] = {}
        self._total = 0

    def check(self, group: int, names: Sequence[str]) -> None:
        """Raise `Corrupt` if columns of a row group would take too much with all that were checked before."""
        try:
            leaves = self._file._get_column_indices(names)  # noqa: SLF001 - the columns that pyarrow will decode
            new = [leaf for leaf in leaves if (group, leaf) not in self._known]
            if new:
                self._vet(group, new)
            for leaf in new:
                self._add(group, leaf)
            if self._total > self._limit:
                self._measure()
        except FALSE as error:
            raise Corrupt(f"{self._name} is not a readable Parquet file: {error}") from error

    def _vet(self, group: int, leaves: Sequence[int]) -> None:
        """Have Arrow open columns, and decode no row: what it then says of a false footer is an error.

        Its accessors of the same columns end the process on it.
        """
        for _ in self._file.reader.iter_batches(0, row_groups=[group], column_indices=leaves, use_threads=False):
            pass

    def _add(self, group: int, leaf: int) -> None:
        column = self._file.schema.column(leaf)
        width = max(FIXED_BYTES, column.length) if column.physical_type != "BYTE_ARRAY" else None
        chunk = self._file.metadata.row_group(group).column(leaf)
        bounds = self._known[group, leaf] = expansion(self._data, chunk, width, self._limit - self._total)
        self._total += bounds.most

    def _measure(self) -> None:
        """Look closer at the columns that could take more than is sure. Raises `Corrupt` if they do."""
        for (group, leaf), bounds in sorted(self._known.items(), key=lambda item: -item[1].most):
            if bounds.least < bounds.most and sum(each.least for each in self._known.values()) <= self._limit:
                size = self._measured(group, self._file.schema.column(leaf), bounds)
                self._known[group, leaf] = Expansion(size, size, 0)
                self._total += size - bounds.most
            if self._total <= self._limit:
                return
        group, leaf = max(self._known, key=lambda at: self._known[at].most)
        raise self._too_large(group, self._file.schema.column(leaf).path)

    def _measured(self, group: int, column: Any, bounds: Expansion) -> int:
        """Return what a column of texts takes, or more than the limit. Each text is decoded once, and counted."""
        if column.converted_type == "DECIMAL":
            return bounds.most
        rows, dictionaries = ROWS, [column.path]
        if bounds.prefixed:  # which Arrow cannot read into a dictionary
            if column.max_repetition_level:
                return bounds.most
            rows, dictionaries = max(1, min(ROWS, BATCH_BYTES // bounds.prefixed)), []
        source, metadata = pa.BufferReader(self._data), self._file.metadata
        file = pq.ParquetFile(source, metadata=metadata, read_dictionary=dictionaries)
        size = bounds.least
        for batch in file.iter_batches(rows, row_groups=[group], columns=[column.path], use_threads=False):
            for texts in _texts(batch.column(0)):
                size += _bytes_of(texts)
            if size > self._limit:
                break
        return size

    def _too_large(self, group: int, column: str) -> Corrupt:
        return Corrupt(
            f"{self._name} has {len(self._data)} bytes, but its columns take more than {self._limit} once decoded, "
            f"with {column} in row group {group}: write the table's checkpoint anew without such long texts, "
            f"or delete this one if the commits before it are still there"
        )


def _texts(values: pa.Array) -> list[pa.Array]:
    if isinstance(values, pa.StructArray):
        return [each for at in range(values.type.num_fields) for each in _texts(values.field(at))]
    if isinstance(values, pa.ListArray | pa.LargeListArray | pa.MapArray):
        return _texts(values.flatten())
    return [values]


def _bytes_of(texts: pa.Array) -> int:
    """Return how many bytes texts take, each as often as it occurs."""
    if isinstance(texts, pa.DictionaryArray):
        lengths = pc.binary_length(texts.dictionary)
        return int(pc.sum(lengths.cast(pa.int64()).take(texts.indices)).as_py() or 0)
    return int(texts.nbytes)
