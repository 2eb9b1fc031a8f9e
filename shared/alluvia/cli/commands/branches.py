"""Commands about branches: create, list, diff, publish, discard."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.commands.maintaining import Duration
from alluvia.cli.options import TABLE, Common, command
from alluvia.cli.terminal.output import show, show_one
from alluvia.cli.terminal.terminal import tell
from alluvia.errors import Conflict
from alluvia.operations.branches.branch_report import published_row

if TYPE_CHECKING:
    from alluvia.operations.branches.branch_diff import TableDiff

_NAME = click.argument("name")
_KEY = click.option("--key", multiple=True, metavar="COLUMN", help="A column by which a changed row is found again.")
_ISOLATION = click.option(
    "--isolation", default="serializable", show_default=True,
    help="serializable: what the branch may have read must still be so; snapshot: only what it has changed.",
)  # fmt: skip


@click.group()
def branch() -> None:
    """Branches of the lake: write on one, look at what changed, publish it in one transaction."""


@command
@_NAME
@click.option("--at", metavar="TIME|TAG", help="Begin with what the lake held then.")
@click.option("--expires", type=Duration(), metavar="TIME", help="How long it is kept, such as 7d.")
def create(common: Common, name: str, at: str | None, expires: timedelta | None) -> None:
    """Cut the branch NAME from the lake. Nothing is copied."""
    made = common.lake().branch(name, at, expires=expires)
    show_one({"branch": made.name, "expires": expires and made.expires_at}, as_json=common.as_json)


@command
def list_(common: Common) -> None:
    """List the branches."""
    rows = (dataclasses.asdict(each) for each in common.lake().branches())
    show(rows, as_json=common.as_json, columns=("name", "moment", "created_at", "expires_at"))


@command
@_NAME
@click.argument("table", type=TABLE, required=False)
@_KEY
@click.option("--rows", is_flag=True, help="Show the rows of TABLE that were added, removed and changed.")
def diff(common: Common, name: str, table: str | None, key: tuple[str, ...], *, rows: bool) -> None:
    """Show what the branch NAME has changed, by table, or in TABLE."""
    found = common.lake().on_branch(name)
    if rows:
        if table is None:
            raise click.UsageError("--rows: name the table")
        reader = found.diff_rows(table, key=key or None)
        show((row for batch in reader for row in batch.to_pylist()), as_json=common.as_json,
             columns=["_change_type", *(each for each in reader.schema.names if each != "_change_type")])  # fmt: skip
        return
    show(map(_row, found.diff(table, key=key or None)), as_json=common.as_json)


@command
@_NAME
@_ISOLATION
@click.option("--dry-run", is_flag=True, help="Only say what would happen; exits 1 if there is a conflict.")
@click.option("--discard", "then_discard", is_flag=True, help="Delete the branch once it is published.")
def publish(common: Common, name: str, isolation: str, *, dry_run: bool, then_discard: bool) -> None:
    """Commit what the branch NAME has changed to the lake, in one transaction."""
    found = common.lake().on_branch(name)
    with common.progress(f"publishing {name}"):
        report = found.publish(isolation=isolation, dry_run=dry_run)
    shown = map(published_row, report.tables)
    show(({name: value for name, value in row.items() if name != "conflict"} for row in shown), as_json=common.as_json)
    for rollup in report.rollups:
        tell(f"The rollup {rollup} was not published: it follows its source on the lake.")
    conflicts = [each.conflict for each in report.tables if each.conflict is not None]
    if conflicts:
        raise Conflict("\n".join(map(str, conflicts)))
    if then_discard and not dry_run:
        found.discard()


@command
@_NAME
def discard(common: Common, name: str) -> None:
    """Delete the branch NAME, with all that was written on it and not published."""
    common.lake().discard_branch(name)
    show_one({"discarded": name}, as_json=common.as_json)


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


for _name, _command in (
    ("create", create),
    ("list", list_),
    ("diff", diff),
    ("publish", publish),
    ("discard", discard),
):
    branch.add_command(_command, _name)
