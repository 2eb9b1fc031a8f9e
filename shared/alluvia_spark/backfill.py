"""The backfill job: NDJSON files become rows of a table in one commit, once for each job id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

import alluvia
from alluvia.api.lake import Lake
from alluvia.backfill_jobs import check_job_id, default_job_id
from alluvia.clock import Clock, SystemClock
from alluvia.commit.transaction import FILE_AGE_MS_MAX
from alluvia.delta.schema.serialization import arrow_schema, only_adds_nullable
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ConcurrentAppend, Invalid, TransactionExpired, Unavailable
from alluvia.events.ingest.event_tables import check_takes_events, rejects_of
from alluvia.operations.planning.optimistic_retry import check_not_derived
from alluvia.operations.retention.vacuum_plan import SCRATCH_FOLDER
from alluvia.store import Store, open_store
from alluvia.table_names import folder_name
from alluvia_spark.backfill_job.committing import Committed, commit, done_before, is_done
from alluvia_spark.backfill_job.execute import execute
from alluvia_spark.backfill_job.job import REJECTS, ROWS, Job, JobOutcome, Report, Target
from alluvia_spark.backfill_job.record import Record, known_job, obtain, take_over
from alluvia_spark.backfill_job.tasks import remembered_failure
from alluvia_spark.session import QUICK_JAVA, session
from alluvia_spark.sources.files import SourceOptions
from alluvia_spark.sources.manifest import Manifest
from alluvia_spark.sources.source import list_files

DEFAULT = SourceOptions()
TRIES = 5


def run(
    lake_uri: str,
    table: str,
    source: str,
    job_id: str | None = None,
    *,
    reading: SourceOptions = DEFAULT,
    attempt: int | None = None,
    repair_of: str | None = None,
    spark: SparkSession | None = None,
    options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    stores: Callable[..., Store] = open_store,
) -> Report:
    """Read files of events into an existing table, normalised as ingestion does it, in one commit.

    `table` is a name as in SQL, such as `bronze.events`. `source` is a file, a directory, a glob or a list of files,
    local or on S3 (`s3://` and `s3a://` alike); `reading` says how it is read. However often a job id is run, also at
    the same time, its rows are added once, and with them its rejects to the table's `_rejects`. After a restore to
    before the job it can run again. Without a job id, table and source make one. `options` are those of the lake's
    store (`endpoint_url`, …) and serve for an S3 source too. `stores` opens the stores of the executors. Tries with the
    same `attempt` fail at once where one has found what only the caller can repair. `repair_of` is the id of an earlier
    job of the same source: its files are read again, as of its own start, so that what it has lost is loaded and all
    else is a duplicate. Rows that were deleted since come again.

    Raises `Invalid`, `TableNotFound` and the like for what the caller must fix, and `Unavailable` if Spark or the
    store fails: running the same job id again is then safe.
    """
    if lake_uri.startswith("memory:"):
        raise Invalid(f"lake {lake_uri!r} exists only in this process: a Spark job needs a directory or s3://")
    given, clock, table = dict(options or {}), clock or SystemClock(), folder_name(table)
    check_takes_events(table)
    job_id = default_job_id(table, source) if job_id is None else check_job_id(job_id)
    lake = alluvia.connect(lake_uri, clock=clock, **given)
    before = lake.table(table).snapshot()
    check_not_derived(before, "backfill")
    record, files = _record(lake, before, job_id, source, reading, given, repair_of)
    if not only_adds_nullable(record.schema, before.state.metadata.schema_string):
        raise Invalid(f"the columns of {table} changed since job {job_id!r} began: choose another job id")
    if is_done(before, job_id):
        return Report(job_id, table, before.version, already_applied=True)
    started = session(f"alluvia backfill {job_id}", settings=QUICK_JAVA) if spark is None else nullcontext(spark)
    with remembered_failure(lake.store, f"{before.root}_alluvia/backfill/{job_id}/", attempt), started as active:
        for tries_left in reversed(range(TRIES)):
            rejects = rejects_of(lake.catalog, table).newest()
            job = Job(
                lake_uri=lake.uri,
                arrival_us=record.started_us,
                manifest=record.manifest,
                reading=reading,
                targets=(replace(Target.of(before), schema=arrow_schema(record.schema)), Target.of(rejects)),
                folder=_folder(job_id, before, rejects),
                run=run_folder(before, clock),
                options=given,
                stores=stores,
            )
            began_ms = clock.now_ms()
            outcome = execute(active, job, files, (before, rejects))
            _check_age(clock.now_ms() - began_ms)
            try:
                committed = commit(lake, job_id, (before, rejects), job, outcome, began_ms)
                return _report(job_id, table, committed, outcome)
            except (ConcurrentAppend, TransactionExpired):  # leave out what others ingested, or write files again
                if not tries_left:
                    raise
                before = lake.table(table).snapshot()
    raise AssertionError("the last try returns or raises")


def _record(
    lake: Lake,
    snapshot: Snapshot,
    job_id: str,
    source: str,
    reading: SourceOptions,
    options: Mapping[str, str],
    repair_of: str | None,
) -> tuple[Record, Manifest]:
    if repair_of is not None:
        table_id = snapshot.state.metadata.id
        record, files = known_job(
            lake.store, snapshot.root, repair_of, source=source, reading=reading, table_id=table_id
        )
        return take_over(lake.store, lake.clock, snapshot.root, job_id, record), files
    return obtain(
        lake.store,
        lake.clock,
        snapshot.root,
        job_id,
        source=source,
        schema=snapshot.state.metadata.schema_string,
        table_id=snapshot.state.metadata.id,
        reading=reading,
        list_files=partial(list_files, source, lake.clock, reading, **options),
    )


def run_folder(table: Snapshot, clock: Clock) -> str:
    """Return the key prefix of what the tasks of a new run share."""
    return f"{table.root}{SCRATCH_FOLDER}backfill/runs/{clock.new_id()}/"


def _folder(job_id: str, *tables: Snapshot) -> str:
    """Return where runs of a job keep what later ones can use, if the tables are as they were.

    Once a job is done its files are the table's. So after a restore it begins anew.
    """
    told = [[each.state.metadata.schema_string, dict(each.properties), done_before(each, job_id)] for each in tables]
    known = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    return f"{tables[0].root}{SCRATCH_FOLDER}backfill/{job_id}/{known}/"


def _check_age(age_ms: int) -> None:
    if age_ms > FILE_AGE_MS_MAX:
        raise Unavailable(
            "writing the files took over 12 hours, so vacuum may delete the first of them: if the machine slept, run "
            "the job again, else divide the source among jobs"
        )


def _report(job_id: str, table: str, committed: Committed, outcome: JobOutcome) -> Report:
    files, counts = outcome.files(ROWS), outcome.counts
    return Report(
        job_id=job_id,
        table=table,
        version=committed.version,
        already_applied=committed.already_applied,
        lines=counts.lines,
        rows=outcome.rows_of(ROWS),
        duplicates=counts.duplicates,
        rejects=counts.rejects + counts.conflicting,
        conflicting=counts.conflicting,
        stored_rejects=outcome.rows_of(REJECTS),
        files=len(files),
        bytes=sum(file.size for file in files),
        odd_times=counts.odd_times,
    )
