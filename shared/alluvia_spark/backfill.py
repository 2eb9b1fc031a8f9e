"""The backfill job: NDJSON files become rows of a table in one commit, once for each job id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from pyspark.sql import SparkSession

import alluvia
from alluvia.clock import Clock, SystemClock
from alluvia.errors import Invalid, Unavailable
from alluvia.lake import Lake, Table
from alluvia.operations.vacuum import ORPHAN_AGE_MS_MIN
from alluvia.store import Store, open_store
from alluvia.table.schema.serialization import arrow_schema
from alluvia.table.snapshot import Snapshot
from alluvia_spark.execute import execute
from alluvia_spark.job import Job, JobOutcome, Report, Target
from alluvia_spark.record import Record, check_job_id, obtain
from alluvia_spark.rejects import open_rejects
from alluvia_spark.session import session
from alluvia_spark.source import SourceFile, expand

TXN_VERSION = 1


def default_job_id(table: str, source: str) -> str:
    """Return the id of a job that was given none: the same source goes into the same table once."""
    return hashlib.sha256(json.dumps([table, source]).encode()).hexdigest()[:32]


def run(
    lake_uri: str,
    table: str,
    source: str,
    job_id: str | None = None,
    *,
    spark: SparkSession | None = None,
    options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    stores: Callable[..., Store] = open_store,
) -> Report:
    """Read NDJSON files into an existing table, normalised as ingestion does it, in one commit.

    `source` is a file, a directory or a glob, local or on S3 (`s3://` and `s3a://` alike), plain or .gz. However often
    a job id is run, also at the same time, its rows are added once; its rejects are added to the table's `_rejects`
    once, in a commit before. Without a job id, table and source make one. `options` are those of the lake's store
    (`endpoint_url`, …) and serve for an S3 source too. `stores` opens the stores of the executors.

    Raises `Invalid`, `TableNotFound` and the like for what the caller must fix, and `Unavailable` if Spark or the
    store fails: running the same job id again is then safe.
    """
    if lake_uri.startswith("memory:"):
        raise Invalid(f"lake {lake_uri!r} exists only in this process: a Spark job needs a directory or s3://")
    given, clock = dict(options or {}), clock or SystemClock()
    job_id = default_job_id(table, source) if job_id is None else check_job_id(job_id)
    lake = alluvia.connect(lake_uri, clock=clock, **given)
    rows_table = lake.table(table)
    before = rows_table.snapshot()
    record = _record(lake, before, job_id, source, given)
    if _applied(before, job_id):
        return Report(job_id, table, before.version, already_applied=True)
    rejects_table = open_rejects(lake, table)
    job = Job(
        lake_uri=lake.uri,
        arrival_us=record.started_us,
        targets=(
            replace(Target.of(before), schema=arrow_schema(record.schema)),
            Target.of(rejects_table.snapshot()),
        ),
        options=given,
        stores=stores,
    )
    with session(f"alluvia backfill {job_id}") if spark is None else nullcontext(spark) as active:
        began_ms = clock.now_ms()
        outcome = execute(active.sparkContext, job, record.files)
        _check_age(clock.now_ms() - began_ms)
    return _commit(job_id, rows_table, rejects_table, outcome)


def _record(lake: Lake, snapshot: Snapshot, job_id: str, source: str, options: Mapping[str, str]) -> Record:
    def listing() -> Sequence[SourceFile]:
        return expand(source, lake.clock, **options)

    return obtain(
        lake.store,
        lake.clock,
        snapshot.root,
        job_id,
        source=source,
        schema=snapshot.state.metadata.schema_string,
        expand=listing,
    )


def _applied(snapshot: Snapshot, job_id: str) -> bool:
    recorded = snapshot.state.txns.get(_app_id(job_id))
    return recorded is not None and recorded.version >= TXN_VERSION


def _check_age(age_ms: int) -> None:
    if age_ms > ORPHAN_AGE_MS_MIN // 2:
        raise Unavailable(
            "the job wrote files for over 12 hours, so vacuum may take the first of them: divide the source among jobs"
        )


def _commit(job_id: str, rows_table: Table, rejects_table: Table, outcome: JobOutcome) -> Report:
    """Commit rejects, then rows: the second commit is what makes the job done, so nothing is lost in between."""
    txn = (_app_id(job_id), TXN_VERSION)
    if outcome.reject_files:
        rejects_table.commit_files(outcome.reject_files, txn)
    commit = rows_table.commit_files(outcome.row_files, txn)
    return Report(
        job_id=job_id,
        table=rows_table.name,
        version=commit.version,
        already_applied=commit.files < len(outcome.row_files),
        rows=outcome.rows,
        duplicates=outcome.duplicates,
        rejects=outcome.rejects,
        conflicting=outcome.conflicting,
        files=len(outcome.row_files),
        bytes=sum(file.size for file in outcome.row_files),
    )


def _app_id(job_id: str) -> str:
    return f"backfill:{job_id}"
