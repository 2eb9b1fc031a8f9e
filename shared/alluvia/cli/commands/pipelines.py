"""Commands of pipelines: pipeline init, plan, run, backfill, status, test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common
from alluvia.cli.options import SPARK, command
from alluvia.cli.spark import spark_execution
from alluvia.cli.terminal.output import size
from alluvia.errors import Invalid

if TYPE_CHECKING:
    from alluvia.cli.options import Decorator
    from alluvia.pipelines.pipeline import Pipeline
    from alluvia.pipelines.running import TableRun
    from alluvia.pipelines.unit_tests import DeclarationTestResult

_PATH: Decorator = click.option(
    "--path",
    default="pipelines",
    show_default=True,
    metavar="PATH",
    help="The folder, or the file, of the declarations.",
)
_SELECT: Decorator = click.option(
    "--select", multiple=True, metavar="TABLE", help="Only TABLE; TABLE+ with all that is made of it, +TABLE with all "
    "that it is made of.",
)  # fmt: skip
_FULL_REFRESH: Decorator = click.option("--full-refresh", is_flag=True, help="Compute all rows again.")
_RUN_COLUMNS = ("table", "kind", "mode", "version", "sources", "rows", "quarantined", "failed", "reason")
_TEST_COLUMNS = ("table", "name", "result")
_STATUS_COLUMNS = ("table", "kind", "version", "last_run", "behind", "failed", "mode", "why", "error")
_PLAN_COLUMNS = (
    "table",
    "kind",
    "mode",
    "from",
    "to",
    "files",
    "rows",
    "bytes",
    "dollars",
    "engine",
    "on_spark",
    "why",
)


@command
@_PATH
@_SELECT
@_FULL_REFRESH
def pipeline_plan(common: Common, path: str, select: tuple[str, ...], *, full_refresh: bool) -> None:
    """Show what a run would do to each table: how, from which versions, and what it reads and costs at most."""
    rows = _pipeline(common, path).plan(select, full_refresh=full_refresh)
    common.show(rows if common.as_json else map(_plan_row, rows), None if common.as_json else _PLAN_COLUMNS)


@command
@_PATH
@_SELECT
@_FULL_REFRESH
@SPARK
def pipeline_run(common: Common, path: str, select: tuple[str, ...], *, full_refresh: bool, spark: bool) -> None:
    """Bring the tables of a pipeline up to date, each after those that it reads.

    A table that fails is left as it was, those that read it are skipped, and the others run. Exits 1 then.
    """
    pipeline = _pipeline(common, path)
    reports: list[TableRun] = []
    with spark_execution(common, wanted=spark) as execution, common.progress("running the pipeline"):
        reports += pipeline.running(select, full_refresh=full_refresh, execution=execution)
    _show_runs(common, reports)


def _show_runs(common: Common, reports: Sequence[TableRun]) -> None:
    """Print what runs did; fail if one of them did."""
    rows = [{name: value for name, value in asdict(each).items() if name != "error"} for each in reports]
    common.show(rows if common.as_json else map(_run_row, rows), None if common.as_json else _RUN_COLUMNS)
    errors = [each.error for each in reports if each.error is not None]
    if errors:
        raise Invalid("\n".join(errors))


@command
@click.argument("tables", nargs=-1, required=True, metavar="TABLE…")
@_PATH
@SPARK
def pipeline_backfill(common: Common, tables: tuple[str, ...], path: str, *, spark: bool) -> None:
    """Compute all rows of TABLE again, and bring the tables that are made of it up to date."""
    reports: list[TableRun] = []
    with spark_execution(common, wanted=spark) as execution, common.progress("running the pipeline"):
        reports += _pipeline(common, path).backfilling(tables, execution=execution)
    _show_runs(common, reports)


@command
@_PATH
def pipeline_test(common: Common, path: str) -> None:
    """Run the tests of the declarations, in PATH/tests/*.sql, on lakes in memory. Exits 1 if one fails."""
    results = _pipeline(common, path).test()
    rows = [{**asdict(each), "passed": each.passed} for each in results]
    common.show(rows if common.as_json else map(_test_row, rows), None if common.as_json else _TEST_COLUMNS)
    failed = [each for each in results if not each.passed]
    if failed:
        raise Invalid("\n".join(f"{each.place}: {each.name}: {_difference(each)}" for each in failed))


@command
@_PATH
def pipeline_init(common: Common, path: str) -> None:
    """Write an example of a pipeline over a table of the lake, with a test, to PATH."""
    from alluvia.pipelines.example import write_example

    common.show({"file": str(file)} for file in write_example(common.lake().catalog, Path(path)))


@command
@_PATH
def pipeline_status(common: Common, path: str) -> None:
    """Show how far each table of a pipeline is behind the tables that it reads, and how its last run ended."""
    rows = _pipeline(common, path).status()
    behind = ({**row, "behind": _listed(row["behind"]), "failed": _listed(row.get("failed") or {})} for row in rows)
    common.show(rows if common.as_json else behind, None if common.as_json else _STATUS_COLUMNS)


def _pipeline(common: Common, path: str) -> Pipeline:
    return common.lake().pipeline(path)


def _run_row(row: dict[str, Any]) -> dict[str, Any]:
    failed = {name: count for name, count in row["failed"].items() if count}
    return {**row, "sources": _listed(row["sources"]), "failed": _listed(failed)}


def _test_row(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "result": "passed" if row["passed"] else "failed"}


def _difference(result: DeclarationTestResult) -> str:
    if result.error is not None:
        return result.error
    rows = {"missing": result.missing, "unexpected": result.unexpected}
    return "; ".join(f"{what}: {', '.join(map(str, each))}" for what, each in rows.items() if each)


def _listed(values: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in dict(values).items())


def _plan_row(row: dict[str, Any]) -> dict[str, Any]:
    versions = row.get("sources") or {}
    known = {name: row.get(name) for name in _PLAN_COLUMNS}
    between = {
        end: ", ".join(f"{name}@{each[end]}" for name, each in versions.items() if each[end] is not None)
        for end in ("from", "to")
    }
    read = {} if row.get("bytes") is None else {"bytes": size(row["bytes"]), "dollars": f"{row['dollars']:.7f}"}
    return {**known, **between, **read}
