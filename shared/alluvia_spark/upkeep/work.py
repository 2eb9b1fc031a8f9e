"""Pieces of an operation as tasks of Spark, whose results come back one by one, each as soon as it is there.

Every piece is a job of Spark of its own, and many are under way at once: one job of many tasks would give its first
result after the last. Only DataFrames, so that it works over Spark Connect as well.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import islice
from typing import Any, TypeVar

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from alluvia.clock import SystemClock
from alluvia.errors import AlluviaError, Unavailable
from alluvia_spark.failures import failures_explained
from alluvia_spark.file_groups import GROUP_BYTES, OPEN_BYTES, Item, grouped
from alluvia_spark.frames import Row, mapped, parallelism, tasks
from alluvia_spark.writing.row_changes import dumped

JOBS_MAX = 256
"""Jobs under way at once, for each of which the driver has a thread."""
_LOCAL_SHARE = 0.5
"""The share of a machine's memory for all tasks: the driver and everything else need the rest."""
_MEBIBYTES = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1 << 20}

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def results(
    spark: SparkSession, work: Callable[[Piece], Result], pieces: Iterable[Piece]
) -> Iterator[tuple[Piece, Result]]:
    """Have tasks work on pieces, and yield each with its result, in the order in which they are done.

    `work` and the pieces are sent to executors. If an executor is lost, Spark sends its pieces to another; so `work`
    may run more than once for one. If the caller stops, or a piece fails, the jobs that are under way are cancelled.

    Raises the error of a piece that fails for good, and `Unavailable` where Spark gives up.
    """
    waiting = iter(pieces)
    with _jobs(spark, work) as start:
        under_way = {start(piece): piece for piece in islice(waiting, _ahead(spark))}
        while under_way:
            for done in wait(under_way, return_when=FIRST_COMPLETED).done:
                yield under_way.pop(done), done.result()
                under_way.update((start(piece), piece) for piece in islice(waiting, 1))


def in_order(spark: SparkSession, work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """Yield the results of pieces as `results` does, but in the order of the pieces."""
    waiting = iter(pieces)
    with _jobs(spark, work) as start:
        under_way = deque(map(start, islice(waiting, _ahead(spark))))
        while under_way:
            yield under_way.popleft().result()
            under_way.extend(map(start, islice(waiting, 1)))


def _ahead(spark: SparkSession) -> int:
    """Return how many pieces are under way or done before their turn: more would fill the driver's memory."""
    return 2 * jobs_at_once(spark)


@contextmanager
def _jobs(spark: SparkSession, work: Callable[[Piece], Result]) -> Iterator[Callable[[Piece], Future[Result]]]:
    """Give what starts a job of one task for a piece. If the block fails or is left, the jobs are cancelled."""
    tag = f"alluvia-{SystemClock().new_id()}"
    shared = dumped(work)

    def start(piece: Piece) -> Future[Result]:
        return threads.submit(job, piece)

    def job(piece: Piece) -> Result:
        spark.addTag(tag)
        with failures_explained():
            frame = mapped(tasks(spark, 1), partial(_run, shared, dumped(piece)), {"result": "binary"})
            ((answer,),) = frame.collect()
        result: Result | _Failed = cloudpickle.loads(bytes(answer))
        if isinstance(result, _Failed):
            raise result.error
        return result

    with ThreadPoolExecutor(jobs_at_once(spark)) as threads:
        try:
            yield start
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            with suppress(AlluviaError), failures_explained():
                spark.interruptTag(tag)
            raise


def shared_out(things: Sequence[Item], spark: SparkSession) -> list[list[Item]]:
    """Divide things among tasks as `grouped` does, with less for each where that keeps more tasks busy."""
    size = sum(each.size + OPEN_BYTES for each in things)
    return grouped(things, min(GROUP_BYTES, size // jobs_at_once(spark)))


class _Failed:
    """A piece that fails for good."""

    def __init__(self, error: AlluviaError) -> None:
        self.error = error


def _run(shared: bytes, piece: bytes, _: Iterable[Row]) -> Iterator[Row]:
    spill_where_spark_does()
    try:
        result = _loaded(shared)(cloudpickle.loads(piece))
    except Unavailable:  # Spark tries again
        raise
    except AlluviaError as error:
        result = _Failed(error)
    yield (dumped(result),)


@lru_cache(maxsize=1)
def _loaded(shared: bytes) -> Callable[[Any], Any]:
    work: Callable[[Any], Any] = cloudpickle.loads(shared)
    return work


def spill_where_spark_does() -> None:
    """Put temporary files on the disk that Spark has for its own: the system's may be small."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    if folder and "TMPDIR" not in os.environ:
        tempfile.tempdir = folder


def jobs_at_once(spark: SparkSession) -> int:
    """Return how many jobs of one task keep a cluster busy, at its largest if it grows as jobs wait."""
    executors = spark.conf.get("spark.dynamicAllocation.maxExecutors", None)
    grown = int(executors) * int(spark.conf.get("spark.executor.cores", None) or 1) if executors else 0
    return min(JOBS_MAX, max(parallelism(spark), grown) + 1)


def task_memory_mb(spark: SparkSession) -> int:
    """Return how much memory a task's Python process may take, in MB.

    On a cluster that is its share of an executor's memory for Python, `spark.executor.pyspark.memory`, or else of the
    memory besides Java's heap, `spark.executor.memoryOverhead`. On one machine it is a share of half its memory.
    """
    if str(spark.conf.get("spark.master", None) or "local").startswith("local["):
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return max(1, int(machine * _LOCAL_SHARE / parallelism(spark) / 1e6))
    for name in ("spark.executor.pyspark.memory", "spark.executor.memoryOverhead"):
        if text := spark.conf.get(name, None):
            break
    else:
        text = "384m"  # Spark's least
    cores = int(spark.conf.get("spark.executor.cores", None) or 1)
    return max(1, int(_mebibytes(text) * 1.048576 / cores))


def _mebibytes(text: str) -> float:
    """Return a size as Spark writes it: a number, of mebibytes unless it has another unit."""
    number = text.strip().lower().removesuffix("b").removesuffix("i")
    unit = number[-1:] if number[-1:] in _MEBIBYTES else ""
    return float(number.removesuffix(unit)) * _MEBIBYTES[unit or "m"]
