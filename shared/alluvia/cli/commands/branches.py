"""Commands that show and publish what has changed on a branch: branch diff, branch publish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common
from alluvia.cli.options import TABLE, dry_run, lake_command, names
from alluvia.cli.terminal.terminal import tell
from alluvia.errors import Conflict

if TYPE_CHECKING:
    from alluvia.operations.branches.branch_diff import TableDiff


@lake_command
@click.argument("name")
@click.argument("table", type=TABLE, required=False)
@names("--key", "key", "A column by which a changed row is found again.", "COLUMN")
@click.option("--rows", is_flag=True, help="Show the rows of TABLE that were added, removed and changed.")
def branch_diff(common: Common, name: str, table: str | None, key: tuple[str, ...], *, rows: bool) -> Any:
    """Show what the branch NAME has changed, by table, or in TABLE."""
    branch = common.lake().on_branch(name)
    if not rows:
        return map(_row, branch.diff(table, key=key or None))
    if table is None:
        raise click.UsageError("--rows: name the table")
    reader = branch.diff_rows(table, key=key or None)
    columns = ["_change_type", *(each for each in reader.schema.names if each != "_change_type")]
    common.show((row for batch in reader for row in batch.to_pylist()), columns)
    return None


@lake_command
@click.argument("name")
@click.option(
    "--isolation", default="serializable", show_default=True,
    help="serializable: nothing that the branch may have read has changed; snapshot: nothing that it has changed has.",
)  # fmt: skip
@dry_run("Only say what would happen; exits 1 if there is a conflict.")
@click.option("--discard", "then_discard", is_flag=True, help="Delete the branch once it is published.")
def branch_publish(common: Common, name: str, isolation: str, *, dry_run: bool, then_discard: bool) -> None:
    """Commit what the branch NAME has changed to the lake, in one transaction."""
    from alluvia.operations.branches.branch_report import published_row

    branch = common.lake().on_branch(name)
    with common.progress(f"publishing {name}"):
        report = branch.publish(isolation=isolation, dry_run=dry_run)
    tables = map(published_row, report.tables)
    common.show({name: value for name, value in row.items() if name != "conflict"} for row in tables)
    for rollup in report.rollups:
        tell(f"The rollup {rollup} was not published: it follows its source on the lake.")
    conflicts = [each.conflict for each in report.tables if each.conflict is not None]
    if conflicts:
        raise Conflict("\n".join(map(str, conflicts)))
    if then_discard and not dry_run:
        branch.drop()


def _row(diff: TableDiff) -> dict[str, Any]:
    columns = [f"+{name} {kind}" for name, kind in diff.columns_added.items()]
    columns += [f"-{name}" for name in diff.columns_removed]
    columns += [f"{name} {before} -> {after}" for name, (before, after) in diff.columns_changed.items()]
    return {
        "table": diff.name,
        "change": diff.kind,
        "rows_added": diff.rows_added,
        "rows_removed": diff.rows_removed,
        "rows_changed": diff.rows_changed,
        "columns": ", ".join(columns) if diff.kind == "changed" else "",
        "files_added": diff.files_added,
        "files_removed": diff.files_removed,
    }
