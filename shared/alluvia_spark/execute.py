"""A job's steps on Spark. Rows pass between them as chunks of Arrow bytes; the driver sees sizes and file names."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import Broadcast, SparkContext, StorageLevel
from pyspark.core.rdd import RDD
from pyspark.errors import PySparkException

from alluvia.errors import Invalid, Unavailable
from alluvia_spark import repeats, tasks
from alluvia_spark.chunks import Chunk
from alluvia_spark.job import REJECTS, ROWS, Job, JobOutcome, Written
from alluvia_spark.plan import WAVES, Group, bucket_bytes, plan_shares, spread_tables
from alluvia_spark.source import FileSplit, SourceFile, plan_splits
from alluvia_spark.stages import stages_reported

SPLIT_BYTES_MAX = 64 << 20
SPLIT_BYTES_MIN = 1 << 20
IDS_A_TASK = 1 << 20
Size = tuple[int, int]  # rows, and bytes as Arrow
Splits = Broadcast[list[tuple[FileSplit, ...]]]
Places: TypeAlias = "dict[int, array[int]]"  # of rows that clash, by task


def execute(context: SparkContext, job: Job, files: Sequence[SourceFile]) -> JobOutcome:
    """Read the files, and write the data files of the job's tables. Commits nothing.

    Raises `Invalid` for an input that cannot be read, `Unavailable` if Spark gives up.
    """
    try:
        with stages_reported(context):
            return _execute(context, job, files)
    except (Py4JError, PySparkException) as error:
        raise Unavailable(f"the Spark job failed: {_reason(error)}") from error


def _execute(context: SparkContext, job: Job, files: Sequence[SourceFile]) -> JobOutcome:
    parallelism = context.defaultParallelism
    fair_bytes = sum(file.size for file in files) // (parallelism * WAVES)
    splits = plan_splits(files, min(SPLIT_BYTES_MAX, max(SPLIT_BYTES_MIN, fair_bytes)))
    shared = context.broadcast(splits)
    numbers = context.parallelize(range(len(splits)), len(splits))
    chunks = numbers.flatMap(partial(_read, job, shared)).persist(StorageLevel.MEMORY_AND_DISK)
    clashes = context.emptyRDD()
    try:
        sizes = _sizes(chunks, parallelism)
        _check(sizes)
        winners, places = _repeats(chunks, job, sizes)
        if places:
            again = context.parallelize(sorted(places), len(places))
            clashes = again.flatMap(partial(_read_clashes, job, shared, context.broadcast(places)))
            clashes = clashes.persist(StorageLevel.MEMORY_AND_DISK)
        more = _sizes(clashes, parallelism) if places else {}
        every = {group: _sum(sizes.get(group, (0, 0)), more.get(group, (0, 0))) for group in sizes | more}
        written = _write(context, chunks.union(clashes), job, every, context.broadcast(winners))
    finally:
        clashes.unpersist()
        chunks.unpersist()
    return _outcome(every, written, sum(map(len, places.values())))


def _read(job: Job, splits: Splits, task: int) -> Iterator[Chunk]:
    return tasks.read_task(job, task, splits.value[task])


def _read_clashes(job: Job, splits: Splits, places: Broadcast[Places], task: int) -> Iterator[Chunk]:
    return tasks.read_clashes(job, len(splits.value) + task, splits.value[task], places.value[task])


def _sizes(chunks: RDD[Chunk], parallelism: int) -> dict[Group, Size]:
    return dict(chunks.map(_size).reduceByKey(_sum, parallelism).collect())


def _size(chunk: Chunk) -> tuple[Group, Size]:
    return chunk.group, (chunk.rows, chunk.size)


def _sum(one: Size, other: Size) -> Size:
    return one[0] + other[0], one[1] + other[1]


def _check(sizes: dict[Group, Size]) -> None:
    problems = sorted(group.folder for group in sizes if group.table == tasks.PROBLEM)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise Invalid(problems[0] + more)


def _repeats(chunks: RDD[Chunk], job: Job, sizes: dict[Group, Size]) -> tuple[dict[int, dict[str, str]], Places]:
    """Return, by table, the folder that keeps an event of several, and by task the rows that clash with others."""
    tables = spread_tables(sizes) | {group.table for group in sizes if group.table == ROWS}
    winners: dict[int, dict[str, str]] = {}
    places: Places = {}
    if tables:
        count = -(-sum(rows for rows, _ in sizes.values()) // IDS_A_TASK)
        ids = chunks.flatMap(partial(repeats.event_ids, job, tables, count))
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
    sizes: dict[Group, Size],
    winners: Broadcast[dict[int, dict[str, str]]],
) -> list[Written]:
    bytes_of = {group: size for group, (_, size) in sizes.items()}
    if not bytes_of:
        return []
    plan = plan_shares(bytes_of, bucket_bytes(sum(bytes_of.values()), context.defaultParallelism))
    shares = context.broadcast(plan.shares)

    def routed(chunk: Chunk) -> Iterator[tuple[int, Chunk]]:
        return tasks.route(shares.value, chunk)

    def write(ours: Iterable[Chunk]) -> Iterator[Written]:
        return tasks.write_task(job, winners.value, ours)

    written: list[Written] = _to_tasks(chunks.flatMap(routed), plan.tasks).mapPartitions(write).collect()
    return written


def _to_tasks(pairs: RDD[tuple[int, Any]], count: int) -> RDD[Any]:
    """Give each task the values that are paired with its number."""
    return pairs.partitionBy(count, int).values()


def _outcome(sizes: dict[Group, Size], written: Sequence[Written], conflicting: int) -> JobOutcome:
    lines = [sum(rows for group, (rows, _) in sizes.items() if group.table == table) for table in (ROWS, REJECTS)]
    rows = sum(part.rows for part in written if part.table == ROWS)
    files = tuple(
        tuple(file for part in written if part.table == table for file in part.files) for table in (ROWS, REJECTS)
    )
    duplicates = lines[ROWS] - rows - conflicting
    return JobOutcome(rows, duplicates, lines[REJECTS], conflicting, files[ROWS], files[REJECTS])


def _reason(error: Exception) -> str:
    """Return the line of a failure that tells most: of a Python error in an executor, its last."""
    text = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line for line in text.splitlines() if line and not line[0].isspace()]
    traces = [at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    after = lines[traces[-1] + 1 :] if traces else []
    return (after or lines or ["no reason given"])[0]
