"""Verify a past job: look for each line of its source in the table and in its rejects.

Three searches, each for the lines that the one before has not found: rows in the table, other lines in the
rejects, and rejects in the table as events, which a replay may have made of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import StorageLevel

import alluvia
from alluvia.api.lake import Lake
from alluvia.backfill_jobs import default_job_id
from alluvia.clock import Clock, SystemClock
from alluvia.commit.event_window.id_files import plan_files
from alluvia.delta.schema.serialization import arrow_schema
from alluvia.events.ingest.event_tables import find_rejects
from alluvia.table_names import folder_name
from alluvia_spark.backfill import DEFAULT, run_folder
from alluvia_spark.backfill_job import scratch
from alluvia_spark.backfill_job.dropping import HeldFiles, by_task, identities, joined_ranges
from alluvia_spark.backfill_job.execute import check_read, job_session, portion_at, put_splits
from alluvia_spark.backfill_job.job import REJECTS, ROWS, Job, Target
from alluvia_spark.backfill_job.live import known_contents
from alluvia_spark.backfill_job.record import Record, known_job
from alluvia_spark.backfill_job.repeats import Contents, find_absent, nothing_known
from alluvia_spark.backfill_job.tasks import LINES, PROBLEM, Line, lines_at, read_clashes, read_task, reject_events
from alluvia_spark.chunks import PLAIN, ROW, decode, encode
from alluvia_spark.frames import TASK, Row, mapped, numbered_tasks, parallelism, task_key, to_tasks
from alluvia_spark.frames import tasks as numbered
from alluvia_spark.session import QUICK_JAVA, session
from alluvia_spark.sources.files import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LISTED_MAX = 1000
_IDS = {"table": "int", "rows": "long", "problem": "string", "ids": "binary"}
_LOST = {TASK: "int", "task": "int", "payload": "binary"}
_COUNTS = {"task": "int", "rows": "long"}
AS_ROWS, AS_REJECTS, AS_REPLAYED = "rows", "rejects", "replayed"


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found of a job's lines in `version` of its table, and in the newest version of its rejects.

    `missing` counts the lines that are in neither; `listed` are the first of them.
    """

    job_id: str
    table: str
    version: int
    lines: int
    missing: int
    listed: tuple[Line, ...] = ()


