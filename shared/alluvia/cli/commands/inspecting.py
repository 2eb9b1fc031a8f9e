"""Commands that say what a table holds: tables, describe, files, suggest, rejects list, rejects show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common, show_each
from alluvia.cli.errors import folder_of
from alluvia.cli.options import FORCE, TABLE, command, names, point
from alluvia.cli.promotions import say_promoted
from alluvia.cli.terminal.terminal import say, tell
from alluvia.errors import Invalid, TableNotFound
from alluvia.table_names import REJECTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from alluvia.api.lake import Lake
    from alluvia.delta.snapshot import Snapshot

_REASONS = 20


@command
def tables(common: Common) -> None:
    """List the tables, with their version, files, rows and bytes, and the views, with their queries."""
    folder = folder_of(common.uri)
    views: list[dict[str, Any]] = []
    if not common.is_empty() or (folder is not None and (folder / "_alluvia" / "views").exists()):
        from alluvia.operations.catalog.views import list_views

        listed = list_views(common.lake().store)
        views = [{"view": each.name, "version": each.version, "query": each.query} for each in listed]
    show_each(common, (), lambda table: _summary(table.snapshot()), rejects=False)
    if views:
        if not common.as_json and not common.is_empty():
            say("")
        common.show(views)


@command
@click.argument("table", type=TABLE)
@point("As of", "version", "timestamp")
def describe(common: Common, table: str, version: int | None, timestamp: str | None) -> None:
    """Show a table's columns, partitioning, properties and protocol, or the query and columns of a view.

    `unreadable_times` and `future_times` count the stored events that came with a time that could not be read, or that
    was more than a day after their arrival; `suggest` shows some of the former.
    """
    from alluvia.delta.schema.types import type_name

    lake = common.lake()
    try:
        snapshot = lake.table(table).snapshot(version, timestamp)
        facts, schema, comments = _table_facts(snapshot), snapshot.schema, snapshot.column_comments
    except TableNotFound:
        view = None if version is not None or timestamp is not None else _view(lake, table)
        if view is None:
            raise
        facts, schema, comments = view
    columns = [{"column": f.name, "type": type_name(f.type), "nullable": f.nullable} for f in schema]
    for column in columns if comments else ():
        column["comment"] = comments.get(str(column["column"]))
    if common.as_json:
        common.show({**facts, "columns": columns})
        return
    common.show(facts)
    say("")
    common.show(columns)


def _table_facts(snapshot: Snapshot) -> dict[str, Any]:
    from alluvia.delta.odd_times import odd_times_in

    return {
        **_summary(snapshot),
        **({"comment": snapshot.comment} if snapshot.comment else {}),
        **{f"{kind}_times": number for kind, number in odd_times_in(snapshot.files).items()},
        "partition_by": [str(field) for field in snapshot.partition_spec.fields],
        "sort_by": list(snapshot.settings.sort_by),
        "cluster_by": list(snapshot.settings.cluster_by),
        "protocol": snapshot.protocol.to_json(),
        "properties": dict(snapshot.properties),
    }


def _view(lake: Lake, name: str) -> tuple[dict[str, Any], pa.Schema, dict[str, str]] | None:
    from alluvia.engine.duck.literals import quote_name
    from alluvia.operations.catalog.views import find_view
    from alluvia.query.engine import columns

    view = find_view(lake.store, name)
    if view is None:
        return None
    schema = columns(lake.catalog, f"SELECT * FROM {quote_name(name)}")  # noqa: S608 - quoted
    commented = {"comment": view.comment} if view.comment else {}
    return {"view": name, "version": view.version, "query": view.query, **commented}, schema, dict(view.column_comments)


@command
@click.argument("table", type=TABLE)
@point("As of", "version", "timestamp")
@click.option("--where", metavar="CONDITION", help="Only files that can hold rows for which this SQL condition holds.")
def files(
    common: Common, table: str, version: int | None, timestamp: str | None, where: str | None
) -> Iterator[dict[str, Any]]:
    """List the data files of a table."""
    from alluvia.delta.data_files.scan import Scan
    from alluvia.operations.reading.scan import predicate_of

    snapshot = common.lake().table(table).snapshot(version, timestamp)
    return (
        {
            "path": file.path,
            "rows": file.live_records,
            "bytes": file.size,
            "partition": dict(file.partition_values) or file.tags.get("alluvia.partition", ""),
        }
        for file in Scan(snapshot, predicate_of(snapshot, where)).files
    )


@command
@click.argument("table", type=TABLE)
@click.option("--apply", "applies", is_flag=True, help="Add the columns that are shown.")
@click.option("--force", is_flag=True, help=FORCE)
@names("--field", "fields", "Only this field.")
@click.option("--coverage", type=click.FloatRange(0, 1), default=0.05, show_default=True,
              help="Only fields that at least this share of the events have.")  # fmt: skip
@click.option("--sample", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True,
              help="How many events to look at, from at most 64 files.")  # fmt: skip
def suggest(
    common: Common, table: str, fields: tuple[str, ...], coverage: float, sample: int, *, applies: bool, force: bool
) -> None:
    """Suggest columns of TABLE for fields that its newest events, rejected ones too, have in `properties`.

    `events` says how many events were looked at: fewer than --sample if their newest files hold fewer. Such a column
    has the field of all events, also of earlier ones, and `properties` goes on to show it.
    """
    target = common.lake().table(table)
    every = target.suggest(sample)
    unknown = sorted(set(fields) - {each.field for each in every})
    if unknown:
        raise Invalid(f"--field {unknown[0]!r}: no sampled event has such a field without a column")
    chosen = [each for each in every if each.field in fields or (not fields and each.coverage >= coverage)]
    common.show(chosen)
    if every:
        tell(f"looked at {every[0].events} event{'s' if every[0].events > 1 else ''}")
    new = {each.field: each.type for each in chosen if each.type is not None}
    if not applies:
        if new:
            tell(f"alluvia suggest {table} --apply adds the columns that have a type")
    elif new:
        added = target.evolve(new, force=force)
        tell(f"added {', '.join(new)} in version {added.version}")
        if added.promoted:
            say_promoted(target, added)
    else:
        raise Invalid(f"{table}: no field has a type that a column could have, so nothing was added")


@command
@click.argument("tables", nargs=-1, type=TABLE)
def rejects_list(common: Common, tables: tuple[str, ...]) -> list[dict[str, Any]]:
    """Count the rejected events of TABLES (all by default) by reason, the 20 most frequent of each."""
    from alluvia.engine.duck.literals import quote_table

    lake = common.lake()
    given = tables or [name.partition("/")[0] for name in lake.tables(rejects=True) if name.endswith(f"/{REJECTS}")]
    rows: list[dict[str, Any]] = []
    for name in given:
        lake.table(name).snapshot()  # refuses a name without a table; one that has rejected nothing has no rejects
        rejects = f"{name}/{REJECTS}"
        if rejects in lake:
            counted = lake.sql(
                f"SELECT '{name}' AS \"table\", reason, count(*) AS rejects, min(received_at) AS first, "  # noqa: S608 - a checked name
                f"max(received_at) AS last FROM {quote_table(rejects)} "
                f"GROUP BY reason ORDER BY rejects DESC, reason LIMIT {_REASONS}"
            )
            rows += counted.to_pylist()
    return rows


@command
@click.argument("table", type=TABLE)
@click.option("--where", metavar="CONDITION", help="Only these, such as \"reason LIKE 'status:%'\".")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many to show.")
def rejects_show(common: Common, table: str, where: str | None, limit: int) -> None:
    """Show the rejected events of TABLE as they were sent, with the reasons."""
    import pyarrow as pa

    from alluvia.operations.reading.scan import scan

    lake = common.lake()
    lake.table(table).snapshot()
    if f"{table}/{REJECTS}" not in lake:
        return
    kept = lake.table(f"{table}/{REJECTS}")
    rows: list[dict[str, Any]] = []
    more = False
    for batch in scan(kept.snapshot(), lake.store, ["received_at", "reason", "raw"], where):
        left = limit - len(rows)
        more = more or len(batch) > left
        rows += map(_readable, pa.Table.from_batches([batch.slice(0, left)]).to_pylist())
        if more:
            break
    common.show(rows)
    if more:
        tell(f"there are more than {limit}: --limit shows more, --where others")


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "raw": (row["raw"] or b"").decode("utf-8", "replace")}


def _summary(snapshot: Snapshot) -> dict[str, Any]:
    counts = [(file.live_records, file.size) for file in snapshot.files]
    rows = [number for number, _ in counts if number is not None]
    return {
        "table": snapshot.name,
        "version": snapshot.version,
        "files": len(counts),
        "rows": sum(rows) if len(rows) == len(counts) else None,
        "bytes": sum(size for _, size in counts),
    }
