"""A job's steps on Spark. Rows pass between them as chunks of Arrow bytes; the driver sees sizes and file names."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import Broadcast, SparkContext, StorageLevel
from pyspark.core.rdd import RDD
from pyspark.errors import PySparkException

from alluvia.errors import Invalid, Unavailable
from alluvia.table.partitioning.spans import Key
from alluvia_spark import repeats, tasks
from alluvia_spark.chunks import Chunk
from alluvia_spark.job import REJECTS, ROWS, Job, JobOutcome, Written
from alluvia_spark.manifest import Manifest, portion_of
from alluvia_spark.plan import (
    WAVES,
    Group,
    Layout,
    Weight,
    bucket_bytes,
    plan_layout,
    plan_shares,
    spread_tables,
)
from alluvia_spark.stages import stages_reported

SPLIT_BYTES_MAX = 64 << 20
SPLIT_BYTES_MIN = 1 << 20
IDS_A_TASK = 1 << 20
Place = tuple[int, tuple[str | None, ...], Key]  # a table, values of its identity columns, a key of its transforms
NOTHING = Weight(0, 0, 0)
Splits = Broadcast[pa.Table]
Places: TypeAlias = "dict[int, array[int]]"  # of rows that clash, by task


def execute(context: SparkContext, job: Job, files: Manifest) -> JobOutcome:
    """Read the files, and write the data files of the job's tables. Commits nothing.

    Raises `Invalid` for an input that cannot be read, `Unavailable` if Spark gives up.
    """
    try:
        with stages_reported(context):
            return _execute(context, job, files)
    except (Py4JError, PySparkException) as error:
        raise Unavailable(f"the Spark job failed: {_reason(error)}") from error


def _execute(context: SparkContext, job: Job, files: Manifest) -> JobOutcome:
    parallelism = context.defaultParallelism
    fair_bytes = files.bytes // (parallelism * WAVES)
    splits = files.splits(min(SPLIT_BYTES_MAX, max(SPLIT_BYTES_MIN, fair_bytes)))
    shared = context.broadcast(splits)
    numbers = context.parallelize(range(len(splits)), len(splits))
    chunks = numbers.flatMap(partial(_read, job, shared)).persist(StorageLevel.MEMORY_AND_DISK)
    clashes = context.emptyRDD()
    try:
        weights = _weights(chunks, parallelism)
        _check(weights)
        winners, places = _repeats(chunks, job, weights)
        if places:
            again = context.parallelize(sorted(places), len(places))
            clashes = again.flatMap(partial(_read_clashes, job, shared, context.broadcast(places)))
            clashes = clashes.persist(StorageLevel.MEMORY_AND_DISK)
            for place, weight in _weights(clashes, parallelism).items():
                weights[place] = weights.get(place, NOTHING).plus(weight)
        written = _write(context, chunks.union(clashes), job, weights, context.broadcast(winners))
    finally:
        clashes.unpersist()
        chunks.unpersist()
    return _outcome(weights, written, sum(map(len, places.values())))


def _read(job: Job, splits: Splits, task: int) -> Iterator[Chunk]:
    return tasks.read_task(job, task, portion_of(splits.value, task))


def _read_clashes(job: Job, splits: Splits, places: Broadcast[Places], task: int) -> Iterator[Chunk]:
    return tasks.read_clashes(job, len(splits.value) + task, portion_of(splits.value, task), places.value[task])


def _weights(chunks: RDD[Chunk], parallelism: int) -> dict[Place, Weight]:
    return dict(chunks.flatMap(_weigh).reduceByKey(Weight.plus, parallelism).collect())


def _weigh(chunk: Chunk) -> Iterator[tuple[Place, Weight]]:
    for group in chunk.groups:
        part = group.rows / max(1, chunk.rows)
        weight = Weight(group.rows, int(chunk.size * part), int(chunk.packed * part))
        yield (chunk.table, group.values, group.key), weight


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


def _check(weights: dict[Place, Weight]) -> None:
    problems = sorted(values[0] or "" for table, values, _ in weights if table == tasks.PROBLEM)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise Invalid(problems[0] + more)


def _repeats(chunks: RDD[Chunk], job: Job, weights: dict[Place, Weight]) -> tuple[dict[int, dict[str, str]], Places]:
    """Return, by table, the folder that keeps an event of several, and by task the rows that clash with others."""
    layouts, sizes, _ = _layouts(job, weights)
    tables = spread_tables(sizes) | {group.table for group in sizes if group.table == ROWS}
    winners: dict[int, dict[str, str]] = {}
    places: Places = {}
    if tables:
        count = -(-sum(weight.rows for weight in weights.values()) // IDS_A_TASK)
        ids = chunks.flatMap(partial(repeats.event_ids, job, layouts, tables, count))
        for found in _to_tasks(ids, count).mapPartitions(repeats.find_repeats).collect():
            for group, event_id in found.winners:
                winners.setdefault(group.table, {})[event_id] = group.folder
            for task, ours in found.clashes.items():
                places.setdefault(task, array("q")).extend(ours)
    return winners, places


def _write(
    context: SparkContext,
    chunks: RDD[Chunk],
    job: Job,
    weights: dict[Place, Weight],
    winners: Broadcast[dict[int, dict[str, str]]],
) -> list[Written]:
    if not weights:
        return []
    layouts, sizes, file_bytes = _layouts(job, weights)
    plan = plan_shares(sizes, bucket_bytes(sum(sizes.values()), context.defaultParallelism), file_bytes)
    shared = context.broadcast((layouts, plan.shares))

    def routed(chunk: Chunk) -> Iterator[tuple[int, tasks.Rows]]:
        return tasks.route(*shared.value, chunk)

    def write(ours: Iterable[tasks.Rows]) -> Iterator[Written]:
        return tasks.write_task(job, winners.value, ours)

    written: list[Written] = _to_tasks(chunks.flatMap(routed), plan.tasks).mapPartitions(write).collect()
    return written


def _to_tasks(pairs: RDD[tuple[int, Any]], count: int) -> RDD[Any]:
    """Give each task the values that are paired with its number."""
    return pairs.partitionBy(count, int).values()


def _outcome(weights: dict[Place, Weight], written: Sequence[Written], conflicting: int) -> JobOutcome:
    lines = [sum(weight.rows for place, weight in weights.items() if place[0] == table) for table in (ROWS, REJECTS)]
    rows = sum(part.rows for part in written if part.table == ROWS)
    duplicates = lines[ROWS] - rows - conflicting
    return JobOutcome(rows, duplicates, lines[REJECTS], conflicting, tuple(written))


def _reason(error: Exception) -> str:
    """Return the line of a failure that tells most: of a Python error in an executor, its last."""
    text = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line for line in text.splitlines() if line and not line[0].isspace()]
    traces = [at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    after = lines[traces[-1] + 1 :] if traces else []
    return (after or lines or ["no reason given"])[0]