def verify(
    lake_uri: str,
    table: str,
    source: str,
    job_id: str | None = None,
    *,
    reading: SourceOptions = DEFAULT,
    version: int | None = None,
    spark: SparkSession | None = None,
    options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> Verification:
    """Read the source of a job again, and look for each of its lines in a version of the table and in its rejects.

    The files must be as they were. A line is found if the table has an event of its id, unless it knows that event with
    other content, or if `_rejects` has the line.
    Rows that were deleted since are missing: an earlier `version` has them. Writes nothing but what tasks share under
    `_alluvia/scratch/`. Raises what `backfill.run` does, and `Invalid` for a job that never began.
    """
    given, clock = dict(options or {}), clock or SystemClock()
    table = folder_name(table)
    job_id = default_job_id(table, source) if job_id is None else job_id
    lake = alluvia.connect(lake_uri, clock=clock, **given)
    at = lake.table(table).snapshot(version)
    table_id = at.state.metadata.id
    record, files = known_job(lake.store, at.root, job_id, source=source, reading=reading, table_id=table_id)
    job, held = _job(lake, table, version, record, reading, given)
    started = session(f"alluvia verify {job_id}", settings=QUICK_JAVA) if spark is None else nullcontext(spark)
    with started as active, job_session(active, files) as own:
        search = _Search(own, job, held, put_splits(job, files, parallelism(own)))
        lines = search.read()
        missing = search.missing()
    listed = islice(_listed(job, search.splits, missing), LISTED_MAX)
    return Verification(job_id, table, at.version, lines, sum(missing.values()), tuple(listed))


def _job(
    lake: Lake, table: str, version: int | None, record: Record, reading: SourceOptions, options: Mapping[str, str]
) -> tuple[Job, tuple[HeldFiles, HeldFiles]]:
    """Return a job that reads what the recorded one has read, and what its tables hold."""
    rows = lake.table(table).snapshot(version)
    place = find_rejects(lake.catalog, lake.catalog.handle(table))
    rejects = None if place is None else place.newest()
    targets = (replace(Target.of(rows), schema=arrow_schema(record.schema)), Target.of(rejects or rows))
    job = Job(
        lake_uri=lake.uri,
        arrival_us=record.started_us,
        manifest=record.manifest,
        reading=replace(reading, on_bad_file="reject"),
        targets=targets,
        folder="",
        run=run_folder(rows, lake.clock),
        options=options,
    )
    there = HeldFiles(REJECTS, 0, []) if rejects is None else HeldFiles(REJECTS, rejects.version, list(rejects.files))
    return job, (HeldFiles(ROWS, rows.version, list(rows.files)), there)


class _Search:
    """The three looks. What is not found is kept by task, for the next look."""

    def __init__(self, spark: SparkSession, job: Job, held: tuple[HeldFiles, HeldFiles], splits: int) -> None:
        self.spark = spark
        self.job = job
        self.held = held
        self.splits = splits
        self.rows: Mapping[int, int] = {}
        self.read_frame = mapped(numbered(spark, splits), partial(_read, job), _IDS).persist(StorageLevel.DISK_ONLY)

    def read(self) -> int:
        """Read all lines, and return how many there are."""
        summed = self.read_frame.groupBy("table", "problem").sum("rows").collect()
        check_read(row.problem for row in summed if row.table == PROBLEM)
        self.rows = {row.table: row["sum(rows)"] for row in summed}
        return int(self.rows.get(LINES, 0))

    def missing(self) -> Mapping[int, int]:
        """Return how many lines are nowhere, by task; above the number of reading tasks, those that were rows."""
        try:
            return self._missing()
        finally:
            self.read_frame.unpersist()

    def _missing(self) -> Mapping[int, int]:
        no_rows = self._look(AS_ROWS, self._ids(ROWS), ROWS, self.rows.get(ROWS, 0))
        ids, count = self._ids(REJECTS), self.rows.get(REJECTS, 0)
        if no_rows:
            again = numbered_tasks(self.spark, sorted(no_rows))
            ids = ids.union(mapped(again, partial(_read_as_rejects, self.job, self.splits), {"ids": "binary"}))
        nowhere = self._look(AS_REJECTS, ids, REJECTS, count + sum(no_rows.values()))
        rejects = sorted(task for task in nowhere if task < self.splits)
        rows = {task: count for task, count in nowhere.items() if task >= self.splits}
        if not rejects:
            return rows
        events = mapped(numbered_tasks(self.spark, rejects), partial(_read_as_events, self.job), {"ids": "binary"})
        replayed = self._look(AS_REPLAYED, events, ROWS, sum(nowhere[task] for task in rejects))
        return rows | {task: replayed[task] for task in rejects if task in replayed}

    def _ids(self, table: int) -> DataFrame:
        return self.read_frame.where(self.read_frame["table"] == table).select("ids")

    def _look(self, look: str, ids: DataFrame, table: int, count: int) -> Mapping[int, int]:
        """Look for identities in a table, and return how many are missing, by task."""
        if not count:
            return {}
        ranges = plan_files("", count).ranges
        identified = to_tasks(identities(self.job, ids, self.held[table], ranges), ranges)
        until = self.held[ROWS].version
        known = partial(known_contents, self.job, until=until) if look == AS_ROWS else nothing_known
        lost = to_tasks(mapped(identified, partial(_find, known), _LOST), self.splits)
        counted = mapped(lost, partial(_keep, self.job, look), _COUNTS).collect()
        return {row.task: row.rows for row in counted}


def _read(job: Job, rows: Iterator[Row]) -> Iterator[Row]:
    for (task,) in rows:
        for chunk in read_task(job, task, portion_at(job, task)):
            problem = chunk.groups[0].values[0] if chunk.table == PROBLEM else None
            yield chunk.table, chunk.rows, problem, chunk.ids


def _read_as_rejects(job: Job, splits: int, rows: Iterator[Row]) -> Iterator[Row]:
    for (task,) in rows:
        for chunk in read_clashes(job, splits + task, portion_at(job, task), _places(job, AS_ROWS, task)):
            yield (chunk.ids,)


def _read_as_events(job: Job, rows: Iterator[Row]) -> Iterator[Row]:
    for (task,) in rows:
        for ids in reject_events(job, task, portion_at(job, task), frozenset(_places(job, AS_REJECTS, task))):
            yield (encode(ids, PLAIN),)


def _find(known: Contents, rows: Iterator[Row]) -> Iterator[Row]:
    for _, ids in joined_ranges(rows):
        for task, lost in by_task(find_absent(ids, known)):
            yield task_key(task), task, encode(lost)


def _keep(job: Job, look: str, rows: Iterator[Row]) -> Iterator[Row]:
    rows_by_task: dict[int, list[int]] = {}
    for _, task, payload in rows:
        rows_by_task.setdefault(task, []).extend(decode(payload)[ROW].to_pylist())
    for task, places in rows_by_task.items():
        scratch.put(job, _name(look, task), encode(pa.table({ROW: pa.array(sorted(places), pa.int32())})))
        yield task, len(places)


def _listed(job: Job, splits: int, missing: Mapping[int, int]) -> Iterator[Line]:
    """Yield the lines that are missing, task by task."""
    for task in sorted({task % splits for task in missing}):
        rejects = frozenset(_places(job, AS_REPLAYED, task)) if task in missing else frozenset()
        rows: frozenset[int] = frozenset()
        if splits + task in missing:
            wanted = _places(job, AS_ROWS, task)
            rows = frozenset(wanted[at] for at in _places(job, AS_REJECTS, splits + task))
        yield from lines_at(job, portion_at(job, task), rows, rejects)


def _places(job: Job, look: str, task: int) -> Sequence[int]:
    return [int(place) for place in decode(scratch.get(job, _name(look, task)))[ROW].to_pylist()]


def _name(look: str, task: int) -> str:
    return f"absent/{look}/{task}.arrow"
