"""The work of writing tasks: rows on their way to the task that writes them, and data files of them.

Files of an attempt that failed are named by no commit, so vacuum collects them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from alluvia.clock import SystemClock
from alluvia.commit.transaction import FILE_AGE_MS_MAX
from alluvia.delta.data_files.writer import FileWriter
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.committer import put_once
from alluvia.delta.odd_times import KINDS, with_odd_times
from alluvia.operations.retention.vacuum_cutoffs import ORPHAN_AGE_MS_MIN
from alluvia_spark.backfill_job import scratch
from alluvia_spark.backfill_job.job import Job, Written
from alluvia_spark.backfill_job.plan import Group, Layout, Share
from alluvia_spark.chunks import ODD, ROW, Chunk, decode, encode, read_key

PLAN = "plan.json"
REUSE_AGE_MS_MAX = ORPHAN_AGE_MS_MIN - FILE_AGE_MS_MAX - 2 * 60 * 60 * 1000
"""Files of an earlier run that are older are written again, since vacuum may take them before this run commits.

A run may begin to commit for `FILE_AGE_MS_MAX`, which may take an hour; the other hour is for clocks that differ.
"""


class Rows(NamedTuple):
    """Rows for one writing task from one part of a reading task: those of `groups`, in their order, and how many."""

    task: int
    part: int
    groups: tuple[tuple[Group, int], ...]
    payload: bytes

    def to_row(self) -> tuple[int, int, bytes, bytes]:
        """Return it as the columns of a row."""
        groups = orjson.dumps([[*group, count] for group, count in self.groups])
        return self.task, self.part, groups, self.payload

    @classmethod
    def from_row(cls, task: int, part: int, groups: bytes, payload: bytes) -> Rows:
        """Return what `to_row` made columns of."""
        counts = ((Group(table, folder), count) for table, folder, count in orjson.loads(groups))
        return cls(task, part, tuple(counts), payload)


@dataclass(frozen=True, slots=True)
class Routes:
    """Where rows go: each table's layout, each group's tasks, and, by table, the tasks with rows that are dropped."""

    layouts: Mapping[int, Layout]
    shares: Mapping[Group, Share]
    dropping: Mapping[int, bytes]

    def to_json(self) -> bytes:
        """Return it as an object for the tasks."""
        layouts = [
            [table, [[values, highs, [*map(list, groups)]] for values, (highs, groups) in layout.groups.items()]]
            for table, layout in self.layouts.items()
        ]
        shares = [[*group, share.first, share.count] for group, share in self.shares.items()]
        dropping = [[table, numbers.hex()] for table, numbers in self.dropping.items()]
        return orjson.dumps({"layouts": layouts, "shares": shares, "dropping": dropping})

    @classmethod
    def from_json(cls, data: bytes) -> Routes:
        """Read what `to_json` wrote."""
        body = orjson.loads(data)
        layouts = {
            table: Layout({tuple(values): ([*map(read_key, highs)], [Group(*each) for each in groups])
                           for values, highs, groups in entries})
            for table, entries in body["layouts"]
        }  # fmt: skip
        shares = {Group(table, folder): Share(*share) for table, folder, *share in body["shares"]}
        return cls(layouts, shares, {table: bytes.fromhex(numbers) for table, numbers in body["dropping"]})

    def drops_of(self, table: int, task: int) -> bool:
        """Whether rows of a task for a table are dropped."""
        numbers = self.dropping.get(table, b"")
        return task // 8 < len(numbers) and bool(numbers[task // 8] >> task % 8 & 1)


def bitmap(numbers: Iterable[int], count: int) -> bytes:
    """Return a bit for each of `count` numbers, set for some."""
    bits = bytearray(-(-count // 8))
    for number in numbers:
        bits[number // 8] |= 1 << number % 8
    return bytes(bits)


def route(chunk: Chunk, routes: Routes, dropped: pa.Array | None) -> Iterator[tuple[int, Rows]]:
    """Yield a chunk's rows but those dropped, by their places in the task, with the task that writes them."""
    rows = decode(chunk.payload)
    by_task: dict[int, list[tuple[Group, pa.Table]]] = {}
    for group, start, end in routes.layouts[chunk.table].places(chunk.groups):
        share = routes.shares[group]
        for number in range(share.count):
            first, last = (start + (end - start) * at // share.count for at in (number, number + 1))
            task = share.first + number
            part = rows.slice(first, last - first)
            if dropped is not None:
                part = part.filter(pc.invert(pc.is_in(part[ROW], dropped)))
            if len(part):
                by_task.setdefault(task, []).append((group, part))
    for task, parts in by_task.items():
        groups = tuple((group, len(part)) for group, part in parts)
        together = pa.concat_tables([part for _, part in parts])
        yield task, Rows(chunk.task, chunk.part, groups, encode(together.drop_columns([ROW])))


def write_rows(job: Job, given: Iterable[Rows]) -> list[Written]:
    """Write a task's rows, group by group, in the order and the files that their tables want.

    The first task that wrote the same rows has said so, in whatever run of the job: then its files are taken, unless
    they are too old. Raises `CommitUnknown` where the store does not say whether this task is the first.
    """
    ours = sorted(given, key=lambda rows: (rows.groups[0][0].table, rows.task, rows.part))
    clock, store = SystemClock(), scratch.store_of(job, job.lake_uri)
    key = f"{job.folder}done/{_digest(ours)}.json"
    mark = scratch.find(job, key)
    if mark is not None:
        known = _read(mark)
        if _is_young(known, clock.now_ms()):
            return known
        store.delete([key])
    written = list(_written(job, ours))
    mark = orjson.dumps([each.to_json() for each in written])
    theirs = put_once(
        store,
        clock,
        key,
        mark,
        what=f"the mark {key}",
        read=lambda: scratch.find(job, key),
        is_ours=lambda stored: stored == mark,
    )
    return written if theirs is None else _read(theirs)


def _written(job: Job, ours: list[Rows]) -> Iterator[Written]:
    by_group: dict[Group, list[pa.Table]] = {}
    for rows in ours:
        table, start = decode(rows.payload), 0
        for group, count in rows.groups:
            by_group.setdefault(group, []).append(table.slice(start, count))
            start += count
    ours.clear()
    for group in sorted(by_group):
        target = job.targets[group.table]
        together = pa.concat_tables(by_group.pop(group))
        table = together.select(target.schema.names)
        store = scratch.store_of(job, job.lake_uri)
        writer = FileWriter(store, target.root, target.spec, target.form, SystemClock())
        files = with_odd_times(writer.write(table, together=True), _odd_times(together))
        yield Written(group.table, len(table), tuple(files))


def _odd_times(rows: pa.Table) -> dict[str, int]:
    """Return how many of a group's rows have odd times, by kind."""
    if ODD not in rows.column_names or rows[ODD].null_count == len(rows):
        return {}
    return {kind: pc.sum(pc.equal(rows[ODD], number)).as_py() or 0 for number, kind in enumerate(KINDS)}


def _digest(rows: Sequence[Rows]) -> str:
    digest = blake2b(digest_size=20)
    for each in rows:
        task, part, groups, payload = each.to_row()
        digest.update(orjson.dumps([task, part, len(groups), len(payload)]))
        digest.update(groups)
        digest.update(payload)
    return digest.hexdigest()


def _read(mark: bytes) -> list[Written]:
    return [Written.from_json(body) for body in orjson.loads(mark)]


def _is_young(written: Sequence[Written], now_ms: int) -> bool:
    files: list[AddFile] = [file for each in written for file in each.files]
    return all(file.modification_time > now_ms - REUSE_AGE_MS_MAX for file in files)
