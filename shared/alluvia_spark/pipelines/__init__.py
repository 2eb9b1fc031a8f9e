"""Pipelines on Spark: the library plans and commits, and tasks compute what the library's DuckDB would compute.

So a declaration gives the same rows on either engine, and runs of both may take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from alluvia.delta.properties import ROLLUP
from alluvia.errors import Invalid
from alluvia.pipelines.declarations.definition import definition_of
from alluvia.pipelines.rollup_runs import refresh_rollup
from alluvia.pipelines.running import TableRun, run_table
from alluvia_spark.pipelines.spark_execution import SHARE_BYTES, SparkExecution
from alluvia_spark.tables import TablePlace

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession

    from alluvia.api.lake import Lake
    from alluvia.rollups.refresh import RefreshReport

_ANY = "pipelines"


def run(
    spark: SparkSession,
    place: str | Lake,
    path: str | os.PathLike[str] = "pipelines",
    select: Sequence[str] = (),
    *,
    full_refresh: bool = False,
    memory_mb: int | None = None,
    share_bytes: int | None = None,
    options: Mapping[str, str] | None = None,
) -> list[TableRun]:
    """Bring tables of a pipeline up to date, as `Pipeline.run` does, and return what was done.

    `place` is the path or URI of the lake, or a local lake, and `path` the folder, or the file, of the declarations,
    on the driver's machine. `memory_mb` is how much memory the Python process of a task may take, in MB, by default
    what the session's settings leave to it. A task gets about `share_bytes` of files, by default 128 MiB; the
    driver computes relations of less. `options` are those of `alluvia.connect`.

    Each table is one commit of the driver: whatever is lost before leaves the table as it was. Raises `Invalid`, with
    the file and the line, for mistakes in declarations; what goes wrong with a table is in its report.
    """
    execution = execution_of(spark, place, memory_mb=memory_mb, share_bytes=share_bytes, options=options)
    return execution.place.lake().pipeline(path).run(select, full_refresh=full_refresh, execution=execution)


def run_declared(
    spark: SparkSession,
    place: str | Lake,
    table: str,
    *,
    full_refresh: bool = False,
    memory_mb: int | None = None,
    share_bytes: int | None = None,
    options: Mapping[str, str] | None = None,
) -> TableRun | RefreshReport:
    """Bring a table up to date by the declaration that it records, which its last run was given, or a rollup.

    The arguments are those of `run`; `full_refresh` rebuilds a rollup. Raises `Invalid` for any other table, and what
    else stops the run.
    """
    execution = execution_of(spark, place, memory_mb=memory_mb, share_bytes=share_bytes, options=options)
    catalog = execution.place.lake().catalog
    snapshot = catalog.handle(table).newest()
    if ROLLUP in snapshot.properties:
        return refresh_rollup(catalog, snapshot.name, execution, rebuild=full_refresh)
    definition = definition_of(snapshot)
    if definition is None:
        raise Invalid(f"table {table.replace('/', '.')} is made by no pipeline: run the one that declares it first")
    return run_table(catalog, execution, definition.declaration, full_refresh=full_refresh)


def execution_of(
    spark: SparkSession,
    place: str | Lake,
    *,
    memory_mb: int | None = None,
    share_bytes: int | None = None,
    options: Mapping[str, str] | None = None,
) -> SparkExecution:
    """Return what computes runs over a lake by Spark's tasks, for `Pipeline.run`. The arguments are those of `run`."""
    where = TablePlace.of(place, _ANY, options or {})
    return SparkExecution(spark, where, where.lake().evaluation(), share_bytes or SHARE_BYTES, memory_mb)
