"""Commands that maintain tables: optimize, checkpoint, expire, vacuum, rollup refresh."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common, show_each
from alluvia.cli.options import SPARK, TABLE, Duration, command, dry_run, lake_command
from alluvia.cli.spark import spark_execution, spark_upkeep
from alluvia.cli.terminal.output import size
from alluvia.cli.terminal.terminal import tell
from alluvia.errors import AlluviaError

if TYPE_CHECKING:
    from alluvia.api.lake import Lake, Table
    from alluvia.operations.retention.vacuum_plan import Kept


@command
@click.argument("tables", nargs=-1, type=TABLE)
@click.option("--target-size", type=click.IntRange(1), metavar="BYTES", help="Size of the files to make.")
@click.option("--full", is_flag=True, help="Also join a large file with a few small ones.")
@click.option(
    "--order", type=click.Choice(["smallest", "oldest", "newest"]), default="smallest", help="Which files come first."
)
@click.option(
    "--partition", multiple=True, metavar="FIELD=VALUE", help="Only this partition, such as day(ts)=2026-01-31."
)
@click.option("--max-files", type=click.IntRange(1), help="Rewrite at most this many files.")
@click.option("--max-bytes", type=click.IntRange(1), help="Rewrite at most this many bytes.")
@click.option("--when-due", is_flag=True, help="Do nothing until a merge saves 16 files, for frequent calls.")
@click.option("--backfill", is_flag=True, help="Move fields to columns that were added for them, in all files.")
@SPARK
@dry_run("Show what would be rewritten, and write nothing.")
def optimize(
    common: Common, tables: tuple[str, ...], partition: tuple[str, ...], *, spark: bool, dry_run: bool, **options: Any
) -> None:
    """Rewrite small files into bigger, sorted ones (all tables by default); checkpoint where it is due."""
    how = {"partition": dict(map(_partition, partition)) or None, "dry_run": dry_run, **options}

    def work(table: Table) -> dict[str, Any] | list[dict[str, Any]]:
        report = table.optimize(**how) if call is None else call("optimize", table.name, **how)
        if report.refused:
            tell(f"alluvia: table {table.name} is left as it is: {report.refused}")
        if dry_run:
            plan = [dataclasses.asdict(group) for group in report.plan]
            return [{"table": table.name, **group} for group in plan] or [{"table": table.name, "files": 0}]
        return {"table": table.name, **dataclasses.asdict(report)}

    with spark_upkeep(common, wanted=spark) as call:
        show_each(common, tables, work, columns=_PLAN_COLUMNS if dry_run else _OPTIMIZE_COLUMNS)


def _partition(text: str) -> tuple[str, str | None]:
    """Read `FIELD=VALUE`; without a value it is null."""
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--partition: expected FIELD=VALUE, got {text!r}")
    return name.strip(), value or None


@command
@click.argument("tables", nargs=-1, type=TABLE)
def checkpoint(common: Common, tables: tuple[str, ...]) -> None:
    """Write a checkpoint (of all tables by default)."""
    show_each(common, tables, lambda table: {"table": table.name, "version": table.checkpoint()})


@command
@click.argument("tables", nargs=-1, type=TABLE)
@dry_run("Show what would expire, and change nothing.")
def expire(common: Common, tables: tuple[str, ...], *, dry_run: bool) -> None:
    """Remove rows that are older than a table's alluvia.ttl (from all tables by default).

    Whole files are removed once all their rows are older; vacuum deletes them later. vacuum also expires rows first.
    """

    def work(table: Table) -> dict[str, Any]:
        report = table.expire(dry_run=dry_run)
        if common.as_json:
            return {"table": table.name, **dataclasses.asdict(report)}
        return {
            "table": table.name,
            "column": report.column,
            "before": report.before,
            "would_expire" if dry_run else "expired": len(report.files),
            "rows": report.rows,
            "size": size(report.bytes),
            "version": report.version,
        }

    show_each(common, tables, work)


@command
@click.argument("tables", nargs=-1, type=TABLE)
@click.option("--rebuild", is_flag=True, help="Compute TABLES anew, without what has expired in their sources.")
@SPARK
def rollup_refresh(common: Common, tables: tuple[str, ...], *, rebuild: bool, spark: bool) -> None:
    """Bring rollups up to date with their sources (all of them by default)."""
    if rebuild and not tables:
        raise click.UsageError("--rebuild: name the rollups to rebuild")
    from alluvia.pipelines.rollup_runs import refresh_rollup

    lake = common.lake()
    names = tables or tuple(lake.rollups())

    def work(table: Table) -> dict[str, Any]:
        if execution is None:
            report = table.refresh(rebuild=rebuild)
        else:
            report = refresh_rollup(lake.catalog, table.name, execution, rebuild=rebuild)
        return {"rollup": table.name, **dataclasses.asdict(report)}

    if names:
        with spark_execution(common, wanted=spark) as execution:
            show_each(common, names, work, lake=lake)


@command
@click.argument("tables", nargs=-1, type=TABLE)
@click.option(
    "--retention", type=Duration(), help="Keep what was removed less than this long ago, such as 7d or '1 hour'."
)
@SPARK
@dry_run("Show what would be deleted, and delete nothing.")
@click.option("--yes", is_flag=True, help="Do not ask where --retention is shorter than a table's own.")
def vacuum(
    common: Common, tables: tuple[str, ...], retention: timedelta | None, *, spark: bool, dry_run: bool, yes: bool
) -> None:
    """Delete what no retained version needs (of all tables by default), after rows have expired by alluvia.ttl.

    Asks first where --retention is shorter than a table's own (delta.deletedFileRetentionDuration, 7 days by default).
    """
    lake = common.lake()
    if retention is not None and not (dry_run or yes):
        _ask(lake, tables, retention)

    def work(table: Table) -> dict[str, Any]:
        expired = table.expire(dry_run=dry_run).files if lake.branch_name is None else ()
        run = table.vacuum if call is None else partial(call, "vacuum", table.name)
        report = run(retention, dry_run=dry_run)
        if common.as_json:
            return {"table": table.name, "expired": expired, **dataclasses.asdict(report)}
        row = {
            "table": table.name,
            "expired": len(expired),
            "data_files": len(report.data_files),
            "orphans": len(report.orphans),
            "log_files": len(report.log_files),
            "would_free" if dry_run else "freed": size(report.bytes_freed),
            "oldest_version": report.oldest_version,
        }
        if report.not_deleted:
            row["not_deleted"] = len(report.not_deleted)
        if dry_run:
            row["stays"] = "; ".join(_stays(each, report.oldest_version) for each in report.kept)
        return row

    if not tables:
        from alluvia.operations.results.jobs import clean_jobs
        from alluvia.operations.results.results import ResultLimits, clean_results
        from alluvia.operations.results.upload_parts import clean_uploads

        clean_jobs(lake.store, lake.clock, ResultLimits().age_ms_max, dry_run=dry_run)
        results = clean_results(lake.store, lake.clock, ResultLimits(), dry_run=dry_run)
        uploads = clean_uploads(lake.store, lake.clock, dry_run=dry_run)
        verb = "would be deleted" if dry_run else "deleted"
        for what, done in (("kept results of queries", results), ("parts of uploads", uploads)):
            if done.deleted:
                tell(f"{what}: {done.deleted} {verb}, {done.kept} stay")
    with spark_upkeep(common, wanted=spark) as call:
        show_each(common, tables, work, lake=lake)


def _stays(kept: Kept, oldest: int) -> str:
    """Say what stays, and why."""
    why = {
        "live": "in use",
        "claimed": "claimed by a transaction over several tables",
        "removed": f"removed, but needed by versions from {oldest} on",
        "young": "in no commit, but too young to delete",
        "changes": "change files",
        "log": f"log of versions from {oldest} on",
        "keepers": "needed by tags, clones or branches",
        "other": "no data files, such as the index of event ids",
    }[kept.reason]
    until = "" if kept.until is None else f", until {kept.until:%Y-%m-%d %H:%M} UTC at the latest"
    return f"{kept.objects} {why} ({size(kept.bytes)}{until})"


def _ask(lake: Lake, given: Sequence[str], retention: timedelta) -> None:
    """Have the user agree to lose versions that a table's own retention keeps. Fails where nobody can be asked."""
    shorter = []
    for name in given or lake.tables(rejects=True, dropped=True):
        try:
            own_ms = lake.catalog.handle(name).newest(dropped=True).settings.file_retention_ms
        except AlluviaError:  # which vacuum itself will tell
            continue
        if retention < timedelta(milliseconds=own_ms):
            shorter.append(f"{name}: {own_ms / 86_400_000:g} days")
    if not shorter:
        return
    more = f", and {len(shorter) - 3} more" if len(shorter) > 3 else ""
    what = f"--retention is shorter than the tables' own ({', '.join(shorter[:3])}{more}): older versions go for good."
    if not sys.stdin.isatty():
        msg = f"{what} Nothing was deleted: add --yes to go on, or --dry-run to see what would be deleted."
        raise click.UsageError(msg)
    click.confirm(f"{what} Queries that still read them will fail. Delete?", abort=True, err=True)


