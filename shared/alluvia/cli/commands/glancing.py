"""Commands that show a lake or a table, or write it to a file: status, head, schema, export."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common
from alluvia.cli.options import FORMATS, PARAMETERS, TABLE, TIMEOUT, command, csv_options, point, rows_options
from alluvia.cli.terminal.terminal import say, tell
from alluvia.errors import AlluviaError, ReadOnly, TableNotFound
from alluvia.progress import report
from alluvia.table_names import REJECTS, TABLE_OR_REJECTS, lake_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from alluvia.api.lake import Lake, Table
    from alluvia.cli.shown_rows import RowsAsked
    from alluvia.delta.snapshot import Snapshot


@command
@click.argument("table", type=TABLE)
@click.option("-n", "--rows", type=click.IntRange(0), default=10, show_default=True, help="How many rows.")
@rows_options
def head(common: Common, table: str, rows: int, asked: RowsAsked) -> None:
    """Show some rows of TABLE, or of a view; of a table, it reads the first of its files that have rows."""
    from alluvia.cli.shown_rows import showing
    from alluvia.query.engine import run

    lake = common.lake()
    with showing(common, asked) as show:
        try:
            found = lake.table(table).scan()
        except AlluviaError as error:
            if not _may_be_view(table, error):
                raise
        else:
            show(found.schema, _first(found, rows))
            return
        with run(lake.catalog, f"SELECT * FROM {_in_sql(table)} LIMIT {rows}") as result:  # noqa: S608 - quoted
            show(result.schema, result)


def _first(rows: pa.RecordBatchReader, most: int) -> Iterator[pa.RecordBatch]:
    while most > 0 and (batch := next(rows, None)) is not None:
        yield batch.slice(0, most)
        most -= min(most, len(batch))


def _may_be_view(name: str, error: AlluviaError) -> bool:
    """Whether a name without a table may belong to a view, or to a relation such as `<rollup>_live`."""
    return isinstance(error, TableNotFound) or (not TABLE_OR_REJECTS.fullmatch(name) and all(re.split("[./]", name)))


def _in_sql(name: str) -> str:
    """Return the name of a table in SQL, quoted."""
    from alluvia.engine.duck.literals import quote_table

    return quote_table(name)


@command
@click.argument("table", type=TABLE)
@point("As of", "version", "timestamp")
def schema(common: Common, table: str, version: int | None, timestamp: str | None) -> list[dict[str, Any]]:
    """Show the columns of TABLE, or of a view, with their types as `create --column` takes them."""
    from alluvia.delta.schema.types import type_name

    lake = common.lake()
    try:
        columns = lake.table(table).snapshot(version, timestamp).schema
    except AlluviaError as error:
        if version is not None or timestamp is not None or not _may_be_view(table, error):
            raise
        from alluvia.query.engine import columns as columns_of

        columns = columns_of(lake.catalog, f"SELECT * FROM {_in_sql(table)}")  # noqa: S608 - quoted
    return [{"column": each.name, "type": type_name(each.type), "nullable": each.nullable} for each in columns]


@command
@click.argument("what", metavar="TABLE|SELECT")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMATS[1:], case_sensitive=False),
              help="The form of the rows.  [default: by the suffix of FILE]")  # fmt: skip
@csv_options
@PARAMETERS
@TIMEOUT
def export(
    common: Common,
    what: str,
    file: Path,
    form: str | None,
    writing: dict[str, Any],
    parameters: dict[str, str] | None,
    timeout: float | None,
) -> dict[str, Any] | None:
    """Write all rows of a table, a view or a SELECT to FILE, completely or not at all: CSV, JSON, NDJSON, Parquet, …

    The suffix of FILE says the form, such as .parquet; - is standard output.
    """
    from alluvia.cli.commands.querying import run_query
    from alluvia.cli.shown_rows import STANDARD_OUTPUT, RowsAsked
    from alluvia.query.limits import QueryLimits

    name = TABLE.convert(what, None, None)
    is_name = len(what.split()) == 1 and ("." not in what or lake_names(what.split(".")))
    text = f"SELECT * FROM {_in_sql(name)}" if is_name else what  # noqa: S608 - quoted, or the user's own
    limits = QueryLimits(timeout_seconds=timeout)
    rows = run_query(common, text, parameters, RowsAsked(form, file, writing), limits, dry_run=False)
    if str(file) in STANDARD_OUTPUT:
        return None
    return {"file": str(file), "rows": rows, "bytes": file.stat().st_size}


@command
def status(common: Common) -> None:
    """Show the lake at a glance: tables, views, rows, bytes, the newest event, rejects, due upkeep, servers.

    It reads the logs of the tables, and no data.
    """
    from alluvia.operations.catalog.views import list_views

    lake = common.lake()
    views = [each.name for each in list_views(lake.store)]
    if common.is_empty():
        common.show({"lake": common.uri, "tables": 0} | ({"views": views} if views else {}))
        return
    tables, failed = [], []
    with common.progress("reading the logs"):
        names = lake.tables(rejects=True)
        known = frozenset(names)
        own = [name for name in names if not name.endswith(f"/{REJECTS}")]
        for at, name in enumerate(own):
            report(f"reading the log of {name}", at, len(own), "tables")
            try:
                tables.append(_glance(lake, name, rejects=f"{name}/{REJECTS}" in known))
            except AlluviaError as error:
                failed.append((name, error))
    whole = _whole(common, lake, tables, len(own), views)
    if common.as_json:
        common.show({**whole, "by_table": tables})
    else:
        common.show(whole)
        if tables:
            say("")
            common.show(tables)
    for name, failure in failed:
        common.tell_error(failure, name)
    if failed:
        tell(f"{len(failed)} of {len(own)} tables could not be read and are not in the sums")
        raise click.exceptions.Exit(1)


def _whole(common: Common, lake: Lake, tables: list[dict[str, Any]], count: int, views: list[str]) -> dict[str, Any]:
    from alluvia.server.announcing import running_servers

    due = [f"{each['upkeep_due']} {each['table']}" for each in tables if each["upkeep_due"]]
    arrivals = [each["newest_event"] for each in tables if each["newest_event"] is not None]
    return {
        "lake": lake.uri,
        "tables": count,
        "views": views,
        "rows": _sum(tables, "rows"),
        "bytes": _sum(tables, "bytes"),
        "newest_event": max(arrivals, default=None),
        "rejects": _sum(tables, "rejects"),
        "upkeep_due": due,
        "servers": [each.url for each in running_servers(common.uri, common.endpoint_url)],
    }


def _sum(rows: list[dict[str, Any]], name: str) -> int | None:
    """Return a sum; None where a part is not known."""
    values = [row[name] for row in rows]
    return None if None in values else sum(values)


def _glance(lake: Lake, name: str, *, rejects: bool) -> dict[str, Any]:
    from alluvia.operations.reading.newest import newest_arrival

    table = lake.table(name)
    snapshot = table.snapshot()
    return {
        "table": name,
        "rows": _rows(snapshot),
        "bytes": snapshot.totals[1],
        "newest_event": newest_arrival(snapshot),
        "rejects": _rows(lake.table(f"{name}/{REJECTS}").snapshot()) if rejects else 0,
        "upkeep_due": ", ".join(_upkeep(table, snapshot)),
    }


def _rows(snapshot: Snapshot) -> int | None:
    """Return the number of rows, if the log says it for each file."""
    from alluvia.operations.reading.scan import known_rows

    total, others = known_rows(snapshot.files)
    counts = [each.live_records for each in others]
    return None if None in counts else total + sum(each for each in counts if each is not None)


def _upkeep(table: Table, snapshot: Snapshot) -> list[str]:
    """Return the commands that have something to do in a table, as far as its log says."""
    due = []
    try:
        if snapshot.settings.ttl_ms and table.expire(dry_run=True).files:
            due.append("expire")
        if table.optimize(dry_run=True).plan:
            due.append("optimize")
    except ReadOnly:  # only its own lake can keep it up
        return []
    if table.is_rollup and table.freshness().versions_behind:
        due.append("rollup refresh")
    return due
