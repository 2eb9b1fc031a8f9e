"""Heavy upkeep on Spark: operations that the library does itself, with their work done by Spark's tasks.

The driver plans and commits with the library's code, tasks read and write with it. So an operation gives what the
library's gives, and others may write, merge and vacuum meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alluvia.operations.compaction.optimize import OptimizeOptions, OptimizeReport
from alluvia_spark.tables import TablePlace
from alluvia_spark.upkeep import erasing, optimizing, vacuuming, verifying

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from alluvia.api.lake import Lake
    from alluvia.operations.erasure.erase_report import EraseReport
    from alluvia.operations.retention.vacuum_report import VacuumReport
    from alluvia.verify.report import VerifyReport
    from alluvia.verify.verification import Progress


def optimize(
    spark: SparkSession,
    place: str | Lake,
    table: str | None = None,
    *,
    memory_mb: int | None = None,
    dry_run: bool = False,
    options: Mapping[str, str] | None = None,
    **how: Any,
) -> OptimizeReport:
    """Rewrite small files into larger, sorted ones, as `Table.optimize`; each group of files is a task and a commit.

    `place` is a table's path or URI; or that of its lake, or a local lake, and `table` its name. `how` are the
    arguments of `Table.optimize` that say what is rewritten, such as `full` and `partition`. `memory_mb` is how much
    memory the Python process of a task may take, in MB, by default what the session's settings leave to it. `options`
    are those of `alluvia.connect`.

    Groups that were committed stay so if Spark or the driver fails; the next call does the rest. Raises `Unavailable`
    if Spark fails, and what `Table.optimize` raises.
    """
    wanted = OptimizeOptions(**how)
    return optimizing.run(spark, TablePlace.of(place, table, options or {}), wanted, memory_mb, dry_run=dry_run)


def vacuum(
    spark: SparkSession,
    place: str | Lake,
    table: str | None = None,
    retention: timedelta | None = None,
    *,
    dry_run: bool = False,
    names_max: int | None = None,
    options: Mapping[str, str] | None = None,
) -> VacuumReport:
    """Delete the objects that no version within the retention needs, as `Table.vacuum`; tasks list and delete.

    `place`, `table` and `options` are those of `optimize`. `names_max` limits the names of each kind in the report. A
    run that fails has noted how far it came, and the next one goes on from there.
    """
    where = TablePlace.of(place, table, options or {})
    return vacuuming.run(spark, where, retention, names_max, dry_run=dry_run)


def erase(
    spark: SparkSession,
    place: str | Lake,
    table: str | None = None,
    *,
    where: str,
    prove: bool = False,
    dry_run: bool = False,
    release_tags: bool = False,
    anywhere: bool = False,
    options: Mapping[str, str] | None = None,
) -> EraseReport:
    """Erase the rows that match, as `Table.erase`; tasks find and rewrite files, search all others, list and delete.

    `place`, `table` and `options` are those of `optimize`, the others those of `Table.erase`. The rows go in one
    commit. If it fails or stops, call it again.
    """
    rows = erasing.ErasedRows(where, anywhere)
    at = TablePlace.of(place, table, options or {})
    return erasing.run(spark, at, rows, prove=prove, dry_run=dry_run, release_tags=release_tags)


def verify(
    spark: SparkSession,
    place: str | Lake,
    table: str | None = None,
    *,
    progress: Progress | None = None,
    options: Mapping[str, str] | None = None,
) -> VerifyReport:
    """Verify a table and all of its rows, as `Table.verify` with `full`; tasks read the data files.

    `place`, `table` and `options` are those of `optimize`, `progress` that of `Table.verify`. Writes nothing.
    """
    return verifying.run(spark, TablePlace.of(place, table, options or {}), progress)
