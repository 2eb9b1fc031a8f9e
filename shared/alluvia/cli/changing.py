"""Commands that change rows which are there: delete, update, upsert, restore."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import orjson
import pyarrow as pa

from alluvia.cli.options import TABLE, Common, command
from alluvia.cli.output import show_one
from alluvia.errors import Invalid
from alluvia.lake import Table

FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".ndjson": "json", ".jsonl": "json"}


@command
@click.argument("table", type=TABLE)
@click.option("--where", required=True, metavar="SQL", help="Which rows go, such as \"ip = '1.2.3.4'\".")
def delete(common: Common, table: str, where: str) -> None:
    """Delete the rows for which a condition holds."""
    show_one(common.lake().table(table).delete(where), as_json=common.as_json)


@command
@click.argument("table", type=TABLE)
@click.option("--set", "values", multiple=True, required=True, metavar="NAME=SQL", help="A column's new value.")
@click.option("--where", metavar="SQL", help="Which rows change.")
@click.option("--all", "every", is_flag=True, help="All rows change.")
def update(common: Common, table: str, values: tuple[str, ...], where: str | None, *, every: bool) -> None:
    """Set columns of the rows for which a condition holds."""
    if (where is None) is not every:
        msg = "give --where with a condition, or --all"
        raise Invalid(msg)
    given: dict[str, str] = {}
    for text in values:
        name, found, value = text.partition("=")
        if not found or not name.strip() or name.strip() in given:
            msg = f"--set {text!r}: write it as NAME=SQL, each name once"
            raise Invalid(msg)
        given[name.strip()] = value
    show_one(common.lake().table(table).update(given, where), as_json=common.as_json)


@command
@click.argument("table", type=TABLE)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--on", multiple=True, required=True, metavar="NAME", help="A key column.")
@click.option("--matched", default="update", show_default=True, help="update, delete or ignore.")
@click.option("--column", "columns", multiple=True, metavar="NAME", help="A column that an update sets; else all.")
@click.option("--when", metavar="SQL", help="Which matching rows change; new.NAME is the new row's column.")
@click.option("--delete-when", metavar="SQL", help="Which matching rows are deleted.")
@click.option("--unmatched", help="insert or ignore.  [default: insert, unless matching rows are deleted]")
@click.option("--insert-when", metavar="SQL", help="Which new rows are inserted.")
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
    """Put the rows of a file into a table by key (NDJSON, CSV or Parquet; "-" is NDJSON from standard input)."""
    target = common.lake().table(table)
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
def restore(common: Common, table: str, version: int | None, timestamp: str | None) -> None:
    """Make a table what it was, without rewriting data."""
    show_one(common.lake().table(table).restore(version, timestamp), as_json=common.as_json)


def read_rows(table: Table, name: str) -> pa.Table:
    """Read a file's rows, with the table's types for the columns that it has. Raises `Invalid`, naming the file."""
    kind = "json" if name == "-" else FORMATS.get(Path(name).suffix.lower())
    if kind is None:
        msg = f"{name}: expected a file that ends in {', '.join(FORMATS)}"
        raise Invalid(msg)
    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    schema = table.snapshot().schema
    try:
        rows = _read(data, kind, pa.schema([field.with_nullable(True) for field in schema]))
    except (pa.ArrowException, orjson.JSONDecodeError) as error:
        msg = f"{name} cannot be read as {kind}: {error}"
        raise Invalid(msg) from error
    names = rows.column_names
    repeated = next((each for at, each in enumerate(names) if each in names[:at]), None)
    if repeated is not None:
        msg = f"{name} has the column {repeated} more than once: leave one of them"
        raise Invalid(msg)
    return rows


def _read(data: bytes, kind: str, schema: pa.Schema) -> pa.Table:
    if kind == "parquet":
        import pyarrow.parquet as pq

        return pq.read_table(pa.BufferReader(data))
    if kind == "csv":
        from pyarrow import csv

        convert = csv.ConvertOptions(column_types=schema, strings_can_be_null=True, quoted_strings_can_be_null=False)
        return csv.read_csv(pa.BufferReader(data), convert_options=convert)
    from pyarrow import json

    # A column that no line has must not come as nulls, which would set it.
    named = {name for line in data.splitlines() if line.strip() for name in _names(line)}
    known = pa.schema([field for field in schema if field.name in named])
    parse = json.ParseOptions(explicit_schema=known, unexpected_field_behavior="infer")
    return json.read_json(pa.BufferReader(data), parse_options=parse) if named else known.empty_table()


def _names(line: bytes) -> list[str]:
    found = orjson.loads(line)
    if not isinstance(found, dict):
        raise pa.ArrowInvalid(f"a line holds no JSON object: {line[:40]!r}")
    return list(found)


COMMANDS = (delete, update, upsert, restore)
