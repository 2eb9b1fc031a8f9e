"""Where the columns of a Parquet file's row groups lie. Pure.

The footer may be anybody's, and Arrow ends the process for some that contradict themselves, so it is read field by
field. Source: parquet.thrift, `FileMetaData`, `RowGroup`, `ColumnChunk`, `ColumnMetaData`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from alluvia.delta.log.files.thrift import Struct, read_struct

_MAGIC_BYTES = 4
_ROW_GROUPS, _COLUMNS, _METADATA = 4, 1, 3
_PATH, _SIZE, _DATA_PAGE, _DICTIONARY_PAGE = 3, 7, 9, 11


class ColumnChunks:
    """Where columns lie in a file, up to its last bytes, which are known."""

    def __init__(self, footer: bytes, size: int, known: int) -> None:
        """`size` is the file's, and `known` is how many of its last bytes are.

        Raises `ValueError` for a footer that is not one.
        """
        try:
            groups = [_chunks(group, size, size - known) for group in read_struct(footer)[_ROW_GROUPS].value.values]
        except (LookupError, AttributeError, TypeError, RecursionError) as error:
            raise ValueError("not the footer of a Parquet file") from error
        self._groups = sorted((group for group in groups if group), key=lambda group: min(group.values()))
        self._starts = [min(group.values())[0] for group in self._groups]

    def __len__(self) -> int:
        """Return how many columns of row groups there are."""
        return sum(map(len, self._groups))

    def at(self, start: int) -> tuple[int, Mapping[str, tuple[int, int]]]:
        """Return the number of the row group that a position is in, and where its columns lie, by path; -1 for none."""
        number = bisect_right(self._starts, start) - 1
        return number, self._groups[number] if number >= 0 else {}


def _chunks(group: Struct, size: int, end: int) -> dict[str, tuple[int, int]]:
    """Return where columns of a row group begin and end, those left out that do not lie in the file."""
    found = {}
    for chunk in group[_COLUMNS].value.values:
        about = chunk[_METADATA].value
        start = about[_DATA_PAGE].value
        if _DICTIONARY_PAGE in about and 0 < about[_DICTIONARY_PAGE].value < start:
            start = about[_DICTIONARY_PAGE].value
        stop = start + about[_SIZE].value
        if _MAGIC_BYTES <= start < min(stop, end) and stop <= size:
            path = ".".join(name.decode() for name in about[_PATH].value.values)
            found[path] = (start, min(stop, end))
    return found
