"""Commands that store events: create, ingest, backfill."""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from alluvia.cli.failing import reason
from alluvia.cli.options import TABLE, Common, command, pair
from alluvia.cli.terminal.output import show, show_one
from alluvia.cli.terminal.terminal import tell
from alluvia.errors import Invalid

if TYPE_CHECKING:
    import pyarrow as pa

    from alluvia_spark.sources.files import SourceOptions


@command
@click.argument("table", type=TABLE)
@click.option("--column", "columns", multiple=True, metavar="NAME:TYPE", help="A typed column, such as status:long.")
@click.option("--required", multiple=True, metavar="NAME", help="A declared column that every event must have.")
@click.option("--plain", is_flag=True, help="Only the declared columns: not an event table.")
@click.option("--partition-by", multiple=True, metavar="FIELD", help="A column, or year|month|day|hour(column).")
@click.option("--sort-by", multiple=True, metavar="NAME", help="A column that files are sorted by.")
@click.option("--cluster-by", multiple=True, metavar="NAME", help="One of up to 4 columns that files are clustered by.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="A table property.")
@click.option("--exist-ok", is_flag=True, help="Do nothing if the table exists.")
def create(
    common: Common,
    table: str,
    columns: tuple[str, ...],
    required: tuple[str, ...],
    plain: bool,
    partition_by: tuple[str, ...],
    sort_by: tuple[str, ...],
    cluster_by: tuple[str, ...],
    properties: tuple[str, ...],
    exist_ok: bool,
) -> None:
    """Create a table, for events unless --plain."""
    import pyarrow as pa

    schema = pa.schema([_field(text, required) for text in columns])
    for name in required:
        if name not in schema.names:
            raise Invalid(f"--required {name}: no --column has that name")
    given = dict(pair(text, "--property", "=") for text in properties)
    lake = common.lake(new=True)
    if plain:
        created = lake.create_table(
            table, schema, partition_by, sort_by, given, cluster_by=cluster_by, exist_ok=exist_ok
        )
    else:
        created = lake.create_events(
            table,
            schema,
            partition_by=partition_by or ("day(ts)",),
            sort_by=sort_by or None,
            cluster_by=cluster_by,
            properties=given,
            exist_ok=exist_ok,
        )
    snapshot = created.snapshot()
    show_one({"table": table, "version": snapshot.version, "columns": snapshot.schema.names}, as_json=common.as_json)


@command
@click.argument("table", type=TABLE)
@click.argument("files", nargs=-1, required=True, type=click.Path(allow_dash=True))
@click.option("--create/--no-create", default=True, show_default=True, help="Create the table if it does not exist.")
@click.option(
    "--format", "kind", type=click.Choice(["json", "csv", "parquet"]), help="How the files are read; else they tell."
)
@click.option("--workers", type=click.IntRange(1, 64), help="Processes at once; by default several for large files.")
def ingest(
    common: Common, table: str, files: tuple[str, ...], *, create: bool, kind: str | None, workers: int | None
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
        reports, failures = ingest_files(lake, table, names, create=create, kind=kind, store=store)
    show(reports, as_json=common.as_json)
    for failure in failures:
        tell(f"alluvia: {reason(failure)}")
    if len(names) > 1 and failures:
        tell(f"alluvia: {len(failures)} of {len(names)} files could not be read; the others are ingested")
    if any(report["rejected"] for report in reports):
        tell(f"the rejected events are kept, with reasons, in {table}._rejects")
        if not any(report["accepted"] for report in reports):
            tell("alluvia: no event was accepted")
            sys.exit(1)
    if failures:
        sys.exit(1)


@command
@click.argument("table", type=TABLE)
@click.argument("source")
@click.option("--job-id", help="Names the job; running it again adds no row twice.")
@click.option("--create/--no-create", default=True, show_default=True, help="Create the table if it does not exist.")
@click.option(
    "--format", "kind", type=click.Choice(["json", "csv", "parquet"]), help="How all files are read; else they tell."
)
@click.option("--hive", is_flag=True, help="Take fields from folders such as dt=2024-01-01, for events without them.")
@click.option("--manifest", is_flag=True, help="SOURCE is a list of files: an S3 Inventory, URIs, or CSV.")
@click.option(
    "--on-bad-file",
    type=click.Choice(["fail", "reject"]),
    default="fail",
    show_default=True,
    help="What becomes of a missing or damaged file: the job fails, or the file is a reject.",
)
@click.option("--dry-run", is_flag=True, help="Estimate rows, files, time and price from samples; change nothing.")
@click.option("--verify", is_flag=True, help="List a past job's lines that were stored neither as rows nor as rejects.")
@click.option("--at-version", type=click.IntRange(0), help="With --verify: the version of the table to look in.")
@click.option("--repair-of", metavar="JOB-ID", help="Load the lines that a past job of the source lost, as a new job.")
def backfill(
    common: Common,
    table: str,
    source: str,
    job_id: str | None,
    *,
    create: bool,
    kind: str | None,
    hive: bool,
    manifest: bool,
    on_bad_file: str,
    dry_run: bool,
    verify: bool,
    at_version: int | None,
    repair_of: str | None,
) -> None:
    """Load files of events by Spark on this machine, in one commit: NDJSON, JSON, CSV, Parquet; gzip and zstd.

    SOURCE is a file, a folder, a pattern such as "s3://logs/2024-*/**/*.{gz,zst}", or a list of files, local or on S3.
    """
    from alluvia.events.ingest.tables import find_events
    from alluvia_spark.backfill import run
    from alluvia_spark.sources.files import SourceOptions
    from alluvia_spark.sources.source import list_files

    if sum((dry_run, verify, repair_of is not None)) > 1:
        raise click.UsageError("give only one of --dry-run, --verify and --repair-of")
    if at_version is not None and not verify:
        raise click.UsageError("--at-version needs --verify")
    reading = SourceOptions(is_list=manifest, format=kind, hive=hive, on_bad_file=on_bad_file)
    options = {"endpoint_url": common.endpoint_url} if common.endpoint_url else {}
    if dry_run:
        from alluvia_spark.backfill_job.estimate import estimate

        found = estimate(common.uri, table, source, reading=reading, options=options)
        show_one(found, as_json=common.as_json)
        if found.jobs > 1:
            tell(
                f"divide the source among {found.jobs} jobs: the disks of an application as the stack has it do not "
                "hold what one job writes meanwhile"
            )
        return
    if verify:
        _verify_backfill(common, table, source, job_id, reading, at_version)
        return
    if repair_of is not None:
        create, job_id = False, job_id or f"{repair_of}.repair"
    lake = common.lake(new=create)
    if create and find_events(lake, table) is None:
        next(list_files(source, lake.clock, reading, **options))  # raises if no file matches, before a table is made
        lake.create_events(table, exist_ok=True)
    with common.progress(f"loading {source}"):
        report = run(common.uri, table, source, job_id, reading=reading, repair_of=repair_of, options=options)
    show_one(report, as_json=common.as_json)


def _verify_backfill(
    common: Common, table: str, source: str, job_id: str | None, reading: SourceOptions, version: int | None
) -> None:
    """Print the lines of a job that are nowhere; exit with 1 if there are some."""
    from alluvia_spark.checking import verify

    options = {"endpoint_url": common.endpoint_url} if common.endpoint_url else {}
    with common.progress(f"verifying {source}"):
        found = verify(common.uri, table, source, job_id, reading=reading, version=version, options=options)
    lines = [{**line._asdict(), "raw": line.raw.decode(errors="replace")} for line in found.listed]
    show(lines, as_json=common.as_json)
    tell(
        f"{found.missing} of {found.lines} lines of job {found.job_id} were stored neither as rows of {table}, "
        f"version {found.version}, nor as rejects" + (f"; the first {len(lines)} are listed" if lines else "")
    )
    if found.missing:
        tell(
            "rows that were deleted since count as missing (--at-version looks in an earlier version); load the others "
            f"with `alluvia backfill {table} {shlex.quote(source)} --repair-of {found.job_id}`"
        )
        sys.exit(1)


def _field(text: str, required: tuple[str, ...]) -> pa.Field:
    import pyarrow as pa

    from alluvia.delta.schema.serialization import parse_type

    name, kind = pair(text, "--column", ":")
    return pa.field(name, parse_type(kind), nullable=name not in required)
