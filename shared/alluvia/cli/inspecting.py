"""Commands that only read: query, tables, describe, history, files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click
import pyarrow as pa

from alluvia.cli.options import Common, command
from alluvia.cli.output import show, show_one
from alluvia.table.snapshot import Snapshot

ROWS_SHOWN = 1000

_version = click.option("--version", "version", type=int, help="As of this version.")
_timestamp = click.option("--timestamp", help="As of this moment, ISO 8601 (UTC unless it says otherwise).")


@command
@click.argument("sql")
def query(common: Common, sql: str) -> None:
    """Run one SELECT; "-" reads it from standard input."""
    table = common.lake().sql(sys.stdin.read() if sql == "-" else sql)
    if common.as_json:
        show(_rows(table), as_json=True)
        return
    show(_rows(table.slice(0, ROWS_SHOWN)), as_json=False, columns=table.column_names)
    if len(table) > ROWS_SHOWN:
        click.echo(f"… {len(table)} rows in all; --json prints every one")


@command
def tables(common: Common) -> None:
    """List the tables, with their version, files, rows and bytes."""
    lake = common.lake()
    show([_summary(lake.table(name).snapshot()) for name in lake.tables()], as_json=common.as_json)


@command
@click.argument("table")
@_version
@_timestamp
def describe(common: Common, table: str, version: int | None, timestamp: str | None) -> None:
    """Show a table's columns, partitioning, properties and protocol."""
    snapshot = common.lake().table(table).snapshot(version, timestamp)
    columns = [{"column": f.name, "type": str(f.type), "nullable": f.nullable} for f in snapshot.schema]
    facts: dict[str, Any] = {
        **_summary(snapshot),
        "partition_by": [str(field) for field in snapshot.partition_spec.fields],
        "sort_by": list(snapshot.settings.sort_by),
        "protocol": snapshot.protocol.to_json(),
        "properties": dict(snapshot.properties),
    }
    if common.as_json:
        show_one({**facts, "columns": columns}, as_json=True)
        return
    show_one(facts, as_json=False)
    click.echo()
    show(columns, as_json=False)


@command
@click.argument("table")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="The newest so many.")
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
            }
            for entry in entries
        ],
        as_json=common.as_json,
    )


@command
@click.argument("table")
@_version
@_timestamp
def files(common: Common, table: str, version: int | None, timestamp: str | None) -> None:
    """List the data files of a table."""
    snapshot = common.lake().table(table).snapshot(version, timestamp)
    show(
        (
            {
                "path": file.path,
                "rows": file.live_records,
                "bytes": file.size,
                "partition": dict(file.partition_values) or file.tags.get("alluvia.partition", ""),
            }
            for file in snapshot.files
        ),
        as_json=common.as_json,
    )


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


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=1000):
        yield from batch.to_pylist()


COMMANDS = (query, tables, describe, history, files)
