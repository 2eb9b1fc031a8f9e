"""Whether full files of a clustered table are worth being cut anew along one curve. Pure.

Such files are each in the order of a curve of their own, and each may have rows of all values. Cut along one curve, a
query for a value of one of d columns reads n ** (1 - 1 / d) of n files, about. The files of a cell are cut only once,
since their parts are cells of their own: so rows are rewritten once more each time that a partition grows four- to
eightfold.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import ceil
from statistics import fmean
from typing import Any

from alluvia.operations.compaction.optimize_files import Candidate

GAIN_MIN = 1.15
"""Files are worth being cut if queries read so many times what they would read of them then, on average."""
PLACES = 32
"""So many places in a file's range are looked at, about."""


def worth_dividing(files: Sequence[Candidate], parts: int) -> bool:
    """Whether queries for values of the columns would read clearly less of files if they were cut into `parts`."""
    columns = zip(*(each.bounds for each in files), strict=True)
    weights = [each.weight for each in files]
    shares = [share for bounds in columns if (share := read_share(bounds, weights)) is not None]
    return bool(shares) and fmean(shares) > GAIN_MIN * parts ** (-1 / len(shares))


def read_share(bounds: Sequence[tuple[Any, Any] | None], weights: Sequence[int]) -> float | None:
    """Return about what part of files a query for one of their values of a column reads; None where it has one value.

    Bounds lie at the ends of what a file has, where few files overlap. So for the rows of each file the place counts
    where most overlap, in the middle half of its range. A file without bounds may have any value.
    """
    known = [each for each in bounds if each is not None]
    borders = sorted({border for low, high in known for border in ((low, False), (high, True))})
    if len({value for value, _ in borders}) < 2:
        return None
    places = {border: place for place, border in enumerate(borders)}
    ranges = [
        (0, len(borders) - 1) if each is None else (places[each[0], False], places[each[1], True]) for each in bounds
    ]
    changes = [0] * len(borders)
    for (start, end), weight in zip(ranges, weights, strict=True):
        changes[start] += weight
        changes[end] -= weight
    overlapping = list(accumulate(changes))
    return (
        sum(
            weight * max(overlapping[place] for place in _middle(start, end))
            for (start, end), weight in zip(ranges, weights, strict=True)
        )
        / sum(weights) ** 2
    )


def _middle(start: int, end: int) -> range:
    """Return some places in the middle half of a range; at least one."""
    margin = min(ceil((end - start) / 4), (end - start - 1) // 2)
    return range(start + margin, end - margin, max(1, (end - start) // PLACES))
