"""Run a table that is made of others, within the limits of a function."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from alluvia.api.lake import Lake
from alluvia.errors import Unsupported
from alluvia.operations.reading.relations import Evaluate
from alluvia.pipelines.derived_tables import DerivedTable, DerivedTables
from alluvia.pipelines.execution import LocalExecution
from alluvia.pipelines.planning import FUNCTION_BYTES_MAX
from alluvia.pipelines.running import run_table
from alluvia.pipelines.table_planner import Planner
from alluvia.rollups.refresh import refresh
from alluvia.serverless.function_limits import process_memory_mb, seconds_left


def run_derived(lake: Lake, derived: DerivedTables, table: DerivedTable, context: object) -> dict[str, Any]:
    """Bring a table up to date, by its declaration in its own log, and return the report.

    Raises `Unsupported` for a run that reads more than a function can, and what the run raises.
    """
    evaluate = lake.evaluation(process_memory_mb(os.environ), seconds_left(context))
    if table.declaration is None:
        return asdict(refresh(lake.catalog, table.name, evaluate))
    _check_size(lake, derived, table, evaluate)
    return asdict(run_table(lake.catalog, LocalExecution(evaluate), table.declaration))


def _check_size(lake: Lake, derived: DerivedTables, table: DerivedTable, evaluate: Evaluate) -> None:
    """Raise `Unsupported` for a run that is too big. A table of small sources is not planned for that."""
    if table.declaration is None or derived.source_bytes(table) <= FUNCTION_BYTES_MAX:
        return
    row = Planner(lake.catalog, evaluate).plan(table.declaration).to_row()
    if int(str(row["bytes"])) > FUNCTION_BYTES_MAX:
        raise Unsupported(
            f"a run reads up to {row['bytes']} bytes, more than the {FUNCTION_BYTES_MAX} of a function: run "
            "`alluvia pipeline run` on a bigger machine"
        )
