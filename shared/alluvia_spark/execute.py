"""A job's steps on Spark. Rows pass between them as chunks of Arrow bytes; the driver sees sizes and file names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql.functions import col, lit

from alluvia.errors import Invalid, Unavailable
from alluvia.table.event_window.id_files import ID_FOLDER, IdFiles, plan_files
from alluvia.table.partitioning.spans import Key
from alluvia.table.snapshot import Snapshot
from alluvia_spark import data_files, known_ids, live, repeats, scratch, tasks
from alluvia_spark.chunks import CHUNK, PLAIN, ROW, Chunk, decode, encode, read_key
from alluvia_spark.data_files import Routes, Rows
from alluvia_spark.frames import TASK, Row, fit_session, mapped, parallelism, task_key, to_tasks
from alluvia_spark.frames import tasks as numbered
from alluvia_spark.job import REJECTS, ROWS, Job, JobOutcome, Written
from alluvia_spark.manifest import Manifest, Portion, portion_of
from alluvia_spark.plan import WAVES, Group, Layout, Weight, bucket_bytes, plan_layout, plan_shares
from alluvia_spark.stages import stages_reported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPLIT_BYTES_MAX = 64 << 20
SPLIT_BYTES_MIN = 1 << 20
DROPS_A_CORE = 4
SPLITS = "splits.arrow"
Place: TypeAlias = tuple[int, tuple[str | None, ...], Key]
"""A table, values of its identity columns, a key of its transforms."""
_ROUTED = {TASK: "int", "task": "int", "part": "int", "groups": "binary", "payload": "binary"}
_PAYLOAD = {TASK: "int", "number": "int", "payload": "binary"}
_LOST = {TASK: "int", "task": "int", "payload": "binary"}
_READ = {**CHUNK, "place": "string", "rows": "long"}
"""A row is a chunk, or what its rows of one partition value (`place`) amount to: the other columns are null."""
_COUNTS = {"task": "int", "clashes": "long", "rejects": "long"}


def execute(spark: SparkSession, job: Job, files: Manifest, base: Snapshot) -> JobOutcome:
    """Read the files, and write the data files of the job's tables, of which `base` is the first. Commits nothing.

    Raises `Invalid` for an input that cannot be read, `Unavailable` if Spark gives up.
    """
    context = getattr(spark, "sparkContext", None)
    try:
        with nullcontext() if context is None else stages_reported(context), fit_session(spark) as own:
            return _Run(own, job, files, base).outcome()
    except (Py4JError, PySparkException) as error:
        raise Unavailable(f"the Spark job failed: {_reason(error)}") from error


class _Run:
    """One run of a job: its frames, and what the driver learns of them."""

    def __init__(self, spark: SparkSession, job: Job, files: Manifest, base: Snapshot) -> None:
        self.spark = spark
        self.job = job
        self.ids: IdFiles | None = None
        self.base = base
        self.cores = parallelism(spark)
        fair_bytes = -(-files.cost_bytes // (self.cores * WAVES))
        self.splits = files.splits(min(SPLIT_BYTES_MAX, max(SPLIT_BYTES_MIN, fair_bytes)))

    def outcome(self) -> JobOutcome:
        """Do all steps."""
        scratch.put(self.job, SPLITS, encode(self.splits))
        with ExitStack() as stack:
            chunks = self._kept(mapped(numbered(self.spark, len(self.splits)), partial(_read, self.job), _READ), stack)
            weights = _weights(chunks)
            _check(weights)
            if not weights:
                return JobOutcome(0, 0, 0, 0, ())
            dropping, clashes = self._drop_repeats(chunks, weights)
            if clashes:
                again = self._kept(mapped(self._each(sorted(clashes)), partial(_read_clashes, self.job), _READ), stack)
                weights = _together(weights, _weights(again))
                chunks = chunks.union(again)
            written = self._write(chunks, weights, dropping)
        lines = [
            sum(weight.rows for place, weight in weights.items() if place[0] == table) for table in (ROWS, REJECTS)
        ]
        rows = sum(part.rows for part in written if part.table == ROWS)
        conflicting = sum(count for count, _ in clashes.values())
        again_rejected = conflicting - sum(kept for _, kept in clashes.values())
        return JobOutcome(
            rows,
            lines[ROWS] - rows - conflicting,
            lines[REJECTS] + again_rejected,
            conflicting,
            tuple(written),
            self.ids,
        )

    def _each(self, numbers: Sequence[int]) -> DataFrame:
        """Return a row for each of some numbers, in a task of its own."""
        rows = [(task_key(task), number) for task, number in enumerate(numbers)]
        return to_tasks(self.spark.createDataFrame(rows, f"{TASK} int, task int"), len(rows)).select("task")

    def _kept(self, frame: DataFrame, stack: ExitStack) -> DataFrame:
        kept = frame.persist(StorageLevel.DISK_ONLY)  # in memory, arrays of such size soon leave no room for the next
        stack.callback(kept.unpersist)
        return kept

    def _drop_repeats(
        self, chunks: DataFrame, weights: dict[Place, Weight]
    ) -> tuple[bytes, dict[int, tuple[int, int]]]:
        """Have the rows that come again written down, by reading task, and return of which tasks there are some.

        Of the tasks with clashes also how many there are, and how many of them are kept as rejects.
        """
        layout = plan_files(f"{ID_FOLDER}{self.job.run_id}/", sum(weight.rows for weight in weights.values()))
        count, self.ids = layout.ranges, layout
        ids = chunks.where(col("ids").isNotNull()).select("ids")
        if count == 1:
            ids = ids.select(lit(task_key(0)).alias(TASK), lit(0).alias("number"), col("ids").alias("payload"))
        else:
            ids = mapped(ids, partial(_ids, count), _PAYLOAD)
        files = live.files_touched(self.base, ((values, key) for table, values, key in weights if table == ROWS))
        if held := live.plan_tasks(files):
            for number, some in enumerate(held):
                scratch.put(self.job, f"live/{number}.json", live.encode_files(some))
            there = mapped(
                numbered(self.spark, len(held)), partial(_live, self.job, self.base.version, count), _PAYLOAD
            )
            ids = ids.union(there)
        spread = min(len(self.splits), self.cores * DROPS_A_CORE)
        find, ids = partial(_find, self.job, layout, spread), to_tasks(ids, count)
        if count == 1:
            counted = mapped(ids, partial(_find_and_put, find, self.job), _COUNTS).collect()
        else:
            counted = mapped(
                to_tasks(mapped(ids, find, _LOST), spread), partial(_put_drops, self.job), _COUNTS
            ).collect()
        clashes = {row.task: (row.clashes, row.rejects) for row in counted if row.clashes}
        return data_files.bitmap((row.task for row in counted), len(self.splits)), clashes

    def _write(self, chunks: DataFrame, weights: dict[Place, Weight], dropping: bytes) -> list[Written]:
        layouts, sizes, file_bytes = _layouts(self.job, weights)
        plan = plan_shares(sizes, bucket_bytes(sum(sizes.values()), self.cores), file_bytes)
        scratch.put(self.job, data_files.PLAN, Routes(layouts, plan.shares, dropping).to_json())
        given = chunks.where(col("payload").isNotNull()).select([name for name in CHUNK if name != "ids"])
        routed = mapped(given, partial(_route, self.job), _ROUTED)
        written = mapped(to_tasks(routed, plan.tasks), partial(_write, self.job), {"written": "string"}).collect()
        return [Written.from_json(body) for row in written for body in orjson.loads(row.written)]


def _portion(job: Job, task: int) -> Portion:
    return portion_of(decode(scratch.get(job, SPLITS)), task)


def _read(job: Job, rows: Iterator[Row]) -> Iterator[Row]:
    for (task,) in rows:
        for chunk in tasks.read_task(job, task, _portion(job, task)):
            yield from _rows(chunk)


def _read_clashes(job: Job, rows: Iterator[Row]) -> Iterator[Row]:
    for (task,) in rows:
        drops = _drops(job, task)
        places = drops.filter(pc.equal(drops[repeats.KIND], repeats.CLASH))[ROW]
        for chunk in tasks.read_clashes(job, -1 - task, _portion(job, task), places.sort().to_pylist()):
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
    found = {}
    for table, place, *weight in summed:
        values, key = orjson.loads(place)
        found[table, tuple(values), read_key(key)] = Weight(*weight)
    return found


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


def _check(weights: dict[Place, Weight]) -> None:
    problems = sorted(values[0] or "" for table, values, _ in weights if table == tasks.PROBLEM)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise Invalid(problems[0] + more)


def _ids(count: int, rows: Iterator[Row]) -> Iterator[Row]:
    for (payload,) in rows:
        yield from _by_range(decode(payload), count)


def _live(job: Job, version: int, count: int, rows: Iterator[Row]) -> Iterator[Row]:
    for (task,) in rows:
        files = live.decode_files(scratch.get(job, f"live/{task}.json"))
        for ids in live.live_ids(job, version, files):
            yield from _by_range(ids, count)


def _by_range(ids: pa.Table, count: int) -> Iterator[Row]:
    for number, part in repeats.divided(ids, count):
        yield task_key(number), number, encode(part, PLAIN)


def _find(job: Job, layout: IdFiles, spread: int, rows: Iterator[Row]) -> Iterator[Row]:
    by_range: dict[int, list[pa.Table]] = {}
    for _, number, payload in rows:
        by_range.setdefault(number, []).append(decode(payload))
    for number, ids in by_range.items():  # one, but where Spark has put small tasks together
        lost, stored = repeats.find_repeats(pa.concat_tables(ids))
        known_ids.put_ids(job, layout, number, stored)
        for task, drops in _by_task(lost):
            yield task_key(task % spread), task, encode(drops)


def _find_and_put(find: Callable[[Iterator[Row]], Iterator[Row]], job: Job, rows: Iterator[Row]) -> Iterator[Row]:
    """Do both steps, in the one task that has all identities."""
    return _put_drops(job, find(rows))


def _by_task(lost: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    lost = lost.sort_by(repeats.TASK)
    counts, start = pc.value_counts(lost[repeats.TASK].combine_chunks()), 0
    for task, count in zip(*(counts.field(at).to_pylist() for at in (0, 1)), strict=True):
        yield task, lost.slice(start, count)
        start += count


def _put_drops(job: Job, rows: Iterator[Row]) -> Iterator[Row]:
    found: dict[int, list[pa.Table]] = {}
    for _, task, payload in rows:
        found.setdefault(task, []).append(decode(payload))
    for task in sorted(found):
        drops = pa.concat_tables(found.pop(task))
        scratch.put(job, _drops_name(task), encode(drops))
        kinds = drops[repeats.KIND].to_pylist()
        kept = kinds.count(repeats.CLASH)
        yield task, kept + kinds.count(repeats.CLASH_AGAIN), kept


def _drops_name(task: int) -> str:
    return f"drops/{task}.arrow"


def _drops(job: Job, task: int) -> pa.Table:
    return decode(scratch.get(job, _drops_name(task)))


def _route(job: Job, rows: Iterator[Row]) -> Iterator[Row]:
    routes = None
    for row in rows:
        routes = routes or Routes.from_json(scratch.get(job, data_files.PLAN))
        chunk = Chunk.from_row((*row[:-1], b"", row[-1]))
        dropped = None
        if chunk.task >= 0 and routes.drops_of(chunk.task):
            dropped = _drops(job, chunk.task)[ROW].combine_chunks()
        for task, part in data_files.route(chunk, routes, dropped):
            yield task_key(task), *part.to_row()


def _write(job: Job, rows: Iterator[Row]) -> Iterator[Row]:
    ours = [Rows.from_row(*row) for _, *row in rows]
    if ours:
        yield (orjson.dumps([each.to_json() for each in data_files.write_rows(job, ours)]).decode(),)


def _reason(error: Exception) -> str:
    """Return the line of a failure that tells most: of a Python error in an executor, its last."""
    text = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line for line in text.splitlines() if line and not line[0].isspace()]
    traces = [at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    after = lines[traces[-1] + 1 :] if traces else []
    return (after or lines or ["no reason given"])[0]
