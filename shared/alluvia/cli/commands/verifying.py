"""The command that verifies a table."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.options import TABLE, Common, command
from alluvia.cli.terminal.output import show, size
from alluvia.cli.terminal.terminal import say, tell
from alluvia.progress import report as tell_progress
from alluvia.table_names import TABLE_OR_REJECTS

if TYPE_CHECKING:
    from alluvia.api.lake import Table
    from alluvia.verify.report import VerifyReport


@command
@click.argument("table", type=TABLE)
@click.option("--full", is_flag=True, help="Read every row too, and compare it with the log.")
def verify(common: Common, table: str, *, full: bool) -> None:
    """Verify TABLE, and exit 1 if it is damaged. Nothing is written.

    TABLE is a table of the lake, or the path or URI of any Delta table. Without --full no data file is opened.
    """
    with common.progress(f"verifying {table}"):
        report = _opened(common, table).verify(full=full, progress=_tell)
    if common.as_json:
        show(_json_rows(report), as_json=True)
    else:
        _print(report)
    if not report.ok:
        tell(f"alluvia: table {report.table} is damaged: {_summary(report)}")
        sys.exit(1)


def _opened(common: Common, table: str) -> Table:
    if TABLE_OR_REJECTS.fullmatch(table):
        return common.lake().table(table)
    return common.table_at(table)


def _tell(what: str, done: int, total: int) -> None:
    tell_progress(f"reading the {what}", done, total, "files")


def _json_rows(report: VerifyReport) -> Iterator[dict[str, Any]]:
    """Yield an object for each finding, then one for the result, which has `ok`."""
    from alluvia.verify.report import Severity

    for finding in report.findings:
        yield {"table": report.table, **_fields(finding), "severity": finding.severity.value}
    facts = {name: value for name, value in _fields(report).items() if name != "findings"}
    counts = {f"{severity.value}s": report.count(severity) for severity in Severity}
    yield {**facts, "ok": report.ok, **counts}


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _print(report: VerifyReport) -> None:
    mode = "every row was read" if report.full else "no data file was opened; --full reads them"
    say(f"{report.table}: {_summary(report)} ({mode})")
    oldest = "" if report.oldest_version is None else f", readable from version {report.oldest_version}"
    rows = "" if report.rows is None else f", {_many(report.rows, 'row')}"
    version = "no version" if report.version is None else f"version {report.version}"
    log = f"{_many(report.versions, 'commit')} and {_many(report.checkpoints, 'checkpoint')} in the log"
    say(f"  {version}{oldest}; {log}")
    say(f"  {_many(report.files, 'data file')}{rows}, {size(report.bytes)}")
    say(f"  {_many(report.orphans, 'orphan')}, {size(report.orphan_bytes)}")
    if not report.findings:
        return
    say("")
    shown: dict[str, int] = {}
    for finding in report.findings:
        shown[finding.kind] = shown.get(finding.kind, 0) + 1
        say(f"{finding.severity.value:<7}  {finding.kind}: {' '.join(finding.message.split())}")
    for kind, count in report.found.items():
        if count > shown.get(kind, 0):
            say(f"         {kind}: {count - shown.get(kind, 0):,} more")


def _summary(report: VerifyReport) -> str:
    from alluvia.verify.report import Severity

    found = [(severity, report.count(severity)) for severity in Severity]
    told = [f"{n:,} damage" if s is Severity.DAMAGE else _many(n, s.value) for s, n in found if n]
    return ", ".join(told) or "sound"


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
