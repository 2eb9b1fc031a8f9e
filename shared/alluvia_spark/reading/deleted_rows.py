"""Which rows of files are deleted, as an expression of Spark's or as a DataFrame to join with. Pure, but for Spark.

A row's number is looked up in one bitmap for all files, which costs less than a join, and next to nothing where the row
is live. Only where the bit is set, the file counts: one has the number among its deleted rows, or none has. The bitmap
of few numbers has these modulo its size: what it takes to plan a read grows with the constants in it.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark knows it

FILE, ROW = "__alluvia_file", "__alluvia_row"
"""Columns of a scan: the file, as Spark names it, and the row's number in it."""
NUMBERS_MAX = 1 << 18
"""More numbers of deleted rows make a plan that is too big to send to each task."""
ROWS_MAX = 1 << 23
"""A bitmap is for this many rows of a file at most."""
NAMES_COMPARED_MAX = 8
"""Comparing this many names for each row costs about as much as a join."""
_PAGE_BITS = 12
_WORD_BITS = 64
_BITS_A_NUMBER, _BITS_A_FILE = 8, 4
"""A bigger bitmap makes Spark plan longer; with a smaller one more rows are looked up further, file by file."""
_NO_NUMBER = (
    'Spark does not number the rows of a file, some of which are deleted: read the table with format("alluvia")'
)


class DeletedRows:
    """The numbers of deleted rows, ascending, by the file's key; none is empty. `alone` is true for the only file."""

    def __init__(self, numbers: Mapping[str, pa.Int64Array], *, alone: bool) -> None:
        self.alone = alone
        self._numbers = numbers

    def condition(self, row: str = ROW) -> Column | None:
        """Return whether a row is deleted, by `FILE` (unless alone) and its number; None where a join costs less.

        It is never null, and a row without a number is an error.
        """
        if sum(map(len, self._numbers.values())) > NUMBERS_MAX:
            return None
        numbers: dict[str, list[Any]] = {key: each.to_pylist() for key, each in self._numbers.items()}
        highest: int = max(each[-1] for each in numbers.values())
        every = {number for each in numbers.values() for number in each}
        size = _bitmap_bits(len(every), len(numbers), highest)
        if highest >= ROWS_MAX or len(every) * len(numbers) > NAMES_COMPARED_MAX * size:
            return None
        number = f"`{row}`"
        known = f"coalesce({number}, cast(raise_error('{_NO_NUMBER}') as bigint))"  # or deleted rows would come back
        modulo = number if size > highest else f"{number} & {size - 1}"
        word = f"coalesce(get({_words(every, size)}, cast(shiftright({modulo}, 6) as int)), 0)"  # 0 beyond its end
        in_bitmap = f"getbit({word}, cast({known} & {_WORD_BITS - 1} as int)) = 1"
        if self.alone and size > highest:
            return F.expr(in_bitmap)
        place = f"cast(shiftright({known}, {_PAGE_BITS}) as int)"
        if self.alone:
            [only] = numbers.values()
            page = f"get(from_json('{_json(_pages(only))}', '{_PAGES}'), {place})"
            return F.expr(f"{in_bitmap} and coalesce(array_contains({page}, {known}), false)")
        of_files = _json({key: _pages(each) for key, each in numbers.items()})
        pages = F.element_at(F.from_json(F.lit(of_files), f"map<string, {_PAGES}>"), F.col(FILE))
        listed = F.array_contains(F.get(pages, F.expr(place)), F.expr(known))
        return F.expr(in_bitmap) & F.coalesce(listed, F.lit(False))

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the columns `FILE` and `ROW` of all deleted rows."""
        keys = [pa.repeat(pa.scalar(key, pa.string()), len(rows)) for key, rows in self._numbers.items()]
        numbers = pa.chunked_array(list(self._numbers.values()), pa.int64())
        return spark.createDataFrame(pa.table({FILE: pa.chunked_array(keys, pa.string()), ROW: numbers}))


_PAGES = "array<array<bigint>>"


def _bitmap_bits(numbers: int, files: int, highest: int) -> int:
    """Return how many bits a bitmap should have: one for each row if these are few, else some for each number."""
    wanted = max(_WORD_BITS, numbers * max(_BITS_A_NUMBER, files * _BITS_A_FILE))
    return min(1 << (wanted - 1).bit_length(), highest + 1)


def _words(numbers: set[int], size: int) -> str:
    """Return a bitmap of numbers modulo its size, as integers of 64 bits: SQL that Spark computes when it plans.

    As a text, since Spark's Python takes longer to make an expression call by call than Spark takes to parse one.
    """
    bits = bytearray(8 * ((size - 1) // _WORD_BITS + 1))
    for number in numbers:
        at = number % size
        bits[at >> 3] |= 1 << (at & 7)
    words = array("q")
    words.frombytes(bits)
    return f"cast(split('{','.join(map(str, words))}', ',') as array<bigint>)"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _pages(numbers: Sequence[int]) -> list[list[int]]:
    pages: list[list[int]] = [[] for _ in range((numbers[-1] >> _PAGE_BITS) + 1)]
    for number in numbers:
        pages[number >> _PAGE_BITS].append(number)
    return pages
