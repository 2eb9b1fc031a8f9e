"""How many events with odd times a file still holds once rows of it are deleted or updated. Pure.

The tag of a file counts them and does not say which rows they are (`delta.odd_times`). Rows with an odd time look like
it: their `ts` is their arrival, or more than a day after it. If as many rows of the file do as the tag counts, at most
those that still look so count on. Else all rows may, for example if a webhook has the time of its attempt instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.actions import AddFile
from alluvia.delta.odd_times import KINDS, TIME_COLUMNS, looking_odd, odd_times_of


class OddTimeCounts:
    """The counts of one file while its rows change: `seen` takes the rows that it has, `renewed` those they become.

    `left` says how many it then holds, `moved` how many are in the files that its updated rows move to.
    """

    def __init__(self, file: AddFile) -> None:
        self._tagged = odd_times_of([file])
        self._before = Counter[str]()
        self._stay = Counter[str]()
        self._renewed = Counter[str]()
        self._rows_stay = 0
        self._rows_renewed = 0

    def seen(self, rows: pa.RecordBatch, live: pa.BooleanArray, changed: pa.BooleanArray) -> None:
        """Take note of some of the file's rows, with `TIME_COLUMNS`, of those that live, and of those that change."""
        stay = pc.and_not(live, changed)
        for kind, looks in looking_odd(rows).items():
            self._before[kind] += pc.and_(looks, live).true_count
            self._stay[kind] += pc.and_(looks, stay).true_count
        self._rows_stay += stay.true_count

    def renewed(self, rows: pa.Table) -> None:
        """Take note of the new values of some updated rows."""
        self._rows_renewed += len(rows)
        for batch in rows.select(TIME_COLUMNS).to_batches():
            for kind, looks in looking_odd(batch).items():
                self._renewed[kind] += looks.true_count

    def left(self, *, in_place: bool) -> Counter[str]:
        """Return the counts of the rows that stay, with the updated ones if they stay in their place."""
        looking = self._stay + self._renewed if in_place else self._stay
        rows = self._rows_stay + (self._rows_renewed if in_place else 0)
        return self._most(self._tagged, looking, rows)

    def moved(self) -> Counter[str]:
        """Return the counts of the updated rows that go into files of their own."""
        return self._most(self._tagged - self.left(in_place=False), self._renewed, self._rows_renewed)

    def _most(self, counts: Mapping[str, int], looking: Mapping[str, int], rows: int) -> Counter[str]:
        most = {kind: looking[kind] if self._before[kind] >= self._tagged[kind] else rows for kind in KINDS}
        return +Counter({kind: min(counts[kind], most[kind]) for kind in KINDS})


def counts_of(file: AddFile, columns: Iterable[str]) -> OddTimeCounts | None:
    """Return what counts a file's odd times; None for a file without any, and for a table without both columns."""
    if not file.tags or not set(TIME_COLUMNS) <= set(columns) or not +odd_times_of([file]):
        return None
    return OddTimeCounts(file)
