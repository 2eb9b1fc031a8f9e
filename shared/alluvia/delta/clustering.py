"""Clustering: the order of rows along a Hilbert curve through several columns, and the tag of files cut along it. Pure.

A row's coordinates are the ranks of its values among a sample of the rows that are written with it. So skew, texts that
begin alike and nulls cost nothing, and a place on the curve means something only among those rows. The curve is
Skilling's: "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.actions import AddFile
from alluvia.delta.partitioning.transforms import one_array

CLUSTER_TAG = "alluvia.cluster"
"""The tag of an add: the columns by which its rows were clustered, and the cell of the file."""
SAMPLE_ROWS = 1 << 14
"""A sample of this many rows gives ranks to within about 1%."""
PARTS = 8
"""A digit of a cell is one of this many parts of a curve."""
_BITS = 10
_SCATTER = 2_654_435_761  # a prime, so that a sample follows no period of the rows


class Curve:
    """A Hilbert curve through the values of some columns, of which it is given a sample."""

    def __init__(self, sample: pa.Table) -> None:
        ranks = [_Ranks(one_array(column)) for column in sample.columns]
        self._ranks = {at: each for at, each in enumerate(ranks) if not each.constant}
        self._spread = _spread(len(self._ranks))

    def places(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        """Return each row's place on the curve, a whole number; rows at near places have near values.

        `columns` are those of the sample, in its order.
        """
        axes = [ranks.of(one_array(columns[at])) for at, ranks in self._ranks.items()]
        if not axes:
            return pa.chunked_array([pa.repeat(_number(0), len(columns[0]))])
        place, *others = (
            spread.take(axis) for spread, axis in zip(self._spread, _transposed_hilbert(axes), strict=True)
        )
        for bits in others:
            place = pc.bit_wise_or(place, bits)
        return pa.chunked_array([place])


def sampled(rows: pa.Table) -> pa.Table:
    """Return rows from which ranks are known well enough: all, or some that are scattered among them."""
    if len(rows) <= SAMPLE_ROWS:
        return rows
    return rows.take(pa.array([at * _SCATTER % len(rows) for at in range(SAMPLE_ROWS)], pa.int64()))


class _Ranks:
    """Turns values of a column into their ranks among those of a sample: below 1 << _BITS, null last."""

    def __init__(self, values: pa.Array) -> None:
        known = _ordered(values.drop_null())
        self._sorted = known.take(pc.array_sort_indices(known))
        self._rows = len(values)
        self._null = 2 * len(known) + values.null_count

    @property
    def constant(self) -> bool:
        """Whether the sample has no two values."""
        known = self._sorted
        return not len(known) or (len(known) == self._rows and known[0].as_py() == known[-1].as_py())

    def of(self, values: pa.Array) -> pa.Int64Array:
        """Return the ranks; values that the sample has several times have the middle one."""
        ordered = _ordered(values)
        first = pc.search_sorted(self._sorted, ordered, side="left").cast(pa.int64())
        last = pc.search_sorted(self._sorted, ordered, side="right").cast(pa.int64())
        doubled = pc.fill_null(pc.add(first, last), _number(self._null))
        return pc.divide(pc.multiply(doubled, _number(1 << (_BITS - 1))), _number(self._rows + 1))


def _ordered(values: pa.Array) -> pa.Array:
    """Return values of a type that can be searched, in the same order: NaN is infinite, and times have no zone."""
    if pa.types.is_decimal(values.type):
        return values.cast(pa.float64())
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_nan(values), pa.scalar(float("inf"), values.type), values)
    return values


def _transposed_hilbert(axes: Sequence[pa.Int64Array]) -> list[pa.Int64Array]:
    """Return the places on a Hilbert curve; the bits of a place are spread over the columns, the highest first."""
    first, *others = axes
    for bit in range(_BITS - 1, 0, -1):
        low = _number((1 << bit) - 1)
        first = pc.bit_wise_xor(first, _below(first, bit))
        for at, axis in enumerate(others):
            flipped = _below(axis, bit)
            first = pc.bit_wise_xor(first, flipped)
            swapped = pc.bit_wise_and(pc.bit_wise_xor(first, axis), pc.bit_wise_xor(flipped, low))
            first, others[at] = pc.bit_wise_xor(first, swapped), pc.bit_wise_xor(axis, swapped)
    coded = [first]
    for axis in others:
        coded.append(pc.bit_wise_xor(axis, coded[-1]))
    flips: pa.Int64Array = pa.repeat(_number(0), len(first))
    for bit in range(_BITS - 1, 0, -1):
        flips = pc.bit_wise_xor(flips, _below(coded[-1], bit))
    return [pc.bit_wise_xor(axis, flips) for axis in coded]


def _below(axis: pa.Int64Array, bit: int) -> pa.Int64Array:
    """Return a number with all bits below one set where that one is set, else 0."""
    return pc.multiply(pc.bit_wise_and(pc.shift_right(axis, _number(bit)), _number(1)), _number((1 << bit) - 1))


@cache
def _spread(count: int) -> list[pa.Int64Array]:
    """Return for each of several columns where its bits go in a place, by its number."""
    return [
        pa.array(
            [
                sum((number >> bit & 1) << (bit * count + count - 1 - at) for bit in range(_BITS))
                for number in range(1 << _BITS)
            ],
            pa.int64(),
        )
        for at in range(count)
    ]


def _number(value: int) -> pa.Int64Scalar:
    return pa.scalar(value, pa.int64())


def cluster_tag(columns: Sequence[str], cell: str) -> str:
    """Return the text of `CLUSTER_TAG`. Each digit of the cell divides the rows of the digits before it."""
    return f'{tag_start(columns)}{cell}"}}'


def tag_start(columns: Sequence[str]) -> str:
    """Return how the tag of each file begins that was clustered by some columns."""
    return f'{{"by":{orjson.dumps(list(columns)).decode()},"cell":"'


def cell_of(file: AddFile, columns: Sequence[str]) -> str:
    """Return a file's cell; empty for one that was not clustered by these columns, or not with other files."""
    tag, start = file.tags.get(CLUSTER_TAG, ""), tag_start(columns)
    return tag.removeprefix(start).removesuffix('"}') if tag.startswith(start) else ""


def part_cell(cell: str, at: int, count: int) -> str:
    """Return the cell of one of `count` files into which the rows of a cell are cut along the curve."""
    digits = 1
    while PARTS**digits < count:
        digits += 1
    return f"{cell}{PARTS**digits * at // count:0{digits}o}"
