"""Commands about rollups: create, list, refresh, drop."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.each_table import show_each
from alluvia.cli.options import TABLE, Common, command, pair
from alluvia.cli.terminal.output import show, show_one

if TYPE_CHECKING:
    from alluvia.api.lake import Table


@click.group()
def rollup() -> None:
    """Tables that are kept up to date with a query of another table."""


@command
@click.argument("table", type=TABLE)
@click.argument("query")
@click.option("--partition-by", multiple=True, metavar="NAME", help="A column, or day(NAME) and the like.")
@click.option("--sort-by", multiple=True, metavar="NAME", help="A column that files are sorted by; else its groups.")
@click.option("--cluster-by", multiple=True, metavar="NAME", help="One of up to 4 columns that files are clustered by.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="A table property.")
@click.option("--empty", is_flag=True, help="Leave it to the first refresh to fill it.")
def create(
    common: Common,
    table: str,
    query: str,
    partition_by: tuple[str, ...],
    sort_by: tuple[str, ...],
    cluster_by: tuple[str, ...],
    properties: tuple[str, ...],
    *,
    empty: bool,
) -> None:
    """Create TABLE from QUERY, a SELECT with GROUP BY over one table, and fill it."""
    with common.progress(f"filling {table}"):
        made = common.lake().create_rollup(
            table,
            query,
            partition_by,
            sort_by or None,
            dict(pair(text, "--property", "=") for text in properties),
            cluster_by=cluster_by,
            fill=not empty,
        )
    show_one(_facts(made), as_json=common.as_json)


@command
def list_rollups(common: Common) -> None:
    """List the rollups, and how fresh each is."""
    lake = common.lake()
    show([_facts(lake.table(name)) for name in lake.rollups()], as_json=common.as_json)


@command
@click.argument("tables", nargs=-1, type=TABLE)
@click.option("--rebuild", is_flag=True, help="Compute TABLES anew, without what has expired in their sources.")
def refresh(common: Common, tables: tuple[str, ...], *, rebuild: bool) -> None:
    """Bring rollups up to date with their sources (all of them by default)."""
    if rebuild and not tables:
        raise click.UsageError("--rebuild: name the rollups to rebuild")
    lake = common.lake()
    names = tables or tuple(lake.rollups())
    if names:
        show_each(common, names, partial(_refresh, rebuild=rebuild), lake=lake)


@command
@click.argument("table", type=TABLE)
def drop(common: Common, table: str) -> None:
    """Drop the rollup TABLE. `alluvia undrop` brings it back, until vacuum has taken the files."""
    lake = common.lake()
    lake.table(table).freshness()  # refuses a table that is not a rollup
    show_one({"dropped": table, "version": lake.drop_table(table).version}, as_json=common.as_json)


def _facts(table: Table) -> dict[str, Any]:
    return {"rollup": table.name, **dataclasses.asdict(table.freshness())}


def _refresh(table: Table, *, rebuild: bool) -> dict[str, Any]:
    return {"rollup": table.name, **dataclasses.asdict(table.refresh(rebuild=rebuild))}


for _name, _command in (("create", create), ("list", list_rollups), ("refresh", refresh), ("drop", drop)):
    rollup.add_command(_command, _name)
