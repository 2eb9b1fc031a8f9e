"""A job's access to Spark: functions over rows of Arrow batches, and exchanges in which each row names its task.

Only DataFrames, so that it works over Spark Connect as well.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeAlias
from zipimport import zipimporter

import pyarrow as pa
from pyspark.errors import PySparkImportError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import StructType
from pyspark.sql.udf import _create_udf
from pyspark.util import PythonEvalType

from alluvia.progress import listener, report

if TYPE_CHECKING:
    from pyspark import SparkContext, StatusTracker

EVERY_SECONDS = 0.5


@contextmanager
def stages_reported(context: SparkContext, files: int, size: int) -> Iterator[None]:
    """Report how far the stages of a job have come meanwhile, which reads some files of `size` bytes in all."""
    if listener() is None:
        yield
        return
    ended = Event()
    watch = Thread(
        target=copy_context().run, args=(report_stages, context.statusTracker(), ended, files, size), daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()


def report_stages(tracker: StatusTracker, ended: Event, files: int, size: int) -> None:
    """Report the active stages every half second until the work has ended.

    The first one reads the files, each task about the same share of their bytes. Of the others, tasks are counted.
    """
    reading: int | None = None
    of = f"{files} file" if files == 1 else f"{files} files"
    while not ended.wait(EVERY_SECONDS):
        for stage in sorted(tracker.getActiveStageIds()):
            info = tracker.getStageInfo(stage)
            if info is None:
                continue
            reading = stage if reading is None else reading
            if stage == reading:
                report(f"reading {of}", size * info.numCompletedTasks // max(1, info.numTasks), size, "bytes")
            else:
                report(f"{of}: Spark stage {stage}", info.numCompletedTasks, info.numTasks, "tasks")


def spare_later_tasks() -> None:
    """Spare this worker's later tasks 0.15 s and 0.02 s each.

    PySpark forgets at each task's start what all archives hold, and reads that of its own one 16 times. They stay as
    they are: a file that is added to a session has a path of its own. And at each task's end it has the collector look
    through all objects: it leaves out those of the modules.
    """
    zipimporter.invalidate_caches = lambda self: None  # type: ignore[method-assign]  # noqa: ARG005 - mypy wants its name
    if not gc.get_freeze_count():
        gc.freeze()


Row: TypeAlias = tuple[Any, ...]
Columns: TypeAlias = Mapping[str, str]
"""Names and types of Spark."""
TASK = "to"
"""The column of an exchange that holds `task_key` of the task that a row goes to."""
BATCH_BYTES = 16 << 20
BATCH_ROWS = 1000
_ARROW = {"int": pa.int32(), "long": pa.int64(), "string": pa.string(), "binary": pa.binary()}
_SETTINGS = {
    # Rows are big, and a batch of them is in memory several times.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
}
_BITS = 0xFFFFFFFF
_SEED = 42


@contextmanager
def fit_session(spark: SparkSession) -> Iterator[SparkSession]:
    """Give a session with the settings that a job needs: one of its own, where Spark has it (not over Connect)."""
    new_session = getattr(spark, "newSession", None)
    own: SparkSession = spark if new_session is None else new_session()
    before = {name: own.conf.get(name, None) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        own.conf.set(name, value)
    try:
        yield own
    finally:
        for name, text in before.items():
            if text is None:
                own.conf.unset(name)
            else:
                own.conf.set(name, text)
        if own is not spark:  # which became the active one when it made a frame
            jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no public way
            jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001
            SparkSession._activeSession = spark  # noqa: SLF001


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at once, as Spark counts them for a range."""
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        return int(context.defaultParallelism)
    return spark.range(10_000).select(spark_partition_id()).distinct().count()


def tasks(spark: SparkSession, count: int) -> DataFrame:
    """Return a row for each of some tasks, with its number."""
    return spark.range(0, count, 1, count)


def numbered_tasks(spark: SparkSession, numbers: Sequence[int]) -> DataFrame:
    """Return a row `task` for each of some numbers, in a task of its own."""
    rows = [(task_key(task), number) for task, number in enumerate(numbers)]
    return to_tasks(spark.createDataFrame(rows, f"{TASK} int, task int"), len(rows)).select("task")


def mapped(frame: DataFrame, function: Callable[[Iterator[Row]], Iterable[Row]], columns: Columns) -> DataFrame:
    """Return what a function makes of each partition's rows."""
    schema = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    return mapped_batches(frame, partial(_map, function, tuple(columns.items())), schema)


def mapped_batches(
    frame: DataFrame,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str | StructType,
) -> DataFrame:
    """Return what a function makes of each partition's rows, both as Arrow batches.

    Columns are numbered on the way: PySpark takes their names for expressions (`a.b`, `*`).
    """
    run = partial(_run, function, frame.columns)
    frame = numbered(frame)
    try:
        return frame.mapInArrow(run, schema)
    except PySparkImportError:  # PySpark asks for pandas, which functions over Arrow batches do not use
        from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

        plan = _create_udf(run, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)(*frame.columns)
        made = frame._jdf.mapInArrow(plan._jc, False, None)  # noqa: SLF001 - as `mapInArrow` does it
        return ClassicFrame(made, frame.sparkSession)


def numbered(frame: DataFrame) -> DataFrame:
    """Return a frame with columns that are named by their places, `c0` and so on, which no expression misreads."""
    return frame.toDF(*(f"c{at}" for at in range(len(frame.columns))))


def _run(
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    names: list[str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    spare_later_tasks()
    return function(batch.rename_columns(names) for batch in batches)


def _map(
    function: Callable[[Iterator[Row]], Iterable[Row]],
    columns: tuple[tuple[str, str], ...],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in columns])
    given = (row for batch in batches for row in zip(*(each.to_pylist() for each in batch.columns), strict=True))
    waiting: list[Row] = []
    size = 0
    for row in function(given):
        waiting.append(row)
        size += sum(len(value) for value in row if isinstance(value, bytes))
        if size >= BATCH_BYTES or len(waiting) == BATCH_ROWS:
            yield _batch(waiting, schema)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting, schema)


def _batch(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def to_tasks(frame: DataFrame, count: int) -> DataFrame:
    """Give each of `count` tasks the rows that name it in the column `TASK`."""
    return frame.repartition(count, TASK)


def task_key(task: int) -> int:
    """Return the number whose hash is a task's, so that Spark's exchange by hash brings a row to that task.

    The hash is Murmur3 (x86, 32 bits) of four bytes with seed 42, each step of which can be turned around.
    """
    key = task ^ task >> 16
    key = key * pow(0xC2B2AE35, -1, 1 << 32) & _BITS
    key ^= key >> 13 ^ key >> 26
    key = key * pow(0x85EBCA6B, -1, 1 << 32) & _BITS
    key ^= key >> 16
    key ^= 4
    key = (key - 0xE6546B64) * pow(5, -1, 1 << 32) & _BITS
    key = _rotated(key, 32 - 13) ^ _SEED
    key = key * pow(0x1B873593, -1, 1 << 32) & _BITS
    key = _rotated(key, 32 - 15)
    key = key * pow(0xCC9E2D51, -1, 1 << 32) & _BITS
    return key - (1 << 32) if key >> 31 else key


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & _BITS
