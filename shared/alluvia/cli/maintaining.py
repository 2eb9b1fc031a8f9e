"""Commands that look after tables: merge, checkpoint, vacuum."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from datetime import timedelta

import click

from alluvia.cli.options import Common, command
from alluvia.cli.output import show, size
from alluvia.lake import Lake

_DURATION = re.compile(r"(\d+)\s*(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Duration(click.ParamType[timedelta]):
    """A duration such as 90s, 30m, 12h or 7d."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read it, or fail as wrong usage."""
        match = _DURATION.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no duration; write for example 90s, 30m, 12h or 7d", param, ctx)
        return timedelta(**{_UNITS[match[2]]: int(match[1])})


@command
@click.argument("tables", nargs=-1)
@click.option("--target-size", type=click.IntRange(1), metavar="BYTES", help="Size of the files to make.")
@click.option("--full", is_flag=True, help="Merge whatever fits, also a big file with a few small ones.")
def merge(common: Common, tables: tuple[str, ...], target_size: int | None, *, full: bool) -> None:
    """Rewrite small files into bigger, sorted ones (all tables by default); checkpoint where it is due."""
    lake = common.lake()
    rows = []
    for name in _names(lake, tables):
        report = lake.table(name).merge(target_size=target_size, full=full)
        rows.append({"table": name, **dataclasses.asdict(report)})
    show(rows, as_json=common.as_json, columns=None if common.as_json else _MERGE_COLUMNS)


@command
@click.argument("tables", nargs=-1)
def checkpoint(common: Common, tables: tuple[str, ...]) -> None:
    """Write a checkpoint (of all tables by default)."""
    lake = common.lake()
    rows = [{"table": name, "version": lake.table(name).checkpoint()} for name in _names(lake, tables)]
    show(rows, as_json=common.as_json)


@command
@click.argument("tables", nargs=-1)
@click.option("--retention", type=Duration(), help="Keep what was removed later than this ago, such as 7d or 12h.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
def vacuum(common: Common, tables: tuple[str, ...], retention: timedelta | None, *, dry_run: bool) -> None:
    """Delete what no retained version needs (of all tables by default)."""
    lake = common.lake()
    rows = []
    for name in tables or lake.tables(rejects=True, dropped=True):
        report = lake.table(name).vacuum(retention, dry_run=dry_run)
        if common.as_json:
            rows.append({"table": name, **dataclasses.asdict(report)})
            continue
        rows.append(
            {
                "table": name,
                "data_files": len(report.data_files),
                "orphans": len(report.orphans),
                "log_files": len(report.log_files),
                "would_free" if dry_run else "freed": size(report.bytes_freed),
                "oldest_version": report.oldest_version,
            }
        )
    show(rows, as_json=common.as_json)


_MERGE_COLUMNS = (
    *("table", "files_before", "files_merged", "files_written", "files_after"),
    *("bytes_read", "bytes_written", "conflicts", "version", "checkpoint_version"),
)


def _names(lake: Lake, given: Sequence[str]) -> Sequence[str]:
    return given or lake.tables(rejects=True)


COMMANDS = (merge, checkpoint, vacuum)
