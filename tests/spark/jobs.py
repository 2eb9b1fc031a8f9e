"""Backfill jobs without Spark: what their tasks do, on a lake's own store."""

from __future__ import annotations

from collections.abc import Callable

from alluvia.ingest.tables import rejects_of
from alluvia.lake import Lake
from alluvia.operations.vacuum_plan import SCRATCH_FOLDER
from alluvia.store import Store
from alluvia.table.snapshot import Snapshot
from alluvia_spark.job import Job, Target


def job_of(lake: Lake, table: str, run: str = "run", *, stores: Callable[..., Store] | None = None) -> Job:
    """Return a run of a job for a lake's table as it is now."""
    rows, rejects = bases_of(lake, table)
    return Job(
        lake_uri=lake.uri,
        arrival_us=lake.clock.now_us(),
        targets=(Target.of(rows), Target.of(rejects)),
        manifest="",
        folder=f"{rows.root}{SCRATCH_FOLDER}backfill/job/",
        run=f"{rows.root}{SCRATCH_FOLDER}backfill/runs/{run}/",
        stores=stores or (lambda *_, **__: lake.store),
    )


def bases_of(lake: Lake, table: str) -> tuple[Snapshot, Snapshot]:
    """Return a table and that of its rejects as they are now."""
    return lake.table(table).snapshot(), rejects_of(lake, table).newest()
