"""Merge: on a schedule, the small files of every table become few, sorted ones, and checkpoints are written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from itertools import count
from threading import Lock
from typing import Any

from alluvia import Table
from alluvia.serverless import warm_lake
from alluvia.serverless.log_lines import Logger, with_request_id
from alluvia.serverless.rounds import MARGIN_MS, checked, every_table, remaining_ms
from alluvia.serverless.settings import number

logger = Logger(service="merge")
warm_lake.prepare()


@with_request_id(logger)
def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Merge the tables that `{"tables": [...]}` names, or all tables and their rejects; see `every_table`."""
    target_size, memory_mb = target_file_bytes(os.environ), merge_memory_mb(os.environ)
    turn, asked = Lock(), count()

    def time_left() -> bool:
        return next(asked) == 0 or remaining_ms(context) > MARGIN_MS  # each run gets something done

    def refreshed(table: Table) -> dict[str, Any]:
        """Refresh the table if it is a rollup, and its rollups if the call names it; else a round comes to them too."""
        names = [table.name] if table.is_rollup else []
        names += table.lake.rollups(table.name) if event.get("tables") is not None else []
        found: dict[str, Any] = {}
        for name in names:
            if not time_left():
                return {"refreshed": found, "left": 1}
            with turn:
                found[name] = asdict(table.lake.table(name).refresh(memory_mb=memory_mb))
        return {"refreshed": found} if found else {}

    def work(table: Table) -> dict[str, Any]:
        report = table.optimize(target_size=target_size, memory_mb=memory_mb, go_on=time_left, turn=turn)
        checkpoint_version = table.lake.handle(table.name).log.checkpoint_version
        since = report.version - (-1 if checkpoint_version is None else checkpoint_version)
        # A checkpoint may be of a later version than the merge saw.
        found = {**asdict(report), "commits_since_checkpoint": max(0, since)}
        return found if report.left else {**found, **refreshed(table)}

    done = every_table(warm_lake.lake(), checked(event, "tables"), context, work, logger)
    logger.info("round done", extra={"tables_left": len(done["left"])})
    return done


def target_file_bytes(environment: Mapping[str, str]) -> int | None:
    """Return the size that merged files should have; None leaves it to each table's property."""
    return number(environment, "ALLUVIA_TARGET_FILE_BYTES", "bytes", None)


def merge_memory_mb(environment: Mapping[str, str]) -> int | None:
    """Return how much memory DuckDB may take, in MB: two thirds of a Lambda function's; outside, what DuckDB says."""
    given = number(environment, "ALLUVIA_MERGE_MEMORY_MB", "MB", None)
    function_mb = number(environment, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "MB", None)
    return given or (None if function_mb is None else function_mb * 2 // 3)
