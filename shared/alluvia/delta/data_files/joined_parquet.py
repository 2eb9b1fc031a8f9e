"""Join Parquet files into one, without reading their rows: so threads can encode row groups of a file apart.

The bytes of row groups stay as they are, one part after another. The footer has the row groups of all parts, with what
it says of their places moved. Source: Parquet format, "File format" and parquet.thrift.
"""

from __future__ import annotations

from typing import Any, BinaryIO

from alluvia.delta.log.files.thrift import Field, Items, Struct, read_struct, written_struct
from alluvia.delta.statistics.footer import TAIL_BYTES, footer_size

MAGIC = b"PAR1"
_FILE_ROWS, _FILE_ROW_GROUPS = 3, 4
_GROUP_COLUMNS, _GROUP_PLACE, _GROUP_ORDINAL = 1, 5, 7
_CHUNK_PLACES, _CHUNK_METADATA, _CHUNK_INDEXES = (2,), 3, {4, 6}
"""Where the column's metadata are, the metadata, and where its page indexes are."""
_COLUMN_PLACES = (9, 10, 11, 14)
"""Where its pages of values, of an index and of the dictionary, and its Bloom filter are."""


class JoinedParquet:
    """A Parquet file that is made of parts: whole Parquet files of the same columns.

    They have neither encryption nor page indexes. `close` it in the end; without a part, the file is empty.
    """

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._footer: Struct = {}
        self._groups: list[Any] = []
        self._rows = 0
        self.size = 0

    def add(self, part: bytes) -> None:
        """Write the row groups of a part behind the earlier ones. Raises `ValueError` for one with page indexes."""
        end = len(part) - footer_size(part[-TAIL_BYTES:])
        footer = read_struct(part[end:])
        if not self._footer:
            self._write(MAGIC)
            self._footer = footer
        by = self.size - len(MAGIC)
        self._write(memoryview(part)[len(MAGIC) : end])
        for group in footer[_FILE_ROW_GROUPS].value.values:
            _move(group, by, len(self._groups))
            self._groups.append(group)
        self._rows += footer[_FILE_ROWS].value

    def close(self) -> None:
        """Write the footer."""
        if not self._footer:
            return
        rows, groups = self._footer[_FILE_ROWS], self._footer[_FILE_ROW_GROUPS]
        self._footer[_FILE_ROWS] = Field(rows.kind, self._rows)
        self._footer[_FILE_ROW_GROUPS] = Field(groups.kind, Items(groups.value.kind, self._groups))
        footer = written_struct(self._footer)
        self._write(footer + len(footer).to_bytes(4, "little") + MAGIC)

    def _write(self, data: bytes | memoryview) -> None:
        self._sink.write(data)
        self.size += len(data)


def _move(group: Struct, by: int, ordinal: int) -> None:
    """Move the places of a row group by a number of bytes, and set which of the file's row groups it is."""
    _move_places(group, (_GROUP_PLACE,), by)
    if _GROUP_ORDINAL in group:
        group[_GROUP_ORDINAL] = group[_GROUP_ORDINAL]._replace(value=ordinal)
    for chunk in group[_GROUP_COLUMNS].value.values:
        if not _CHUNK_INDEXES.isdisjoint(chunk):  # which say for each page where it is
            raise ValueError("a part of a Parquet file has page indexes")
        _move_places(chunk, _CHUNK_PLACES, by)
        _move_places(chunk[_CHUNK_METADATA].value, _COLUMN_PLACES, by)


def _move_places(struct: Struct, ids: tuple[int, ...], by: int) -> None:
    for at in ids:
        field = struct.get(at)
        if field is not None and field.value:  # 0: not said
            struct[at] = Field(field.kind, field.value + by)
