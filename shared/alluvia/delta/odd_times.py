"""Counts of events with an unreadable time, or a time in the far future, as tags of files. Pure.

A tag counts the events that the commit has stored in the file; merging files adds up their counts. A file into which an
UPDATE, DELETE or MERGE rewrites rows has no such tag.
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

UNREADABLE, FUTURE = "unreadable", "future"
KINDS = (UNREADABLE, FUTURE)
_COUNT = "^[0-9]{1,15}$"


def tag_of(kind: str) -> str:
    """Return the name of the tag that counts times of a kind."""
    return f"alluvia.{kind}_times"


def with_odd_times(adds: Sequence[AddFile], counts: Mapping[str, int]) -> list[AddFile]:
    """Return the files of one commit with its counts by kind, all of them in the last file, the newest of a table."""
    tags = {tag_of(kind): str(count) for kind, count in counts.items() if count}
    if not tags or not adds:
        return list(adds)
    return [*adds[:-1], replace(adds[-1], tags={**adds[-1].tags, **tags})]


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
