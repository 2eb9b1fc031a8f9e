"""Commands about streams: create, list, show, move, drop."""

from __future__ import annotations

import dataclasses

import click

from alluvia.cli.options import TABLE, Common, command
from alluvia.cli.terminal.output import show, show_one


@click.group()
def stream() -> None:
    """Positions in the changes of tables, which move with the commit that uses the changes."""


@command
@click.argument("name")
@click.argument("table", type=TABLE)
@click.option("--version", type=click.IntRange(0), help="Begin after this version; by default, after the newest.")
@click.option("--timestamp", help="Begin after this moment, ISO 8601 (UTC unless it says otherwise).")
@click.option("--offset", metavar="AGO", help="Begin so long ago, such as '1 hour ago' or 7d.")
@click.option("--initial-rows", is_flag=True, help="Begin with the rows that TABLE has when NAME is first read.")
@click.option("--appends-only", is_flag=True, help="Give only rows that were appended.")
def create(
    common: Common,
    name: str,
    table: str,
    version: int | None,
    timestamp: str | None,
    offset: str | None,
    *,
    initial_rows: bool,
    appends_only: bool,
) -> None:
    """Create the stream NAME of the changes of TABLE."""
    made = common.lake().create_stream(
        name, table, version, timestamp, offset=offset, initial_rows=initial_rows, appends_only=appends_only
    )
    show_one(dataclasses.asdict(made.info()), as_json=common.as_json)


@command
def list_streams(common: Common) -> None:
    """List the streams, how far each is behind, and when vacuum may take what it has not given (stale_after)."""
    show([dataclasses.asdict(each) for each in common.lake().streams()], as_json=common.as_json)


@command
@click.argument("name")
def show_stream(common: Common, name: str) -> None:
    """Show how far the stream NAME has come. `alluvia sql "FROM name"` shows what it has not given."""
    show_one(dataclasses.asdict(common.lake().stream(name).info()), as_json=common.as_json)


@command
@click.argument("name")
@click.option("--version", type=click.IntRange(-1), help="Go on after this version; by default, after the newest.")
@click.option("--timestamp", help="Go on after this moment, ISO 8601 (UTC unless it says otherwise).")
def move(common: Common, name: str, version: int | None, timestamp: str | None) -> None:
    """Have the stream NAME go on elsewhere: what lies in between is not given, or given again."""
    show_one(dataclasses.asdict(common.lake().move_stream(name, version, timestamp)), as_json=common.as_json)


@command
@click.argument("name")
def drop(common: Common, name: str) -> None:
    """Drop the stream NAME."""
    common.lake().drop_stream(name)
    show_one({"dropped": name}, as_json=common.as_json)


for _name, _command in (
    ("create", create),
    ("list", list_streams),
    ("show", show_stream),
    ("move", move),
    ("drop", drop),
):
    stream.add_command(_command, _name)
