"""Commands that only read: query, tables, describe, history, files, changes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.each_table import show_each
from alluvia.cli.options import TABLE, Common, command
from alluvia.cli.terminal.output import show, show_one
from alluvia.cli.terminal.terminal import say
from alluvia.errors import Invalid

if TYPE_CHECKING:
    from alluvia.delta.snapshot import Snapshot

_version = click.option("--version", "version", type=int, help="As of this version.")
_timestamp = click.option("--timestamp", help="As of this moment, ISO 8601 (UTC unless it says otherwise).")


@command
@click.argument("sql")
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Stop the query after this."
)
def query(common: Common, sql: str, timeout: float | None) -> None:
    """Run one SELECT; "-" reads it from standard input."""
    from alluvia.cli.rows import show_rows
    from alluvia.query.engine import run
    from alluvia.query.limits import QueryLimits
    from alluvia.sql.grammar.first_word import first_word
    from alluvia.sql.grammar.grammar import READERS

    text = sys.stdin.read() if sql == "-" else sql
    if (word := first_word(text)) in READERS:
        raise Invalid(f"query runs one SELECT: run {word.upper()} with `alluvia sql`")
    with common.progress("running the query"):
        result = run(common.lake(), text, QueryLimits(timeout_seconds=timeout))
    with result:
        show_rows(common, result.schema, result)


@command
def tables(common: Common) -> None:
    """List the tables, with their version, files, rows and bytes."""
    show_each(common, (), lambda table: _summary(table.snapshot()), rejects=False)


@command
@click.argument("table", type=TABLE)
@_version
@_timestamp
def describe(common: Common, table: str, version: int | None, timestamp: str | None) -> None:
    """Show a table's columns, partitioning, properties and protocol."""
    from alluvia.delta.schema.types import type_name

    snapshot = common.lake().table(table).snapshot(version, timestamp)
    columns = [{"column": f.name, "type": type_name(f.type), "nullable": f.nullable} for f in snapshot.schema]
    facts: dict[str, Any] = {
        **_summary(snapshot),
        "partition_by": [str(field) for field in snapshot.partition_spec.fields],
        "sort_by": list(snapshot.settings.sort_by),
        "cluster_by": list(snapshot.settings.cluster_by),
        "protocol": snapshot.protocol.to_json(),
        "properties": dict(snapshot.properties),
    }
    if common.as_json:
        show_one({**facts, "columns": columns}, as_json=True)
        return
    show_one(facts, as_json=False)
    say("")
    show(columns, as_json=False)


@command
@click.argument("table", type=TABLE)
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many commits to show, newest first."
)
def history(common: Common, table: str, limit: int) -> None:
    """Show a table's commits, newest first."""
    entries = common.lake().table(table).history(limit)
    show(
        [
            {
                "version": entry.version,
                "timestamp": entry.timestamp,
                "operation": entry.operation,
                "files_added": entry.files_added,
                "files_removed": entry.files_removed,
                "rows": int(entry.metrics["numOutputRows"]) if "numOutputRows" in entry.metrics else None,
                "engine": entry.engine,
                "readable": entry.readable,
            }
            for entry in entries
        ],
        as_json=common.as_json,
    )


@command
@click.argument("table", type=TABLE)
@_version
@_timestamp
@click.option("--where", metavar="CONDITION", help="Those alone that can hold rows for which this SQL condition holds.")
def files(common: Common, table: str, version: int | None, timestamp: str | None, where: str | None) -> None:
    """List the data files of a table."""
    from alluvia.delta.data_files.scan import Scan
    from alluvia.operations.reading.scan import predicate_of

    snapshot = common.lake().table(table).snapshot(version, timestamp)
    show(
        (
            {
                "path": file.path,
                "rows": file.live_records,
                "bytes": file.size,
                "partition": dict(file.partition_values) or file.tags.get("alluvia.partition", ""),
            }
            for file in Scan(snapshot, predicate_of(snapshot, where)).files
        ),
        as_json=common.as_json,
    )


@command
@click.argument("table", type=TABLE)
@click.option("--from", "first", type=int, required=True, metavar="VERSION", help="The first version.")
@click.option("--to", "last", type=int, metavar="VERSION", help="The last version; the newest by default.")
@click.option("--expired", is_flag=True, help="Also the rows that expired by alluvia.ttl, as `expire`.")
def changes(common: Common, table: str, first: int, last: int | None, *, expired: bool) -> None:
    """Show the rows that versions inserted and deleted, both ends included, with `_change_type`."""
    from alluvia.cli.rows import show_rows

    feed = common.lake().table(table).changes(first, last, expired=expired)
    show_rows(common, feed.schema, feed)


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
