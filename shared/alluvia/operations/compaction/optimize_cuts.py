"""Where rows of several partition values are cut, so that files are near the target and queries read no more. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from math import inf

from alluvia.delta.partitioning.spans import Span

OVER_SHARE = 1.25
"""No file of several is made bigger than this share of the target."""
SMALL_SHARE = 0.6
"""A file of less than this share of the target is small. A partition value that fills more gets files of its own."""
UNEVEN_MAX = 1.5


def cut_ranges(
    sizes: Sequence[float], limits: Sequence[float], target: int, between: Sequence[float] | None = None
) -> list[range]:
    """Cut keys, in order, into ranges of their positions; `sizes` are the bytes of their rows.

    A key of enough bytes is a range of its own. What lies between such keys is divided evenly into ranges of about the
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
