"""Where rows of several partition values are cut, so that files are near the target and queries read no more. Pure.

Files of a clustered table are each in the order of a curve of their own, and each may have rows of all values. After
they are cut along one curve, a query for a value of one of d columns reads about n ** (1 - 1 / d) of n files. The files
of a cell are cut only once, since their parts are cells of their own: so rows are rewritten once more each time that a
partition grows four- to eightfold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import accumulate, groupby
from math import ceil, inf
from statistics import fmean
from typing import Any

from alluvia.delta.partitioning.transforms import Span
from alluvia.operations.compaction.optimize_files import Candidate

GAIN_MIN = 1.15
"""Files are worth being cut if queries read this many times what they would read of them then, on average."""
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


OVER_SHARE = 1.25
"""No file of several is made bigger than this share of the target."""
SMALL_SHARE = 0.6
"""A file of less than this share of the target is small. A partition value that fills more gets files of its own."""
UNEVEN_MAX = 1.5


def cut_ranges(
    sizes: Sequence[float], limits: Sequence[float], target: int, between: Sequence[float] | None = None
) -> list[range]:
    """Cut keys, in order, into ranges of their positions; `sizes` are the bytes of their rows.

    A key of enough bytes is a range of its own. The keys in between are divided evenly into ranges of about the
    target. None of them has more bytes than any of its keys' `limits`: what a query for that key read before; nor more
    than the limits `between` a key and the one before, for keys without rows.
    """
    ranges: list[range] = []
    before = [inf] * len(sizes) if between is None else between
    for own, run in groupby(range(len(sizes)), lambda at: sizes[at] >= target * SMALL_SHARE):
        if own:
            ranges += [range(at, at + 1) for at in run]
        else:
            ranges += _even_ranges(list(run), sizes, limits, before, target)
    return ranges


def _even_ranges(
    run: Sequence[int], sizes: Sequence[float], limits: Sequence[float], between: Sequence[float], target: int
) -> Iterator[range]:
    even = even_size(sum(sizes[at] for at in run), target)
    start, held, limit = run[0], 0.0, inf
    for at in run:
        limit = min(limit, limits[at], between[at], target * OVER_SHARE)
        if start < at and (held + sizes[at] / 2 > even or held + sizes[at] > limit):
            yield range(start, at)
            start, held, limit = at, 0.0, limits[at]
        held += sizes[at]
    yield range(start, run[-1] + 1)


def even_size(size: float, target: int) -> float:
    """Return what each file of some bytes has, so that they are near the target and equal.

    For a little over one target, two even files would both be too small: the second one waits for more rows.
    """
    targets = size / target
    if targets <= OVER_SHARE:
        return size
    return float(target) if targets < UNEVEN_MAX else size / round(targets)


def keys_within(span: Span) -> int | None:
    """Return how many keys a span can hold at most; None where that is not known."""
    if len(span.low) != 1 or span.low[0][0] or span.high[0][0]:
        return None
    low, high = span.low[0][1], span.high[0][1]
    if isinstance(low, int) and isinstance(high, int):
        return high - low + 1
    return _times_within(str(low), str(high))


_UNITS = {4: "year", 7: "month", 10: "day", 13: "hour"}


def _times_within(low: str, high: str) -> int | None:
    """Return how many years, months, days or hours there are between two, both included."""
    try:
        first, last = (datetime.fromisoformat(_whole_time(text)) for text in (low, high))
    except (ValueError, KeyError):
        return None
    years, months = last.year - first.year, last.month - first.month
    elapsed = last - first
    unit = _UNITS[len(low)]
    counts = {
        "year": years,
        "month": 12 * years + months,
        "day": elapsed.days,
        "hour": elapsed.days * 24 + elapsed.seconds // 3600,
    }
    return counts[unit] + 1


def _whole_time(text: str) -> str:
    """Return the first moment of a year, month, day or hour."""
    return text + {4: "-01-01T00", 7: "-01T00", 10: "T00", 13: ""}[len(text)]