_PLAN_COLUMNS = ("table", "partition", "files", "bytes", "into_files", "into_bytes")
_OPTIMIZE_COLUMNS = (
    *("table", "files_before", "files_removed", "files_added", "files_after"),
    *("bytes_read", "bytes_written", "rows_folded", "conflicts", "version", "checkpoint_version"),
)


@lake_command
@click.argument("dest")
@click.option("--dest-endpoint-url", metavar="URL", help="The S3 endpoint of DEST, if not that of the lake.")
def backup(common: Common, dest: str, dest_endpoint_url: str | None) -> dict[str, Any]:
    """Copy all tables, as they are at one moment, to DEST, a path or s3:// URI, where they are a lake again.

    Writers go on meanwhile. Repeated, it copies what is new. It deletes no rows, and checks the copy at the end.
    """
    endpoint = dest_endpoint_url or common.endpoint_url
    options = {"endpoint_url": endpoint} if endpoint and dest.startswith("s3://") else {}
    with common.progress("backing up"):
        done = common.lake().backup(dest, **options)
    for each in done.left_out:
        tell(f"Note: table {each.table} is not in the copy: {each.why}")
    facts = dataclasses.asdict(done)
    return facts if common.as_json else {"backup": dest, **{k: v for k, v in facts.items() if k != "left_out"}}
