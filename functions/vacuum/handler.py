"""Vacuum: rows expire, and what no retained version of a table needs is deleted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any

from alluvia import Lake, Table
from alluvia.delta.properties import FILE_RETENTION
from alluvia.errors import Invalid, Unavailable
from alluvia.operations.results.jobs import clean_jobs
from alluvia.operations.results.results import ResultLimits, clean_results
from alluvia.operations.results.upload_parts import clean_uploads
from alluvia.serverless import spark_upkeep, warm_lake
from alluvia.serverless.deadlines import in_time
from alluvia.serverless.events import messages_of
from alluvia.serverless.function_limits import limits_of, too_big_to_vacuum
from alluvia.serverless.log_lines import Logger, with_request_id
from alluvia.serverless.rounds import MARGIN_MS, checked, every_table, remaining_ms
from alluvia.serverless.settings import number
from alluvia.serverless.table_queue import QUEUE_URL, consume, fan_out

if TYPE_CHECKING:
    from alluvia.delta.snapshot import Snapshot
    from alluvia.operations.retention.vacuum_report import VacuumReport

NAMES_MAX = 100
RETENTION_HOURS_MAX = 24 * 365 * 100
RESULT_HOURS, RESULT_MB, LARGE_RESULTS_MB = 24, 1000, 50_000
LISTINGS_AT_ONCE = 4
"""Tables whose objects are in memory at once."""

logger = Logger(service="vacuum")
warm_lake.prepare()


@with_request_id(logger)
@in_time
def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Expire rows of, and vacuum, the tables that messages of a queue name, or that `{"tables": [...]}` names.

    Any other event is for all tables and their rejects: they are put into the queue, or vacuumed if there is none.
    `{"dry_run": true}` only says what would go, and uses no queue.
    """
    keep, lake, queue_url = retention(os.environ), warm_lake.lake(), os.environ.get(QUEUE_URL)
    queued = isinstance(event, dict) and "Records" in event
    wanted = {} if queued else checked(event, "tables", "dry_run")
    dry_run = wanted.get("dry_run", False)
    if not isinstance(dry_run, bool):
        raise Invalid("dry_run: expected true or false")
    limits = result_limits(os.environ)
    if queue_url and not queued and not dry_run and wanted.get("tables") is None:
        return {**fan_out(lake, queue_url, logger, dropped=True), **cleaned(lake, limits)}

    listing = BoundedSemaphore(LISTINGS_AT_ONCE)

    def work(table: Table) -> dict[str, Any]:
        expired = len(table.expire(dry_run=dry_run).files)
        snapshot = table.lake.catalog.handle(table.name).newest(dropped=True)
        own = FILE_RETENTION in snapshot.properties
        handed = None if dry_run else handed_over(table, snapshot, None if own else keep, context)
        if handed is not None:
            return {"expired": expired, "left": False, "handed_over": handed}
        with listing:
            limit = time_limit(context)
            done = table.vacuum(None if own else keep, dry_run=dry_run, time_limit=limit, names_max=NAMES_MAX)
        return {"expired": expired, **summary(done)}

    if queued:
        return consume(lake, messages_of(event), context, lambda table, _: work(table), logger, queue_url)
    results = cleaned(lake, limits, dry_run=dry_run) if wanted.get("tables") is None else {}
    done = every_table(lake, wanted, context, work, logger, dropped=True)
    logger.info("round done", extra={"tables_left": len(done["left"])})
    return {"dry_run": dry_run, **done, **results}


def handed_over(table: Table, snapshot: Snapshot, keep: timedelta | None, context: object) -> dict[str, Any] | None:
    """Have Spark vacuum a table where the function's limits do not hold it; None where the function should do it."""
    if not spark_upkeep.is_on():
        return None
    files = snapshot.files.expected_len + snapshot.state.tombstones.expected_len
    reason = too_big_to_vacuum(files, limits_of(context, os.environ))
    if reason is None:
        return None
    how = {} if keep is None else {"retention_hours": keep / timedelta(hours=1)}
    return spark_upkeep.hand_over(table.lake, table.name, "vacuum", how, reason, logger)


def cleaned(lake: Lake, limits: ResultLimits, *, dry_run: bool = False) -> dict[str, Any]:
    """Delete results and jobs of queries, and parts of uploads, that are old, and return how many."""
    results = clean_results(lake.store, lake.clock, limits, dry_run=dry_run)
    clean_jobs(lake.store, lake.clock, limits.age_ms_max, dry_run=dry_run)
    parts = clean_uploads(lake.store, lake.clock, dry_run=dry_run)
    return {
        "results": {"deleted": results.deleted, "bytes_freed": results.deleted_bytes, "kept": results.kept},
        "uploads": {"deleted": parts.deleted, "bytes_freed": parts.deleted_bytes, "kept": parts.kept},
    }


def summary(report: VacuumReport) -> dict[str, Any]:
    """Return what vacuum did to a table: how many objects of each kind, the names of the first, and why others stay.

    `left` says that time ran out before the end. Raises `Unavailable` where the store refused to delete something.
    """
    if report.not_deleted:
        first = ", ".join(report.not_deleted[:3])
        raise Unavailable(f"{len(report.not_deleted)} objects could not be deleted, such as {first}")
    kinds = {"data_files": report.data_files, "orphans": report.orphans, "log_files": report.log_files}
    return {
        **{kind: report.counts.get(kind, 0) for kind in kinds},
        "bytes_freed": report.bytes_freed,
        "oldest_version": report.oldest_version,
        "names": [each for names in kinds.values() for each in names][:NAMES_MAX],
        "kept": {each.reason: {"objects": each.objects, "bytes": each.bytes} for each in report.kept},
        "left": not report.complete,
    }


def time_limit(context: object) -> timedelta | None:
    """Return how long one table may take, so that it can note how far it came; None outside Lambda."""
    remaining = remaining_ms(context)
    return None if remaining == float("inf") else timedelta(milliseconds=max(0.0, remaining - MARGIN_MS))


def result_limits(environment: Mapping[str, str]) -> ResultLimits:
    """Return how old results of queries may become, and how many bytes they, and large ones, may take together."""
    hours = number(environment, "ALLUVIA_RESULT_CACHE_HOURS", "hours", RESULT_HOURS, most=RETENTION_HOURS_MAX)
    megabytes = number(environment, "ALLUVIA_RESULT_CACHE_MB", "MB", RESULT_MB)
    large_megabytes = number(environment, "ALLUVIA_LARGE_RESULTS_MB", "MB", LARGE_RESULTS_MB)
    return ResultLimits(hours * 3_600_000, megabytes * 1_000_000, large_megabytes * 1_000_000)


def retention(environment: Mapping[str, str]) -> timedelta | None:
    """Return how long a removed file is kept where the table does not say so itself; None for a week."""
    hours = number(environment, "ALLUVIA_RETENTION_HOURS", "hours", None, least=0, most=RETENTION_HOURS_MAX)
    return None if hours is None else timedelta(hours=hours)
