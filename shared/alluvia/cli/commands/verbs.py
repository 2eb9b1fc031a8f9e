"""The table of commands that are alike: what each calls, and what it prints of the answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.options import (
    CLUSTER_BY,
    EXIST_OK,
    FORCE,
    PARTITION_BY,
    PROPERTIES,
    SORT_BY,
    dry_run,
    expires,
    names,
    pairs,
    point,
    reading_options,
    unless,
)
from alluvia.cli.promotions import evolve_columns
from alluvia.cli.quoting import explaining_quotes
from alluvia.cli.verb import Given, verb
from alluvia.errors import Invalid

if TYPE_CHECKING:
    from alluvia.api.lake import Lake, Table
    from alluvia.files.reading_options import ReadingOptions


def _update(lake: Lake, table: str, values: Mapping[str, str], where: str | None = None, *, every: bool) -> Any:
    if (where is None) is not every:
        raise Invalid("give --where with a condition, or --all")
    with explaining_quotes(values):
        return lake.table(table).update(values, where)


def _upsert(
    lake: Lake,
    table: str,
    file: str,
    on: Sequence[str],
    reading: ReadingOptions,
    schema: str | None = None,
    **how: Any,
) -> Any:
    from alluvia.cli.commands.files import check_keys, read_rows
    from alluvia.files.uploads.schemas import declared_schema

    target = lake.table(table)
    rows = read_rows(target, file, reading, None if schema is None else declared_schema(schema))
    check_keys(file, rows, on)
    return target.upsert(rows, on, **how)


def _clone(lake: Lake, table: str, name: str, **which: Any) -> dict[str, Any]:
    from alluvia.operations.tables.clone import clone

    facts = dataclasses.asdict(clone(lake.catalog, table, name, **which))
    return {"clone": name, "of": facts.pop("source"), **facts}


def _undrop(lake: Lake, table: str | None = None, version: int | None = None) -> Any:
    if table is None:
        if version is not None:
            raise Invalid("--version: name the table too")
        return [{"table": each.name, "version": each.version, "dropped_at": each.dropped_at} for each in lake.dropped()]
    done = lake.undrop(table, version)
    return {"table": table, "version": done.version, "files": done.files, "rejects": done.rejects_version}


def _schemas(lake: Lake) -> list[dict[str, Any]]:
    from collections import Counter

    from alluvia.operations.catalog.views import list_views
    from alluvia.table_names import schema_of

    tables, views = (
        Counter(map(schema_of, lake.tables())),
        Counter(schema_of(each.name) for each in list_views(lake.store)),
    )
    return [{"schema": name, "tables": tables[name], "views": views[name]} for name in lake.schemas()]


def _tag(lake: Lake, name: str, table: str | None = None, *, version: int | None = None, **how: Any) -> Any:
    if table is not None:
        return lake.table(table).tag(name, version, **how)
    if version is not None:
        raise Invalid("--version: name the table that it is a version of")
    return lake.tag(name, **how)


def _tags(lake: Lake, table: str | None = None) -> Any:
    return lake.tags(tables=True) if table is None else lake.table(table).tags()


def _untag(lake: Lake, name: str, table: str | None = None) -> dict[str, Any]:
    (lake if table is None else lake.table(table)).drop_tag(name)
    return {"dropped": name} | ({} if table is None else {"of": table})


def _rollup(table: Table, _: Given) -> dict[str, Any]:
    return {"rollup": table.name, **dataclasses.asdict(table.freshness())}


def _rollups(lake: Lake) -> Any:
    return [_rollup(lake.table(name), {}) for name in lake.rollups()]


def _drop_rollup(lake: Lake, table: str) -> Any:
    lake.table(table).freshness()  # refuses a table that is not a rollup
    return lake.drop_table(table)


def _attached(table: Table, given: Given) -> dict[str, Any]:
    snapshot = table.snapshot()
    facts = {"attached": table.name, "from": given["uri"]}
    return {**facts, "version": snapshot.version, "columns": snapshot.schema.names}


def _converted(table: Table, _: Given) -> dict[str, Any]:
    snapshot = table.snapshot()
    return {
        "table": table.name,
        "version": snapshot.version,
        "files": len(snapshot.files),
        "rows": sum(file.num_records or 0 for file in snapshot.files),
        "columns": snapshot.schema.names,
        "partition_by": list(snapshot.partition_columns),
    }


def _commits(entries: Any, _: Given) -> list[dict[str, Any]]:
    return [
        {
            "version": entry.version,
            "timestamp": entry.timestamp,
            "operation": entry.operation,
            "files_added": entry.files_added,
            "files_removed": entry.files_removed,
            "rows_written": int(entry.metrics["numOutputRows"]) if "numOutputRows" in entry.metrics else None,
            "engine": entry.engine,
            "readable": entry.readable,
        }
        for entry in entries
    ]


def _restored(done: Any, _: Given) -> list[dict[str, Any]]:
    return [dataclasses.asdict(each) | {"new_version": done.versions.get(each.name)} for each in done.steps]


def _only(what: str) -> Callable[[Any, Given], Given]:
    return lambda _, given: {what: given.get("table") or given["name"]}


def _dropped(commit: Any, given: Given) -> dict[str, Any]:
    return {"dropped": given["table"], "version": commit.version}


option = click.option

_TABLE = (
    verb(
        "attach TABLE URI",
        "Lake.attach",
        "Attach the Delta table at URI, outside the lake, as TABLE, for reading.",
        shows=_attached,
        new_lake=True,
    ),
    verb(
        "clone TABLE NAME",
        _clone,
        "Make the table NAME of TABLE, as it is or was, in one commit. Later changes to either stay its own.",
        point("As of", "version", "timestamp", "tag"),
        option("--deep", is_flag=True, help="Copy the files, instead of sharing them with TABLE."),
        doing="cloning {table}",
    ),
    verb(
        "convert PATH TABLE",
        "Lake.convert",
        """Make TABLE of the Parquet files in the directory PATH, which must be that of the table in the lake.

        No data is written: the log names the files. Folders such as year=2024 become partition columns.""",
        pairs("--type", "partition_types", "NAME:TYPE", "The type of a partition column; inferred by default."),
        SORT_BY,
        CLUSTER_BY,
        PROPERTIES,
        shows=_converted,
        doing="converting {path}",
    ),
    verb(
        "delete TABLE",
        "Table.delete",
        "Delete the rows for which a condition holds.",
        option("--where", required=True, metavar="SQL", help="Which rows to delete, such as \"ip = '1.2.3.4'\"."),
        doing="deleting from {table}",
    ),
    verb(
        "detach TABLE",
        "Lake.detach",
        "Remove the name of the attached TABLE from the lake. The table itself stays as it is.",
        shows=_only("detached"),
    ),
    verb(
        "drop TABLE",
        "Lake.drop_table",
        "Drop TABLE and its rejected events. `alluvia undrop` brings them back until vacuum deletes the files.",
        shows=_dropped,
    ),
    verb(
        "evolve TABLE",
        evolve_columns,
        "Add nullable columns to TABLE, rename and drop columns, set and remove properties, all in one commit.",
        pairs("--add", "add", "NAME:TYPE", "A column to add, such as status:long."),
        pairs("--rename", "rename", "OLD=NEW", "A column to rename."),
        names("--drop", "drop", "A column to drop."),
        PROPERTIES,
        names("--unset", "unset", "A property to remove."),
        click.option(
            "--backfill",
            is_flag=True,
            help="Rewrite the files of before, so that added columns have the fields of `properties` in all of them.",
        ),
        click.option("--force", is_flag=True, help=FORCE),
    ),
    verb(
        "flashback",
        "Lake.restore",
        """Restore all tables of the lake to an earlier time, in one transaction.

        Tables that were created since are dropped, and dropped tables come back. Streams get their earlier position.
        Rollups are left to `alluvia rollup refresh`.""",
        point("To", "timestamp", "offset", "tag"),
        dry_run("Only show what would happen to each table."),
        shows=_restored,
        doing="restoring the lake",
    ),
    verb(
        "history TABLE",
        "Table.history",
        "Show a table's commits, newest first.",
        option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many commits to show."),
        shows=_commits,
    ),
    verb(
        "restore TABLE",
        "Table.restore",
        "Restore a table to an earlier version, without rewriting data.",
        point("To", "version", "timestamp", "offset", "tag"),
        doing="restoring {table}",
    ),
    verb(
        "undrop [TABLE]",
        _undrop,
        "Bring back TABLE; without one, list the tables that can come back.",
        option("--version", type=int, help="The version of the drop; the last drop by default."),
    ),
    verb(
        "unpublish NAME",
        "Lake.unpublish_query",
        "Withdraw the published query NAME.",
        shows=lambda query, given: {"unpublished": given["name"], "version": query.version},
        takes_branch=False,
    ),
    verb(
        "update TABLE",
        _update,
        "Set columns of the rows for which a condition holds.",
        pairs("--set", "values", "NAME=SQL", "A column's new value.", required=True),
        option("--where", metavar="SQL", help="Which rows to update."),
        option("--all", "every", is_flag=True, help="Update all rows."),
        doing="updating {table}",
    ),
    verb(
        "upsert TABLE",
        _upsert,
        'Put rows of a file into a table by key: NDJSON, CSV, TSV or Parquet ("-" is NDJSON from standard input).',
        click.argument("file", type=click.Path(dir_okay=False, allow_dash=True)),
        option("--on", multiple=True, required=True, metavar="NAME", help="A key column."),
        option("--matched", default="update", show_default=True, help="update, delete or ignore."),
        names("--column", "columns", "A column that an update sets; all by default."),
        option(
            "--when", metavar="SQL", help="Which matching rows to update or delete; new.NAME is the new row's column."
        ),
        option("--delete-when", metavar="SQL", help="Which matching rows to delete."),
        option("--unmatched", help="insert or ignore.  [default: insert, unless matching rows are deleted]"),
        option("--insert-when", metavar="SQL", help="Which new rows to insert."),
        option(
            "--schema",
            metavar="NAME:TYPE,…",
            help='Columns of the file that are numbers even if they have codes, such as "nr:long".',
        ),
        reading_options,
        doing="upserting into {table}",
    ),
    verb(
        "branch create NAME",
        "Lake.branch",
        "Create the branch NAME of the lake. Nothing is copied.",
        option("--at", metavar="TIME|TAG", help="Begin with what the lake held then."),
        expires("How long it is kept, such as 7d."),
        shows=lambda branch, given: {"branch": branch.name, "expires": given["expires"] and branch.expires_at},
        takes_branch=False,
    ),
    verb(
        "branch drop NAME",
        "Lake.drop_branch",
        "Drop the branch NAME, with everything that was written on it and not published.",
        shows=_only("dropped"),
        takes_branch=False,
    ),
    verb("branch list", "Lake.branches", "List the branches.", takes_branch=False),
    verb(
        "rollup create TABLE QUERY",
        "Lake.create_rollup",
        "Create TABLE from QUERY, a SELECT with GROUP BY over one table, and fill it.",
        PARTITION_BY,
        names("--sort-by", "sort_by", "A column that files are sorted by; by default, those of GROUP BY."),
        CLUSTER_BY,
        PROPERTIES,
        option("--empty", "fill", is_flag=True, callback=unless, help="Leave it to the first refresh to fill it."),
        shows=_rollup,
        doing="filling {table}",
    ),
    verb(
        "rollup drop TABLE",
        _drop_rollup,
        "Drop the rollup TABLE. `alluvia undrop` brings it back until vacuum deletes the files.",
        shows=_dropped,
    ),
    verb("schemas", _schemas, "List the schemas, with how many tables and views are in each."),
    verb("rollup list", _rollups, "List the rollups, and how fresh each is."),
    verb(
        "stream create NAME TABLE",
        "Lake.create_stream",
        "Create the stream NAME of the changes of TABLE, by default of those to come.",
        point("Begin after", "version", "timestamp", "offset", first=0),
        option("--initial-rows", is_flag=True, help="Begin with the rows that TABLE has when NAME is first read."),
        option("--appends-only", is_flag=True, help="Give only rows that were appended."),
        EXIST_OK,
        shows=lambda stream, _: stream.info(),
    ),
    verb("stream drop NAME", "Lake.drop_stream", "Drop the stream NAME.", shows=_only("dropped")),
    verb(
        "stream list",
        "Lake.streams",
        """List the streams, and how many versions each is behind.

        After `stale_after`, vacuum may delete changes that a stream has not given.""",
    ),
    verb(
        "stream move NAME",
        "Lake.move_stream",
        "Move the stream NAME to the newest or another version. It skips the changes in between, or gives them again.",
        point("Go on after", "version", "timestamp", first=-1),
    ),
    verb(
        "stream show NAME",
        "Lake.stream",
        'Show the position of the stream NAME. `alluvia sql "FROM name"` shows the changes that it has not given.',
        shows=lambda stream, _: stream.info(),
    ),
    verb(
        "tag create NAME [TABLE]",
        _tag,
        "Tag TABLE as it is or was with NAME; without TABLE, all tables of the lake at one time.",
        point("As of", "version", "timestamp"),
        expires("How long it is kept, such as 30d; forever by default."),
        option("--replace", is_flag=True, help="Move the name from the tag that has it."),
    ),
    verb(
        "tag drop NAME [TABLE]",
        _untag,
        "Drop the tag NAME of TABLE, or of the lake: vacuum may delete the files that only this tag kept.",
    ),
    verb("tag list [TABLE]", _tags, "List the tags of TABLE; without TABLE, those of the lake and of all its tables."),
)
VERBS = dict(_TABLE)
