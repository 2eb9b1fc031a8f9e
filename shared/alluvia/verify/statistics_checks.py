"""Check statistics for contradictions, and compare them with those of a checkpoint and with the rows. Pure.

Source: Delta protocol, "Per-file Statistics".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from alluvia.delta.schema.conversion import digits_fit
from alluvia.delta.schema.names import find
from alluvia.delta.schema.types import type_name
from alluvia.delta.statistics.typed import parse_statistics, whole_number
from alluvia.verify.leaves import Leaf, Tally, bound, excludes, is_loose, is_rounded, shown

Statistics = dict[str, Any]
_SAME_US = 1000


def read_statistics(text: str | None, leaves: Sequence[Leaf]) -> Statistics | None:
    """Return statistics, decimals with all their digits; an empty dict where there are none, None if unreadable."""
    if not text:
        return {}
    try:
        parsed = orjson.loads(text)
    except ValueError:
        return None
    if not isinstance(parsed, dict):
        return None
    exact = any(pa.types.is_decimal(leaf.kind) for leaf in leaves)
    return parse_statistics(text, exact=True) if exact else parsed


def impossible(statistics: Statistics, leaves: Sequence[Leaf]) -> Iterator[tuple[str | None, str]]:
    """Yield the column (None for the file) and what statistics say of it that no rows can make true."""
    said = statistics.get("numRecords")
    rows = whole_number(said)
    if said is not None and (rows is None or rows < 0):
        yield None, f"numRecords is {said!r}"
        rows = None
    for leaf in leaves:
        nulls = whole_number(find(statistics.get("nullCount"), leaf.physical))
        if nulls is not None and (nulls < 0 or (rows is not None and nulls > rows)):
            yield leaf.name, f"there are {nulls} nulls in {rows} rows"
        for said, name in (("minValues", "minimum"), ("maxValues", "maximum")):
            value = find(statistics.get(said), leaf.physical)
            if pa.types.is_decimal(leaf.kind) and _is_too_long(value, leaf.kind):
                yield leaf.name, f"the {name} {value} has more digits than {type_name(leaf.kind)} allows"
        low, high = bounds(statistics, leaf)
        if low is not None and high is not None and low > high:
            yield leaf.name, f"the minimum {shown(low, leaf.kind)} is above the maximum {shown(high, leaf.kind)}"


def _is_too_long(value: Any, kind: pa.DataType) -> bool:
    return isinstance(value, (int, Decimal)) and not digits_fit(Decimal(value), kind)


def bounds(statistics: Statistics, leaf: Leaf) -> tuple[Any, Any]:
    """Return a column's least and greatest value by its statistics; None where they lack them."""
    return (
        bound(find(statistics.get("minValues"), leaf.physical), leaf.kind),
        bound(find(statistics.get("maxValues"), leaf.physical), leaf.kind),
    )


def contradiction(ours: Statistics, theirs: Statistics, leaves: Sequence[Leaf]) -> str | None:
    """Return what two statistics of one file say differently, if both say it; None if they agree."""
    one, other = whole_number(ours.get("numRecords")), whole_number(theirs.get("numRecords"))
    if one is not None and other is not None and one != other:
        return f"numRecords is {other}, not {one}"
    groups = {name: (ours.get(name), theirs.get(name)) for name in ("nullCount", "minValues", "maxValues")}
    for name, (mine, his) in groups.items():
        for leaf in leaves if mine != his else ():
            what = _leaf_contradiction(find(mine, leaf.physical), find(his, leaf.physical), name, leaf)
            if what is not None:
                return f"{name} of {leaf.name} is {what}"
    return None


def _leaf_contradiction(mine: Any, his: Any, name: str, leaf: Leaf) -> str | None:
    """Return what is said of one column, and what should be; None where both say the same, or one says nothing."""
    if mine == his or mine is None or his is None:
        return None
    if name == "nullCount":
        counts = whole_number(mine), whole_number(his)
        return None if None in counts or counts[0] == counts[1] else f"{counts[1]}, not {counts[0]}"
    one, other = bound(mine, leaf.kind), bound(his, leaf.kind)
    if one is None or other is None or _same(one, other, leaf.kind):
        return None
    return f"{shown(other, leaf.kind)}, not {shown(one, leaf.kind)}"


def _same(one: Any, other: Any, kind: pa.DataType) -> bool:
    return abs(one - other) < _SAME_US if pa.types.is_timestamp(kind) else bool(one == other)


def untrue(statistics: Statistics, tally: Tally) -> Iterator[tuple[str, str, str]]:
    """Yield kind of finding, column and what is not true of the rows.

    If a vector deletes rows, bounds and counts may be those of the complete file.
    """
    tight = statistics.get("tightBounds") is not False and not tally.deleted
    for leaf in tally.leaves:
        seen = tally.columns.get(leaf.path)
        if seen is None:
            continue
        nulls = whole_number(find(statistics.get("nullCount"), leaf.physical))
        if nulls is not None:
            wrong = _wrong_nulls(nulls, statistics, seen.nulls, seen.live_nulls, tally)
            if wrong is not None:
                yield "null-count-wrong", leaf.name, wrong
        if seen.least is None:
            continue
        low, high = bounds(statistics, leaf)
        said = f"statistics bound it by {shown(low, leaf.kind)} and {shown(high, leaf.kind)}, its values"
        reach = f"reach from {shown(seen.least, leaf.kind)} to {shown(seen.greatest, leaf.kind)}"
        if excludes(low, high, seen.least, seen.greatest, leaf.kind):
            rounded = is_rounded(low, high, seen.least, seen.greatest, leaf.kind)
            yield "bounds-rounded" if rounded else "bounds-wrong", leaf.name, f"{said} {reach}"
        elif tight and is_loose(low, high, seen.least, seen.greatest, leaf.kind):
            yield "bounds-loose", leaf.name, f"{said} only {reach}"


def _wrong_nulls(said: int, statistics: Statistics, whole: int, live: int, tally: Tally) -> str | None:
    """Return what is wrong with a number of nulls; loose ones say something only if 0 or all."""
    told = f"statistics count {said} nulls, there are {whole}"
    if not tally.deleted:
        return None if said == whole else told
    if statistics.get("tightBounds") is not False:
        return None if said in (whole, live) else told
    live_rows = tally.rows - tally.deleted
    rows = whole_number(statistics.get("numRecords"))
    lies = (said == 0 and live > 0) or (said == rows and rows != 0 and live < live_rows)
    return told if lies else None
