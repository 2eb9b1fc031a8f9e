"""Commands about tags: create, list, delete."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import click

from alluvia.cli.commands.maintaining import Duration
from alluvia.cli.options import TABLE, Common, command
from alluvia.cli.terminal.output import show, show_one
from alluvia.cli.terminal.terminal import say
from alluvia.errors import Invalid


@click.group()
def tag() -> None:
    """Names for versions of a table, or for the whole lake as it is now; tagged versions stay readable."""


@command
@click.argument("name")
@click.argument("table", type=TABLE, required=False)
@click.option("--version", "version", type=int, help="This version of TABLE; else the newest.")
@click.option("--timestamp", help="As it was at this moment, ISO 8601 (UTC unless it says otherwise).")
@click.option("--expires", type=Duration(), metavar="TIME", help="How long it is kept, such as 30d; else for good.")
@click.option("--replace", is_flag=True, help="Take the name from the tag that has it.")
def create(
    common: Common,
    name: str,
    table: str | None,
    version: int | None,
    timestamp: str | None,
    expires: timedelta | None,
    *,
    replace: bool,
) -> None:
    """Tag a version of TABLE with NAME; without TABLE, all tables of the lake as they are at one moment."""
    lake = common.lake()
    if table is not None:
        made = lake.table(table).tag(name, version, timestamp, expires=expires, replace=replace)
    elif version is not None:
        raise Invalid("--version: name the table that it is a version of")
    else:
        made = lake.tag(name, timestamp, expires=expires, replace=replace)
    show_one(made, as_json=common.as_json)


@command
@click.argument("table", type=TABLE, required=False)
def list_tags(common: Common, table: str | None) -> None:
    """List the tags of TABLE; without TABLE, those of the lake and of all its tables."""
    lake = common.lake()
    found = lake.tags(tables=True) if table is None else lake.table(table).tags()
    show(map(dataclasses.asdict, found), as_json=common.as_json)


@command
@click.argument("name")
@click.argument("table", type=TABLE, required=False)
def delete(common: Common, name: str, table: str | None) -> None:
    """Delete the tag NAME of TABLE, or of the lake: vacuum may take what only it has kept."""
    lake = common.lake()
    if table is None:
        lake.untag(name)
    else:
        lake.table(table).untag(name)
    if not common.as_json:
        say(f"deleted tag {name}{'' if table is None else f' of {table}'}")


tag.add_command(create)
tag.add_command(list_tags, "list")
tag.add_command(delete)
