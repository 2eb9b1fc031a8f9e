"""Commands that change the tables of a lake and their schemas: convert, drop, undrop, evolve."""

from __future__ import annotations

import dataclasses

import click

from alluvia.cli.options import TABLE, Common, command, pair
from alluvia.cli.terminal.output import show, show_one
from alluvia.errors import Invalid


@command
@click.argument("path")
@click.argument("table", type=TABLE)
@click.option(
    "--type", "types", multiple=True, metavar="NAME:TYPE", help="The type of a partition column; inferred by default."
)
@click.option("--sort-by", multiple=True, metavar="NAME", help="A column that new files are sorted by.")
@click.option(
    "--cluster-by", multiple=True, metavar="NAME", help="One of up to four columns that new files are clustered by."
)
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="A table property.")
def convert(
    common: Common,
    path: str,
    table: str,
    types: tuple[str, ...],
    sort_by: tuple[str, ...],
    cluster_by: tuple[str, ...],
    properties: tuple[str, ...],
) -> None:
    """Make TABLE of the Parquet files in the directory PATH, which must be that of the table in the lake.

    No data is written: the log names the files. Folders such as year=2024 become partition columns.
    """
    with common.progress(f"converting {path}"):
        made = common.lake().convert(
            path,
            table,
            partition_types=_pairs(types, "--type", ":"),
            sort_by=sort_by,
            cluster_by=cluster_by,
            properties=_pairs(properties, "--property", "="),
        )
    snapshot = made.snapshot()
    facts = {
        "table": table,
        "version": snapshot.version,
        "files": len(snapshot.files),
        "rows": sum(file.num_records or 0 for file in snapshot.files),
        "columns": snapshot.schema.names,
        "partition_by": list(snapshot.partition_columns),
    }
    show_one(facts, as_json=common.as_json)


@command
@click.argument("table", type=TABLE)
@click.argument("name", type=TABLE)
@click.option("--version", type=int, help="The version to clone; the newest by default.")
@click.option("--timestamp", help="Clone the newest version at this time.")
@click.option("--tag", metavar="NAME", help="Clone the version with this tag.")
@click.option("--deep", is_flag=True, help="Copy the files, instead of sharing them with TABLE.")
def clone(
    common: Common,
    table: str,
    name: str,
    version: int | None,
    timestamp: str | None,
    tag: str | None,
    *,
    deep: bool,
) -> None:
    """Make the table NAME of a version of TABLE, in one commit. What is written to either later is its own."""
    from alluvia.operations.tables.clone import clone as make

    with common.progress(f"cloning {table}"):
        made = make(common.lake(), table, name, version, timestamp, tag, deep=deep)
    facts = {
        "clone": name,
        "of": table,
        "source_version": made.source_version,
        "version": made.version,
        "files": made.files,
        "bytes": made.bytes,
        "deep": made.deep,
    }
    show_one(facts, as_json=common.as_json)


@command
@click.argument("table", type=TABLE)
@click.argument("uri")
def attach(common: Common, table: str, uri: str) -> None:
    """Give the Delta table at URI, outside the lake, the name TABLE in it, under which it can be read."""
    snapshot = common.lake(new=True).attach(table, uri).snapshot()
    facts = {"attached": table, "from": uri, "version": snapshot.version, "columns": snapshot.schema.names}
    show_one(facts, as_json=common.as_json)


@command
@click.argument("table", type=TABLE)
def detach(common: Common, table: str) -> None:
    """Take the name of the attached TABLE out of the lake. The table itself stays as it is."""
    common.lake().detach(table)
    show_one({"detached": table}, as_json=common.as_json)


@command
@click.argument("table", type=TABLE)
def drop(common: Common, table: str) -> None:
    """Drop TABLE and its rejected events. `alluvia undrop` brings them back, until vacuum has taken the files."""
    commit = common.lake().drop_table(table)
    show_one({"dropped": table, "version": commit.version}, as_json=common.as_json)


@command
@click.argument("table", type=TABLE, required=False)
@click.option("--version", type=int, help="The version of the drop; the last drop by default.")
def undrop(common: Common, table: str | None, version: int | None) -> None:
    """Bring back TABLE; without one, list the tables that can come back."""
    lake = common.lake()
    if table is None:
        if version is not None:
            raise Invalid("--version: name the table too")
        found = [{"table": d.name, "version": d.version, "dropped_at": d.dropped_at} for d in lake.dropped()]
        show(found, as_json=common.as_json)
        return
    report = lake.undrop(table, version)
    facts = {"table": table, "version": report.version, "files": report.files, "rejects": report.rejects_version}
    show_one(facts, as_json=common.as_json)


@command
@click.argument("table", type=TABLE)
@click.option("--add", multiple=True, metavar="NAME:TYPE", help="A column to add, such as status:long.")
@click.option("--rename", multiple=True, metavar="OLD:NEW", help="A column to rename.")
@click.option("--drop", multiple=True, metavar="NAME", help="A column to drop.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property to set.")
@click.option("--unset", multiple=True, metavar="NAME", help="A property to remove.")
def evolve(
    common: Common,
    table: str,
    add: tuple[str, ...],
    rename: tuple[str, ...],
    drop: tuple[str, ...],
    properties: tuple[str, ...],
    unset: tuple[str, ...],
) -> None:
    """Add nullable columns to TABLE, rename and drop columns, set and remove properties, all in one commit."""
    if not (add or rename or drop or properties or unset):
        raise Invalid("nothing to change: give --add NAME:TYPE, --rename OLD:NEW, --drop NAME, --property or --unset")
    changed = dict.fromkeys(unset) | _pairs(properties, "--property", "=")
    renamed = _pairs(rename, "--rename", ":")
    commit = common.lake().table(table).evolve(_pairs(add, "--add", ":"), changed, rename=renamed, drop=drop)
    show_one({"table": table, "version": commit.version}, as_json=common.as_json)


@command
@click.option("--timestamp", help="To this moment, ISO 8601 (UTC unless it says otherwise).")
@click.option("--offset", metavar="AGO", help="To what it was so long ago, such as '1 hour ago' or 7d.")
@click.option("--tag", help="To a tag of the lake.")
@click.option("--dry-run", is_flag=True, help="Only show what would become of which table.")
def flashback(common: Common, timestamp: str | None, offset: str | None, tag: str | None, *, dry_run: bool) -> None:
    """Make all tables of the lake what they were, in one transaction.

    Tables that were created since are dropped, those that were dropped since come back, streams have their position of
    then, and rollups are left to `alluvia rollup refresh`.
    """
    with common.progress("restoring the lake"):
        done = common.lake().restore(timestamp, offset=offset, tag=tag, dry_run=dry_run)
    facts = [dataclasses.asdict(each) | {"new_version": done.versions.get(each.name)} for each in done.steps]
    show(facts, as_json=common.as_json)


def _pairs(texts: tuple[str, ...], option: str, separator: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, value = pair(text, option, separator)
        if name in found:
            raise Invalid(f"{option} {text!r}: give each name once")
        found[name] = value
    return found
