"""Commands of pipelines: pipeline plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common
from alluvia.cli.options import command
from alluvia.cli.terminal.output import size

if TYPE_CHECKING:
    from alluvia.cli.options import Decorator
    from alluvia.pipelines.pipeline import Pipeline

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
_PLAN_COLUMNS = ("table", "kind", "mode", "from", "to", "files", "rows", "bytes", "dollars", "engine", "why")


@command
@_PATH
@_SELECT
@_FULL_REFRESH
def pipeline_plan(common: Common, path: str, select: tuple[str, ...], *, full_refresh: bool) -> None:
    """Show what a run would do to each table: how, from which versions, and what it reads and costs at most."""
    rows = _pipeline(common, path).plan(select, full_refresh=full_refresh)
    common.show(rows if common.as_json else map(_plan_row, rows), None if common.as_json else _PLAN_COLUMNS)


def _pipeline(common: Common, path: str) -> Pipeline:
    return common.lake().pipeline(path)


def _plan_row(row: dict[str, Any]) -> dict[str, Any]:
    versions = row.get("sources") or {}
    known = {name: row.get(name) for name in _PLAN_COLUMNS}
    between = {end: ", ".join(f"{name}@{each[end]}" for name, each in versions.items()) for end in ("from", "to")}
    return {**known, **between, "bytes": None if row.get("bytes") is None else size(row["bytes"])}
