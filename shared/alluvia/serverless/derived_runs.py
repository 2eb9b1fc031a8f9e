"""Run a table that is made of others, within the limits of a function."""

from __future__ import annotations

import os
from dataclasses import asdict
from errno import ENOSPC
from typing import Any

from alluvia.api.lake import Lake
from alluvia.errors import AlluviaError, Unsupported
from alluvia.operations.reading.relations import Evaluate
from alluvia.pipelines.derived_tables import DerivedTable, DerivedTables
from alluvia.pipelines.execution import LocalExecution
from alluvia.pipelines.planning import FUNCTION_BYTES_MAX
from alluvia.pipelines.rollup_runs import refresh_rollup
from alluvia.pipelines.running import run_table
from alluvia.pipelines.table_planner import Planner
from alluvia.rollups.refresh import refresh_bytes
from alluvia.serverless.function_limits import process_memory_mb, seconds_left
from alluvia.serverless.log_lines import Logger
from alluvia.serverless.spark_upkeep import hand_over, is_on
from alluvia.store.requests import ending_earlier

RECORD_SECONDS = 10
"""Reserved for the record of how a run ended."""
HAND_OVER_HOURS = 1
"""A table has at most one start of a job on Spark in this time."""


def run_derived(
    lake: Lake, derived: DerivedTables, table: DerivedTable, context: object, logger: Logger
) -> dict[str, Any]:
    """Bring a table up to date, by its declaration in its own log, and return the report.

    A run that reads more than a function can is handed over to Spark; the report then has `handed_over` alone. Raises
    `Unsupported` for such a run if there is no Spark, or its job has ended in this hour, and what the run raises.
    """
    evaluate = lake.evaluation(process_memory_mb(os.environ), seconds_left(context))
    reason, execution = _too_big(lake, derived, table, evaluate), LocalExecution(evaluate)
    if reason is None:
        with ending_earlier(RECORD_SECONDS):
            if table.declaration is None:
                return asdict(refresh_rollup(lake.catalog, table.name, execution))
            return asdict(run_table(lake.catalog, execution, table.declaration))
    if not is_on():
        command = "rollup refresh" if table.declaration is None else "pipeline run"
        raise Unsupported(f"{reason}: run `alluvia {command} --spark`, or deploy with alluvia:heavy_upkeep")
    handed = hand_over(lake, table.name, "pipeline", {}, reason, logger, period_hours=HAND_OVER_HOURS)
    if handed is None:
        raise Unsupported(f"{reason}, and the job of Spark for it has ended: the next one can start in the next hour")
    return {"handed_over": handed}


def is_at_limit(error: BaseException | None) -> bool:
    """Whether a run ended for lack of time, memory or disk, by its error or the errors behind it."""
    while error is not None:
        limited = isinstance(error, AlluviaError) and error.at_limit
        if limited or isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == ENOSPC):
            return True
        error = error.__cause__
    return False


def _too_big(lake: Lake, derived: DerivedTables, table: DerivedTable, evaluate: Evaluate) -> str | None:
    """Return why a function cannot do a run; None if it can. A table of small sources is not planned for that.

    A run that follows a change is tried if the change is small enough; once it took more than the function has, all
    that it may read counts. Spark would only repeat an error of another kind.
    """
    if derived.source_bytes(table) <= FUNCTION_BYTES_MAX:
        return None
    failed = derived.failed_run(table.name)
    at_limit = failed is not None and failed.at_limit
    if table.declaration is None:
        stepwise = not is_on()  # without Spark, the function gets there step by step
        size = derived.source_bytes(table) if at_limit else refresh_bytes(lake.catalog, table.name, stepwise=stepwise)
    else:
        plan = Planner(lake.catalog, evaluate).plan(table.declaration)
        size = sum(file.size for files in plan.reading for file in files) if at_limit else plan.bytes_at_least
    if size <= FUNCTION_BYTES_MAX:
        return None
    return f"a run reads {'up to ' if at_limit else ''}{size} bytes, more than the {FUNCTION_BYTES_MAX} of a function"
