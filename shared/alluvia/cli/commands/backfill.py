"""The command that loads files of events by Spark."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common
from alluvia.cli.options import CREATE, EVENTS_FORMAT, TABLE, dry_run, lake_command
from alluvia.cli.terminal.terminal import tell

if TYPE_CHECKING:
    from alluvia_spark.sources.files import SourceOptions


@lake_command
@click.argument("table", type=TABLE)
@click.argument("source")
@click.option("--job-id", help="Names the job; running it again adds no row twice.")
@CREATE
@EVENTS_FORMAT
@click.option("--hive", is_flag=True, help="Take fields from folders such as dt=2024-01-01, for events without them.")
@click.option("--manifest", "is_list", is_flag=True, help="SOURCE is a list of files: an S3 Inventory, URIs, or CSV.")
@click.option(
    "--on-bad-file",
    type=click.Choice(["fail", "reject"]),
    default="fail",
    show_default=True,
    help="A missing or damaged file fails the job, or becomes a reject.",
)
@dry_run("Estimate rows, files, time and price from samples; change nothing.")
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
    dry_run: bool,
    verify: bool,
    at_version: int | None,
    repair_of: str | None,
    kind: str | None,
    **how: Any,
) -> Any:
    """Load files of events by Spark on this machine, in one commit: NDJSON, JSON, CSV, Parquet; gzip and zstd.

    SOURCE is a file, a folder, a pattern such as "s3://logs/2024-*/**/*.{gz,zst}", or a list of files, local or on S3.
    """
    from alluvia.events.ingest.event_tables import find_events
    from alluvia_spark.backfill import run
    from alluvia_spark.sources.files import SourceOptions
    from alluvia_spark.sources.source import list_files

    if sum((dry_run, verify, repair_of is not None)) > 1:
        raise click.UsageError("give only one of --dry-run, --verify and --repair-of")
    if at_version is not None and not verify:
        raise click.UsageError("--at-version needs --verify")
    reading = SourceOptions(format=kind, **how)
    options = common.store_options
    if dry_run:
        from alluvia_spark.backfill_job.estimate import estimate

        needed = estimate(common.uri, table, source, reading=reading, options=options)
        common.show(needed)
        if needed.jobs > 1:
            tell(
                f"divide the source among {needed.jobs} jobs: the disks of an application of the stack do not hold "
                "what one job writes meanwhile"
            )
        return None
    if verify:
        return _verify_backfill(common, table, source, job_id, reading, at_version)
    if repair_of is not None:
        create, job_id = False, job_id or f"{repair_of}.repair"
    lake = common.lake(new=create)
    if create and find_events(lake.catalog, table) is None:
        next(list_files(source, lake.clock, reading, **options))  # raises if no file matches, before a table is made
        lake.create_events(table, exist_ok=True)
    with common.progress(f"loading {source}"):
        report = run(common.uri, table, source, job_id, reading=reading, repair_of=repair_of, options=options)
    return report.said()


def _verify_backfill(
    common: Common, table: str, source: str, job_id: str | None, reading: SourceOptions, version: int | None
) -> None:
    """Print the lines of a job that were not stored; exit with 1 if there are any."""
    from alluvia_spark.checking import verify

    with common.progress(f"verifying {source}"):
        options = common.store_options
        check = verify(common.uri, table, source, job_id, reading=reading, version=version, options=options)
    lines = [{**line._asdict(), "raw": line.raw.decode(errors="replace")} for line in check.listed]
    common.show(lines)
    tell(
        f"{check.missing} of {check.lines} lines of job {check.job_id} were stored neither as rows of {table}, "
        f"version {check.version}, nor as rejects" + (f"; the first {len(lines)} are listed" if lines else "")
    )
    if check.missing:
        tell(
            "rows that were deleted since count as missing (--at-version looks in an earlier version); load the others "
            f"with `alluvia backfill {table} {shlex.quote(source)} --repair-of {check.job_id}`"
        )
        sys.exit(1)
