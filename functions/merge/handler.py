"""Merge: the small files of a table that has changed become few, sorted ones, and checkpoints are written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any

from alluvia import Table
from alluvia.serverless import spark_upkeep, warm_lake
from alluvia.serverless.deadlines import in_time
from alluvia.serverless.events import messages_of
from alluvia.serverless.function_limits import limits_of, process_memory_mb, too_big_to_merge
from alluvia.serverless.log_lines import Logger, with_request_id
from alluvia.serverless.rounds import MARGIN_MS, checked, every_table, remaining_ms
from alluvia.serverless.settings import number
from alluvia.serverless.table_messages import Look
from alluvia.serverless.table_queue import QUEUE_URL, consume, fan_out

if TYPE_CHECKING:
    from alluvia.operations.compaction.optimize import OptimizeReport
    from alluvia.operations.compaction.optimize_plan import FileGroup

OPTIONS = ("target_size", "full", "order", "partition", "max_files", "max_bytes", "when_due", "dry_run")
"""Fields of the event that `Table.optimize` takes."""
logger = Logger(service="merge")
warm_lake.prepare()


@with_request_id(logger)
@in_time
def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Merge the tables that messages of a queue are about, or that `{"tables": [...]}` names.

    A notification merges the files that are due, a sweep all files that can be merged. Any other event means all tables
    and their rejects: the function queues them, or merges them itself if there is no queue. Other fields are options of
    `Table.optimize`; an event with such a field queues no table.
    """
    lake, queue_url = warm_lake.lake(), os.environ.get(QUEUE_URL)
    options: dict[str, Any] = {"target_size": target_file_bytes(os.environ)}
    memory_mb = merge_memory_mb(os.environ)
    turn, asked = Lock(), count()

    def time_left() -> bool:
        return next(asked) == 0 or remaining_ms(context) > MARGIN_MS  # each run gets something done

    def merged(table: Table, how: Mapping[str, Any]) -> tuple[OptimizeReport, dict[str, Any]]:
        """Merge a table, or have Spark do it where the function's limits do not hold the work."""
        merge = partial(table.optimize, **how, memory_mb=memory_mb, go_on=time_left, turn=turn)
        too_big: list[str] = []

        def fits(groups: Sequence[FileGroup]) -> bool:
            too_big.extend(filter(None, [too_big_to_merge(groups, limits_of(context, os.environ, memory_mb))]))
            return not too_big

        report = merge(fits=fits) if spark_upkeep.is_on() else merge()
        if not too_big:
            return report, {}
        handed = spark_upkeep.hand_over(lake, table.name, "optimize", how, too_big[0], logger)
        return (merge(), {}) if handed is None else (report, {"left": 0, "handed_over": handed})

    def work(table: Table, *, when_due: bool = False) -> dict[str, Any]:
        report, handed = merged(table, {"when_due": when_due} | options)
        checkpoint_version = table.lake.catalog.handle(table.name).log.checkpoint_version
        since = report.version - (-1 if checkpoint_version is None else checkpoint_version)
        # A checkpoint may be of a later version than the merge saw.
        return {**asdict(report), "commits_since_checkpoint": max(0, since), **handed}

    def asked_for(table: Table, wishes: Sequence[Look]) -> dict[str, Any]:
        return work(table, when_due=all(each.version is not None for each in wishes))

    if isinstance(event, dict) and "Records" in event:
        return consume(lake, messages_of(event), context, asked_for, logger, queue_url)
    wanted = checked(event, "tables", *OPTIONS)
    given = {name: wanted[name] for name in OPTIONS if name in wanted}
    options |= given
    if queue_url and wanted.get("tables") is None and not given:
        return fan_out(lake, queue_url, logger)
    done = every_table(lake, wanted, context, work, logger)
    logger.info("round done", extra={"tables_left": len(done["left"])})
    return done


def target_file_bytes(environment: Mapping[str, str]) -> int | None:
    """Return the size that merged files should have; None leaves it to each table's property."""
    return number(environment, "ALLUVIA_TARGET_FILE_BYTES", "bytes", None)


def merge_memory_mb(environment: Mapping[str, str]) -> int | None:
    """Return how much memory the process may take, in MB: by default that of the function; outside, any."""
    return number(environment, "ALLUVIA_MERGE_MEMORY_MB", "MB", None) or process_memory_mb(environment)
