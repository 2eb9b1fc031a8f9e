"""Counts of events with an unreadable time, or a time in the far future, as tags of files. Pure.

A tag counts the events that the commit has stored in the file; merging files adds up their counts. Files into
which an UPDATE, DELETE or MERGE rewrites rows count at most the rows that are left (`operations.rows.odd_time_counts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.files.sidecars import open_rows
from alluvia.delta.statistics.typed import parse_statistics

UNREADABLE, FUTURE = "unreadable", "future"
KINDS = (UNREADABLE, FUTURE)
FUTURE_US = 86_400_000_000
"""A time this long after the event's arrival is in the far future: no time zone explains it."""
TIME_COLUMNS = ("ts", "received_at")
_TIMESTAMP = pa.timestamp("us", "UTC")
_COUNT = "^[0-9]{1,15}$"


def tag_of(kind: str) -> str:
    """Return the name of the tag that counts times of a kind."""
    return f"alluvia.{kind}_times"


def with_odd_times(
    adds: Sequence[AddFile], counts: Mapping[str, int], rows: pa.Table | None = None, ts: str = TIME_COLUMNS[0]
) -> list[AddFile]:
    """Return the files of one commit with its counts by kind.

    rows: what the files hold; each counts at most the rows whose times are within its statistics and look odd. The last
    file, the newest of a table, counts the rest. ts: the name of the time's column in the files.
    """
    left = +Counter(counts)
    if not adds or not left:
        return list(adds)
    shares: list[Counter[str]] = []
    if rows is not None and len(adds) > 1 and set(TIME_COLUMNS) <= set(rows.schema.names):
        batches = [(_micros(batch[TIME_COLUMNS[0]]), looking_odd(batch)) for batch in rows.to_batches()]
        for add in adds[:-1]:
            bounds_us = _bounds_us(add, ts)
            found = sum((_within(*batch, bounds_us) for batch in batches if bounds_us is not None), Counter[str]())
            shares.append(found & left)
            left -= shares[-1]
    shares += [Counter()] * (len(adds) - 1 - len(shares)) + [left]
    return [with_counts(add, share) if share else add for add, share in zip(adds, shares, strict=True)]


def looking_odd(rows: pa.RecordBatch) -> dict[str, pa.BooleanArray]:
    """Return which rows, with `TIME_COLUMNS`, look as if their time were odd, by kind.

    Their time is the arrival, as it is for events without a time, or in the far future.
    """
    ts_us, arrival_us = (_micros(rows[name]) for name in TIME_COLUMNS)
    arrived = pc.fill_null(pc.equal(ts_us, arrival_us), pa.scalar(value=False))
    far = pc.fill_null(pc.greater(ts_us, pc.add(arrival_us, FUTURE_US)), pa.scalar(value=False))
    return {UNREADABLE: arrived, FUTURE: far}


def _micros(times: pa.Array) -> pa.Array:
    return times.cast(_TIMESTAMP).cast(pa.int64())


def _bounds_us(add: AddFile, ts: str) -> tuple[int, int] | None:
    """Return the least and the greatest time of a file by its statistics, which cut them to milliseconds."""
    facts = parse_statistics(add.stats, exact=False)
    texts = [facts.get(name, {}).get(ts) for name in ("minValues", "maxValues")]
    if not all(isinstance(text, str) for text in texts):
        return None
    low_us, high_us = pa.array(texts, pa.string()).cast(_TIMESTAMP).cast(pa.int64())
    return low_us.as_py(), high_us.as_py() + 999


def _within(times_us: pa.Array, looks: Mapping[str, pa.BooleanArray], bounds_us: tuple[int, int]) -> Counter[str]:
    here = pc.and_(pc.greater_equal(times_us, bounds_us[0]), pc.less_equal(times_us, bounds_us[1]))
    return Counter({kind: pc.and_(each, here).true_count for kind, each in looks.items()})


def with_counts(add: AddFile, counts: Mapping[str, int]) -> AddFile:
    """Return a file with these counts in place of those that it has."""
    others = {name: value for name, value in add.tags.items() if name not in map(tag_of, KINDS)}
    return replace(add, tags=others | {tag_of(kind): str(count) for kind, count in counts.items() if count})


def odd_times_of(files: Iterable[AddFile]) -> Counter[str]:
    """Return the sums of some files' counts by kind."""
    tagged = [file.tags for file in files if file.tags]
    return Counter({kind: _sum(pa.array([tags.get(tag_of(kind)) for tags in tagged], pa.string())) for kind in KINDS})


def odd_times_in(files: ActionSet[AddFile]) -> dict[str, int]:
    """Return the sums of a table's counts by kind, from its log; no request if it is in memory."""
    open_rows(files.parts)
    counts = dict.fromkeys(KINDS, 0)
    for section in files.sections:
        shown = files.shown(section)
        for kind in KINDS:
            start = 0
            for texts in section.map_batches("tags", tag_of(kind)):
                end = start + len(texts)
                counts[kind] += _sum(texts if shown is None else texts.filter(shown.slice(start, len(texts))))
                start = end
    return counts


def _sum(texts: pa.Array) -> int:
    """Return the sum of numbers; what another writer may have put in their place counts nothing."""
    texts = texts.drop_null()
    if not len(texts):
        return 0
    numbers = texts.filter(pc.match_substring_regex(texts, _COUNT))
    return pc.sum(numbers.cast(pa.int64())).as_py() or 0
