"""Parquet files whose footers say what is not so."""

from __future__ import annotations

from collections.abc import Callable

from alluvia.delta.log.files.thrift import Field, Items, Struct, read_struct, written_struct

_MAGIC = b"PAR1"
_ROW_GROUPS, _COLUMNS, _META_DATA, _TYPE, _SIZES, _REPETITION, _DEFINITION = 4, 1, 3, 1, 16, 2, 3
"""Fields of `FileMetaData`, `RowGroup`, `ColumnChunk`, `ColumnMetaData` and `SizeStatistics` in parquet.thrift."""
_DATA_PAGE, _DICTIONARY_PAGE = 9, 11
"""Fields of `ColumnMetaData` for the places of pages."""
_FLOAT = 4
_I64, _LIST, _STRUCT = 6, 9, 12
"""Types of Thrift."""


def footer_of(data: bytes) -> tuple[int, int]:
    """Return where the footer of a file begins and ends."""
    end = len(data) - len(_MAGIC) - 4
    return end - int.from_bytes(data[end : end + 4], "little"), end


def of_another_type(data: bytes) -> bytes:
    """Return a file whose first column has another type in its first row group than in the schema.

    pyarrow aborts the process that looks at that column's statistics.
    """
    return _changed(data, lambda column: column.update({_TYPE: Field(column[_TYPE].kind, _FLOAT)}))


def with_false_levels(data: bytes) -> bytes:
    """Return a file whose first column has counts of more levels than there are, in its first row group.

    pyarrow aborts the process that looks at that column.
    """
    levels = Field(_LIST, Items(_I64, [1, 2, 3]))
    sizes = Field(_STRUCT, {_REPETITION: levels, _DEFINITION: levels})
    return _changed(data, lambda column: column.update({_SIZES: sizes}))


def without_dictionary_offset(data: bytes) -> bytes:
    """Return a file whose footer does not name the dictionary of its first column, as old writers leave it out."""

    def change(column: Struct) -> None:
        column[_DATA_PAGE] = column.pop(_DICTIONARY_PAGE)

    return _changed(data, change)


def _changed(data: bytes, change: Callable[[Struct], None]) -> bytes:
    start, end = footer_of(data)
    footer = read_struct(data[start:end])
    change(footer[_ROW_GROUPS].value.values[0][_COLUMNS].value.values[0][_META_DATA].value)
    written = written_struct(footer)
    return data[:start] + written + len(written).to_bytes(4, "little") + _MAGIC
