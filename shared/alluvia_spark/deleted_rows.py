"""Which rows of files are deleted, as an expression of Spark's or as a DataFrame to join with. Pure, but for Spark.

A row's number is looked up in one bitmap for all files, which costs less than a join, and next to nothing where the row
is live. Only where the bit is set, the file counts: one has the number among its deleted rows, or none has.
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
"""Comparing so many names for each row costs about what a join does."""
_PAGE_BITS = 12
_NO_NUMBER = (
    "Spark does not number the rows of a file, some of which are deleted: read the table with format('alluvia')"
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
        numbers: dict[str, list[Any]] = {key: found.to_pylist() for key, found in self._numbers.items()}
        highest: int = max(found[-1] for found in numbers.values())
        every = {number for found in numbers.values() for number in found}
        if highest >= ROWS_MAX or len(every) * len(numbers) > NAMES_COMPARED_MAX * (highest + 1):
            return None
        number = F.coalesce(F.col(row), F.raise_error(F.lit(_NO_NUMBER)).cast("bigint"))  # never just left out as null
        word = F.get(_words(every, highest), F.shiftright(number, 6).cast("int"))
        found = F.getbit(F.coalesce(word, F.lit(0).cast("bigint")), number.bitwiseAND(63).cast("int")) == 1
        if self.alone:
            return found
        pages = F.from_json(F.lit(json.dumps({key: _pages(each) for key, each in numbers.items()})), _PAGES)
        page = F.get(F.element_at(pages, F.col(FILE)), F.shiftright(number, _PAGE_BITS).cast("int"))
        return found & F.coalesce(F.array_contains(page, number), F.lit(False))

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the columns `FILE` and `ROW` of all deleted rows."""
        keys = [pa.repeat(pa.scalar(key, pa.string()), len(found)) for key, found in self._numbers.items()]
        numbers = pa.chunked_array(list(self._numbers.values()), pa.int64())
        return spark.createDataFrame(pa.table({FILE: pa.chunked_array(keys, pa.string()), ROW: numbers}))


_PAGES = "map<string, array<array<bigint>>>"


def _words(numbers: set[int], highest: int) -> Column:
    """Return a bitmap as whole numbers of 64 bits, a constant that Spark computes when it plans."""
    bits = bytearray(8 * (highest // 64 + 1))
    for number in numbers:
        bits[number >> 3] |= 1 << (number & 7)
    words = array("q")
    words.frombytes(bits)
    return F.split(F.lit(",".join(map(str, words))), ",").cast("array<bigint>")


def _pages(numbers: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range((numbers[-1] >> _PAGE_BITS) + 1)]
    for number in numbers:
        found[number >> _PAGE_BITS].append(number)
    return found
