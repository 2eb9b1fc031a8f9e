"""Which rows of a job are not to be written, found by Spark's tasks: table by table, as rows are numbered in each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.functions import col, lit

from alluvia.commit.event_window.id_files import ID_FOLDER, IdFiles, plan_files
from alluvia.delta.log.actions import AddFile
from alluvia_spark.backfill_job import known_ids, live, repeats, scratch
from alluvia_spark.backfill_job.data_files import bitmap
from alluvia_spark.backfill_job.job import ROWS, Job
from alluvia_spark.backfill_job.repeats import CLASH, DUPLICATE, KIND
from alluvia_spark.chunks import PLAIN, decode, encode
from alluvia_spark.frames import TASK, Row, mapped, task_key, to_tasks
from alluvia_spark.frames import tasks as numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PAYLOAD = {TASK: "int", "number": "int", "payload": "binary"}
_LOST = {TASK: "int", "task": "int", "payload": "binary"}
_COUNTS = {"task": "int", "duplicates": "long", "clashes": "long"}


@dataclass(frozen=True, slots=True)
class HeldFiles:
    """The files of one of a job's tables that may hold some of its rows already, and the table's version."""

    table: int
    version: int
    files: list[AddFile]


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """What is not written of a table: by task, how many duplicates and clashes. `ids` is where those kept are named."""

    found: Mapping[int, tuple[int, int]]
    ids: IdFiles

    @property
    def duplicates(self) -> int:
        """Return how many rows are in the table, or come earlier, with the same content."""
        return sum(count for count, _ in self.found.values())

    @property
    def clashes(self) -> Mapping[int, int]:
        """Return, by task, how many rows have the id of another; only tasks with some."""
        return {task: count for task, (_, count) in self.found.items() if count}

    def tasks(self, count: int) -> bytes:
        """Return a bit for each of `count` tasks, set for those of which rows are dropped."""
        return bitmap(self.found, count)


def find_drops(job: Job, chunks: DataFrame, held: HeldFiles, *, rows: int, spread: int) -> DroppedRows:
    """Have the rows of a table that come again written down, by task. `chunks` are all of that table, with `rows`.

    `spread` is how many tasks write them down.
    """
    layout = plan_files(f"{ID_FOLDER}{job.run_id}/", rows)
    ids = identities(job, chunks, held, layout.ranges)
    if layout.ranges > 1:  # each range has an object, also one that no id is in
        ids = ids.union(mapped(numbered(chunks.sparkSession, layout.ranges), _nothing, PAYLOAD))
    find, ids = partial(_find, job, held.table, layout, spread), to_tasks(ids, layout.ranges)
    if layout.ranges == 1:
        counted = mapped(ids, partial(_find_and_put, find, job, held.table), _COUNTS)
    else:
        lost = to_tasks(mapped(ids, find, _LOST), spread)
        counted = mapped(lost, partial(_put_drops, job, held.table), _COUNTS)
    return DroppedRows({row.task: (row.duplicates, row.clashes) for row in counted.collect()}, layout)


def identities(job: Job, chunks: DataFrame, held: HeldFiles, ranges: int) -> DataFrame:
    """Return the identities of chunks and of what a table holds, as `PAYLOAD`, by range of fingerprints."""
    ids = chunks.select("ids")
    if ranges == 1:
        ids = ids.select(lit(task_key(0)).alias(TASK), lit(0).alias("number"), col("ids").alias("payload"))
    else:
        ids = mapped(ids, partial(_ids, ranges), PAYLOAD)
    planned = live.plan_tasks(held.files)
    for number, some in enumerate(planned):
        scratch.put(job, _held_name(held.table, number), live.encode_files(some))
    if not planned:
        return ids
    there = numbered(chunks.sparkSession, len(planned))
    return ids.union(mapped(there, partial(_live, job, held.table, held.version, ranges), PAYLOAD))


def drops_of(job: Job, table: int, task: int) -> pa.Table:
    """Return the rows of a task for a table that are not to be written, as `repeats.DROPS`."""
    return decode(scratch.get(job, _drops_name(table, task)))


def _drops_name(table: int, task: int) -> str:
    return f"drops/{table}/{task}.arrow"


def _held_name(table: int, number: int) -> str:
    return f"live/{table}/{number}.json"


def _ids(count: int, rows: Iterator[Row]) -> Iterator[Row]:
    for (payload,) in rows:
        yield from _by_range(decode(payload), count)


def _nothing(rows: Iterator[Row]) -> Iterator[Row]:
    for (number,) in rows:
        yield task_key(number), number, encode(repeats.IDS.empty_table(), PLAIN)


def _live(job: Job, table: int, version: int, count: int, rows: Iterator[Row]) -> Iterator[Row]:
    for (task,) in rows:
        files = live.decode_files(scratch.get(job, _held_name(table, task)))
        for ids in live.live_ids(job, table, version, files):
            yield from _by_range(ids, count)


def _by_range(ids: pa.Table, count: int) -> Iterator[Row]:
    for number, part in repeats.divided(ids, count):
        yield task_key(number), number, encode(part, PLAIN)


def joined_ranges(rows: Iterable[Row]) -> Iterator[tuple[int, pa.Table]]:
    """Yield the identities of each range that a task has: one, but where Spark has put small tasks together."""
    by_range: dict[int, list[pa.Table]] = {}
    for _, number, payload in rows:
        by_range.setdefault(number, []).append(decode(payload))
    for number, ids in by_range.items():
        yield number, pa.concat_tables(ids)


def _find(job: Job, table: int, layout: IdFiles, spread: int, rows: Iterator[Row]) -> Iterator[Row]:
    known = partial(live.known_contents, job) if table == ROWS else repeats.nothing_known
    for number, ids in joined_ranges(rows):
        lost, stored = repeats.find_repeats(ids, known)
        known_ids.put_ids(job, table, layout, number, stored)
        for task, drops in by_task(lost):
            yield task_key(task % spread), task, encode(drops)


def _find_and_put(find: partial[Iterator[Row]], job: Job, table: int, rows: Iterator[Row]) -> Iterator[Row]:
    """Do both steps, in the one task that has all identities."""
    return _put_drops(job, table, find(rows))


def by_task(lost: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield rows by their task."""
    lost = lost.sort_by(repeats.TASK)
    counts, start = pc.value_counts(lost[repeats.TASK].combine_chunks()), 0
    for task, count in zip(*(counts.field(at).to_pylist() for at in (0, 1)), strict=True):
        yield task, lost.slice(start, count)
        start += count


def _put_drops(job: Job, table: int, rows: Iterator[Row]) -> Iterator[Row]:
    parts: dict[int, list[pa.Table]] = {}
    for _, task, payload in rows:
        parts.setdefault(task, []).append(decode(payload))
    for task in sorted(parts):
        drops = pa.concat_tables(parts.pop(task))
        scratch.put(job, _drops_name(table, task), encode(drops))
        kinds = drops[KIND].to_pylist()
        yield task, kinds.count(DUPLICATE), kinds.count(CLASH)
