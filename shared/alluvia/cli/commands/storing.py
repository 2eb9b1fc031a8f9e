"""Commands that store events and rows: create, ingest, upload."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common
from alluvia.cli.errors import reason
from alluvia.cli.options import (
    CLUSTER_BY,
    CREATE,
    EVENTS_FORMAT,
    EXIST_OK,
    PARTITION_BY,
    PROPERTIES,
    SORT_BY,
    TABLE,
    command,
    names,
    pair,
    reading_options,
)
from alluvia.cli.terminal.terminal import tell
from alluvia.errors import AlluviaError, Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from alluvia.files.reading_options import ReadingOptions


@command
@click.argument("table", type=TABLE)
@names("--column", "columns", "A typed column, such as status:long.", "NAME:TYPE")
@names("--required", "required", "A declared column that every event must have.")
@click.option("--plain", is_flag=True, help="Only the declared columns: not an event table.")
@PARTITION_BY
@SORT_BY
@CLUSTER_BY
@PROPERTIES
@EXIST_OK
def create(
    common: Common, table: str, columns: tuple[str, ...], required: tuple[str, ...], *, plain: bool, **given: Any
) -> dict[str, Any]:
    """Create a table, for events unless --plain."""
    import pyarrow as pa

    schema = pa.schema([_field(text, required) for text in columns])
    known = {*schema.names}
    for name in required:
        if name not in known:
            raise Invalid(f"--required {name}: no --column has that name")
    lake = common.lake(new=True)
    layout = {name: value for name, value in given.items() if value != ()}
    made = (lake.create_table if plain else lake.create_events)(table, schema, **layout)
    snapshot = made.snapshot()
    return {"table": table, "version": snapshot.version, "columns": snapshot.schema.names}


@command
@click.argument("table", type=TABLE)
@click.argument("files", nargs=-1, required=True, type=click.Path(allow_dash=True))
@CREATE
@EVENTS_FORMAT
@reading_options
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help="Processes at once; by default several for large files, with 3 cores or more.",
)
def ingest(
    common: Common,
    table: str,
    files: tuple[str, ...],
    *,
    create: bool,
    kind: str | None,
    workers: int | None,
    reading: ReadingOptions,
) -> None:
    """Ingest files of events: NDJSON, JSON, CSV with a header row, Parquet; gzip and zstd ("-" is standard input).

    A file may be a pattern, such as "logs/**/*.gz". An event that cannot become a row is kept as a reject. The same
    files again add nothing within the table's window. Of several files, small ones are committed together, an empty one
    counts 0, and those that cannot be read are named at the end. Exits 1 if a file could not be read, or if every event
    was rejected.
    """
    from alluvia.cli.commands.files import found_files, ingest_files, processes, workers_for

    lake = common.lake(new=create)
    names = found_files(files, table)
    number = 1 if common.branch is not None else workers or workers_for(names)  # others would write to the lake
    typed = "-" in names and sys.stdin.isatty()  # progress would be drawn into what is being typed
    with ExitStack() as stack:
        store = stack.enter_context(processes(number, common.uri, table, common.endpoint_url)) if number > 1 else None
        if not typed:
            stack.enter_context(common.progress("ingesting"))
        reports, failures = ingest_files(lake, table, names, create=create, kind=kind, store=store, options=reading)
    common.show(reports)
    for failure in failures:
        tell(f"alluvia: {reason(failure)}")
    if len(names) > 1 and failures:
        tell(f"alluvia: {len(failures)} of {len(names)} files could not be read; the others are ingested")
    _tell_odd_times(table, reports)
    if any(report["rejected"] for report in reports):
        tell(f"the rejected events are kept, with reasons, in {table}._rejects")
        if not any(report["accepted"] for report in reports):
            tell("alluvia: no event was accepted")
            sys.exit(1)
    if failures:
        sys.exit(1)


@command
@click.argument("table", type=TABLE)
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--format", "asked", help="csv, tsv, ndjson or parquet; else the file's name or first bytes tell.")
@click.option("--schema", help='Types of columns, such as "sku:string,price:decimal(9,2)", or as JSON; else inferred.')
@click.option("--key", help="Identifies the upload of one file: the same key again adds nothing.")
@reading_options
@CREATE
@click.option("--evolve", is_flag=True, help="Add the columns that the table lacks.")
def upload(
    common: Common,
    table: str,
    files: tuple[str, ...],
    *,
    asked: str | None,
    schema: str | None,
    key: str | None,
    create: bool,
    evolve: bool,
    reading: ReadingOptions,
) -> list[dict[str, object]]:
    """Store files of rows: CSV and TSV with a header row, NDJSON, JSON, Parquet; gzip and zstd ("-" is standard input).

    A file is stored in one commit or not at all: an error names the row and column that do not fit, and no later file
    is stored. Like POST /v1/upload, without limits of size.
    """
    from alluvia.cli.commands.files import sent_file
    from alluvia.events.ingest.values import IngestOutcome
    from alluvia.files.uploads.schemas import declared_schema
    from alluvia.files.uploads.storing import Upload, store

    if key is not None and len(files) > 1:
        raise click.UsageError("--key stands for one file: upload each with a key of its own")
    lake = common.lake(new=create)
    declared = None if schema is None else declared_schema(schema)
    reports: list[dict[str, object]] = []
    why = None if create else "--no-create forbids to create it"
    for at, name in enumerate(files):
        try:
            file = sent_file(name, asked, reading)
            content = "" if key is None else file.digest()
            with common.progress(f"storing {name}"):
                done = store(lake.catalog, Upload(table, file, declared, key, content, why, evolve))
        except (AlluviaError, OSError) as error:
            if len(files) == 1:
                raise
            common.show(reports)
            common.tell_error(error, place=name)
            stored, left = ", ".join(files[:at]) or "no file", ", ".join(files[at + 1 :]) or "no file"
            tell(f"stored: {stored}; not tried: {left}")
            sys.exit(1)
        if isinstance(done, IngestOutcome):
            reports.append({"file": name, **done.said()})
            continue
        said = {"file": name, "rows": done.rows, "version": done.version, "repeated": done.repeated}
        for note in done.notes:
            tell(f"{name}: {note}")
        reports.append(said | ({"columns": dict(done.columns)} if done.columns else {}))
    _tell_odd_times(table, reports)
    return reports


_ODD_TIMES = {
    "unreadable_times": "a time that cannot be read, and got the time of arrival instead",
    "future_times": "a time more than a day after arrival",
}


def _tell_odd_times(table: str, reports: Sequence[Mapping[str, Any]]) -> None:
    """Say which times could not be read or are in the far future, with the first of each kind."""
    for kind, fault in _ODD_TIMES.items():
        found = [report[kind] for report in reports if kind in report]
        if found:
            count, first = sum(each["events"] for each in found), found[0]
            events = "1 event has" if count == 1 else f"{count} events have"
            sample = f"such as {first['field']} {first['value']!r}"
            tell(f"{events} {fault}, {sample}: the property alluvia.{kind[:-1]} of {table} decides")


def _field(text: str, required: tuple[str, ...]) -> pa.Field:
    import pyarrow as pa

    from alluvia.delta.schema.serialization import parse_type

    name, kind = pair(text, "--column", "NAME:TYPE")
    return pa.field(name, parse_type(kind), nullable=name not in required)
