"""Commands that change existing rows: delete, update, upsert, restore."""

from __future__ import annotations

import click

from alluvia.cli.options import TABLE, Common, command
from alluvia.cli.terminal.output import show_one
from alluvia.errors import Invalid


@command
@click.argument("table", type=TABLE)
@click.option("--where", required=True, metavar="SQL", help="Which rows to delete, such as \"ip = '1.2.3.4'\".")
def delete(common: Common, table: str, where: str) -> None:
    """Delete the rows for which a condition holds."""
    with common.progress(f"deleting from {table}"):
        report = common.lake().table(table).delete(where)
    show_one(report, as_json=common.as_json)


@command
@click.argument("table", type=TABLE)
@click.option("--set", "values", multiple=True, required=True, metavar="NAME=SQL", help="A column's new value.")
@click.option("--where", metavar="SQL", help="Which rows to update.")
@click.option("--all", "every", is_flag=True, help="Update all rows.")
def update(common: Common, table: str, values: tuple[str, ...], where: str | None, *, every: bool) -> None:
    """Set columns of the rows for which a condition holds."""
    if (where is None) is not every:
        raise Invalid("give --where with a condition, or --all")
    given: dict[str, str] = {}
    for text in values:
        name, found, value = text.partition("=")
        if not found or not name.strip() or name.strip() in given:
            raise Invalid(f"--set {text!r}: write it as NAME=SQL, each name once")
        given[name.strip()] = value
    with common.progress(f"updating {table}"):
        report = common.lake().table(table).update(given, where)
    show_one(report, as_json=common.as_json)


@command
@click.argument("table", type=TABLE)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--on", multiple=True, required=True, metavar="NAME", help="A key column.")
@click.option("--matched", default="update", show_default=True, help="update, delete or ignore.")
@click.option("--column", "columns", multiple=True, metavar="NAME", help="A column that an update sets; else all.")
@click.option(
    "--when", metavar="SQL", help="Which matching rows to update or delete; new.NAME is the new row's column."
)
@click.option("--delete-when", metavar="SQL", help="Which matching rows to delete.")
@click.option("--unmatched", help="insert or ignore.  [default: insert, unless matching rows are deleted]")
@click.option("--insert-when", metavar="SQL", help="Which new rows to insert.")
def upsert(
    common: Common,
    table: str,
    file: str,
    on: tuple[str, ...],
    matched: str,
    columns: tuple[str, ...],
    when: str | None,
    delete_when: str | None,
    unmatched: str | None,
    insert_when: str | None,
) -> None:
    """Put the rows of a file into a table by key (NDJSON, CSV, TSV or Parquet; "-" is NDJSON from standard input)."""
    from alluvia.cli.commands.row_files import read_rows

    target = common.lake().table(table)
    with common.progress(f"upserting into {table}"):
        report = target.upsert(
            read_rows(target, file),
            on,
            matched=matched,
            columns=columns or None,
            when=when,
            delete_when=delete_when,
            unmatched=unmatched,
            insert_when=insert_when,
        )
    show_one(report, as_json=common.as_json)


@command
@click.argument("table", type=TABLE)
@click.option("--version", "version", type=int, help="To this version.")
@click.option("--timestamp", help="To this moment, ISO 8601 (UTC unless it says otherwise).")
@click.option("--offset", metavar="AGO", help="To what it was so long ago, such as '1 hour ago' or 7d.")
@click.option("--tag", metavar="NAME", help="To the version with this tag.")
def restore(
    common: Common, table: str, version: int | None, timestamp: str | None, offset: str | None, tag: str | None
) -> None:
    """Make a table what it was, without rewriting data."""
    with common.progress(f"restoring {table}"):
        report = common.lake().table(table).restore(version, timestamp, offset=offset, tag=tag)
    show_one(report, as_json=common.as_json)
