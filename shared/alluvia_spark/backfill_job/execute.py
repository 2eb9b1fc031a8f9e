"""A job's steps on Spark. Rows pass between them as chunks of Arrow bytes; the driver sees sizes and file names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import orjson
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql.functions import col

from alluvia.delta.partitioning.transforms import Key
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid
from alluvia.events.ingest.values import OddTimes, summed
from alluvia_spark.backfill_job import data_files, live, repeats, scratch, tasks
from alluvia_spark.backfill_job.data_files import Routes, Rows
from alluvia_spark.backfill_job.dropping import DroppedRows, HeldFiles, drops_of, find_drops
from alluvia_spark.backfill_job.job import REJECTS, ROWS, Counts, Job, JobOutcome, Written
from alluvia_spark.backfill_job.plan import WAVES, Group, Layout, Weight, bucket_bytes, plan_layout, plan_shares
from alluvia_spark.chunks import CHUNK, ROW, Chunk, decode, encode, read_key
from alluvia_spark.failures import failures_explained
from alluvia_spark.frames import (
    TASK,
    Row,
    fit_session,
    mapped,
    numbered_tasks,
    parallelism,
    stages_reported,
    task_key,
    to_tasks,
)
from alluvia_spark.frames import tasks as numbered
from alluvia_spark.sources.manifest import Manifest, Portion, portion_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLIT_BYTES_MAX = 64 << 20
SPLIT_BYTES_MIN = 1 << 20
DROPS_A_CORE = 4
SPLITS = "splits.arrow"
Place: TypeAlias = tuple[int, tuple[str | None, ...], Key]
"""A table, values of its identity columns, a key of its transforms."""
_ROUTED = {TASK: "int", "task": "int", "part": "int", "groups": "binary", "payload": "binary"}
_READ = {**CHUNK, "place": "string", "rows": "long"}
"""A row is a chunk, or what its rows of one partition value (`place`) amount to: the other columns are null."""


def execute(spark: SparkSession, job: Job, files: Manifest, bases: tuple[Snapshot, Snapshot]) -> JobOutcome:
    """Read the files, and write the data files of the job's tables, which are now `bases`. Commits nothing.

    Raises `Invalid` for an input that cannot be read, `Unavailable` if Spark gives up.
    """
    with job_session(spark, files) as own:
        return _Run(own, job, files, bases).outcome()


@contextmanager
def job_session(spark: SparkSession, files: Manifest) -> Iterator[SparkSession]:
    """Give a session that fits a job on some files. Its failures are `Unavailable`, and its progress is reported."""
    context = getattr(spark, "sparkContext", None)
    with (
        failures_explained(),
        nullcontext() if context is None else stages_reported(context, len(files.sizes), files.bytes),
        fit_session(spark) as own,
    ):
        yield own


def put_splits(job: Job, files: Manifest, cores: int) -> int:
    """Divide a job's files among tasks that read them. Returns how many tasks there are."""
    fair_bytes = -(-files.cost_bytes // (cores * WAVES))
    splits = files.splits(min(SPLIT_BYTES_MAX, max(SPLIT_BYTES_MIN, fair_bytes)))
    scratch.put(job, SPLITS, encode(splits))
    return len(splits)


class _Run:
    """One run of a job: its frames, and what the driver learns of them.

    Clashes are read as rejects of tasks of their own: the reading task's number, and that of all reading tasks.
    """

    def __init__(self, spark: SparkSession, job: Job, files: Manifest, bases: tuple[Snapshot, Snapshot]) -> None:
        self.spark = spark
        self.job = job
        self.bases = bases
        self.cores = parallelism(spark)
        self.splits = put_splits(job, files, self.cores)

    def outcome(self) -> JobOutcome:
        """Do all steps."""
        with ExitStack() as stack:
            chunks = self._kept(mapped(numbered(self.spark, self.splits), partial(_read, self.job), _READ), stack)
            weights = _weights(chunks)
            check_read(values[0] or "" for table, values, _ in weights if table == tasks.PROBLEM)
            lines, rows, rejects = (_rows_of(weights, table) for table in (tasks.LINES, ROWS, REJECTS))
            counts = Counts(lines, rows, rejects, odd_times=_odd_times(weights))
            dropped: dict[int, DroppedRows] = {}
            if counts.rows:
                dropped[ROWS] = self._drops(ROWS, chunks, weights)
                counts = replace(counts, duplicates=dropped[ROWS].duplicates)
            if clashes := dropped[ROWS].clashes if ROWS in dropped else {}:
                read = partial(_read_clashes, self.job, self.splits)
                again = self._kept(mapped(numbered_tasks(self.spark, sorted(clashes)), read, _READ), stack)
                more_weights = _weights(again)
                counts = replace(counts, conflicting=sum(clashes.values()), clashes=_rows_of(more_weights, REJECTS))
                weights, chunks = _together(weights, more_weights), chunks.union(again)
            if _rows_of(weights, REJECTS):
                dropped[REJECTS] = self._drops(REJECTS, chunks, weights)
                counts = replace(counts, repeated=dropped[REJECTS].duplicates)
            written = self._write(chunks, weights, dropped)
        return JobOutcome(counts, tuple(written), {table: each.ids for table, each in dropped.items()})

    def _kept(self, frame: DataFrame, stack: ExitStack) -> DataFrame:
        kept = frame.persist(StorageLevel.DISK_ONLY)  # in memory, arrays of such size soon leave no room for the next
        stack.callback(kept.unpersist)
        return kept

    def _drops(self, table: int, chunks: DataFrame, weights: dict[Place, Weight]) -> DroppedRows:
        base = self.bases[table]
        if table == ROWS:
            held = live.files_touched(base, ((values, key) for number, values, key in weights if number == ROWS))
        else:
            held = live.recent_rejects(base, min(base.timestamp_ms, self.job.arrival_us // 1000))
        ours = chunks.where((col("table") == table) & col("ids").isNotNull())
        spread = min(self.splits, self.cores * DROPS_A_CORE)
        there = HeldFiles(table, base.version, held)
        return find_drops(self.job, ours, there, rows=_rows_of(weights, table), spread=spread)

    def _write(
        self, chunks: DataFrame, weights: dict[Place, Weight], dropped: Mapping[int, DroppedRows]
    ) -> list[Written]:
        weights = {place: weight for place, weight in weights.items() if place[0] >= 0}
        if not weights:
            return []
        dropping = {table: each.tasks(2 * self.splits) for table, each in dropped.items()}
        layouts, sizes, file_bytes = _layouts(self.job, weights)
        plan = plan_shares(sizes, bucket_bytes(sum(sizes.values()), self.cores), file_bytes)
        scratch.put(self.job, data_files.PLAN, Routes(layouts, plan.shares, dropping).to_json())
        given = chunks.where((col("table") >= 0) & col("payload").isNotNull()).select(
            [name for name in CHUNK if name != "ids"]
        )
        routed = mapped(given, partial(_route, self.job), _ROUTED)
        written = mapped(to_tasks(routed, plan.tasks), partial(_write, self.job), {"written": "string"}).collect()
        return [Written.from_json(body) for row in written for body in orjson.loads(row.written)]


def portion_at(job: Job, task: int) -> Portion:
    """Return what a task of a job reads."""
    return portion_of(decode(scratch.get(job, SPLITS)), task)


def _read(job: Job, rows: Iterator[Row]) -> Iterator[Row]:
    for (task,) in rows:
        for chunk in tasks.read_task(job, task, portion_at(job, task)):
            yield from _rows(chunk)


def _read_clashes(job: Job, count: int, rows: Iterator[Row]) -> Iterator[Row]:
    for (task,) in rows:
        drops = drops_of(job, ROWS, task)
        places = drops.filter(pc.equal(drops[repeats.KIND], repeats.CLASH))[ROW]
        for chunk in tasks.read_clashes(job, count + task, portion_at(job, task), places.sort().to_pylist()):
            yield from _rows(chunk)


def _rows(chunk: Chunk) -> Iterator[Row]:
    yield *chunk.to_row(), None, None
    for group in chunk.groups:
        part = group.rows / max(1, chunk.rows)
        place = orjson.dumps([group.values, group.key]).decode()
        weight = {"table": chunk.table, "size": int(chunk.size * part), "packed": int(chunk.packed * part)}
        yield *map(weight.get, CHUNK), place, group.rows


def _weights(chunks: DataFrame) -> dict[Place, Weight]:
    summed = chunks.where(col("place").isNotNull()).groupBy("table", "place").sum("rows", "size", "packed").collect()
    weights = {}
    for table, place, *weight in summed:
        values, key = orjson.loads(place)
        weights[table, tuple(values), read_key(key)] = Weight(*weight)
    return weights


def _rows_of(weights: Mapping[Place, Weight], table: int) -> int:
    return sum(weight.rows for place, weight in weights.items() if place[0] == table)


def _odd_times(weights: Mapping[Place, Weight]) -> dict[str, OddTimes]:
    """Return the odd times of all rows that were read. The sample is the text that sorts first."""
    by_kind: dict[str, OddTimes] = {}
    for (table, values, _), weight in sorted(weights.items(), key=lambda each: str(each[0])):
        if table == tasks.ODD_TIMES:
            kind, name, text = map(str, values)
            by_kind = summed(by_kind, {kind: OddTimes(weight.rows, name, text)})
    return by_kind


def _together(one: dict[Place, Weight], other: dict[Place, Weight]) -> dict[Place, Weight]:
    nothing = Weight(0, 0, 0)
    return {place: one.get(place, nothing).plus(other.get(place, nothing)) for place in {**one, **other}}


def _layouts(job: Job, weights: dict[Place, Weight]) -> tuple[dict[int, Layout], dict[Group, int], int]:
    """Return each table's layout, the bytes of all groups, and how many make a file, of the table with more of them."""
    layouts: dict[int, Layout] = {}
    sizes: dict[Group, int] = {}
    file_bytes = 0
    for table, target in enumerate(job.targets):
        own = {(values, key): weight for (number, values, key), weight in weights.items() if number == table}
        layouts[table], groups, bytes_a_file = plan_layout(table, target.spec, own, target.settings.target_file_size)
        sizes |= groups
        file_bytes = max(file_bytes, bytes_a_file)
    return layouts, sizes, file_bytes


def check_read(problems: Iterable[str]) -> None:
    """Raise `Invalid` for files that tasks could not read."""
    sorted_problems = sorted(problems)
    if sorted_problems:
        more = f" (and {len(sorted_problems) - 1} more)" if len(sorted_problems) > 1 else ""
        raise Invalid(sorted_problems[0] + more)


def _route(job: Job, rows: Iterator[Row]) -> Iterator[Row]:
    routes = None
    for row in rows:
        routes = routes or Routes.from_json(scratch.get(job, data_files.PLAN))
        chunk = Chunk.from_row((*row[:-1], b"", row[-1]))
        dropped = None
        if routes.drops_of(chunk.table, chunk.task):
            dropped = drops_of(job, chunk.table, chunk.task)[ROW].combine_chunks()
        for task, part in data_files.route(chunk, routes, dropped):
            yield task_key(task), *part.to_row()


def _write(job: Job, rows: Iterator[Row]) -> Iterator[Row]:
    ours = [Rows.from_row(*row) for _, *row in rows]
    if ours:
        yield (orjson.dumps([each.to_json() for each in data_files.write_rows(job, ours)]).decode(),)
