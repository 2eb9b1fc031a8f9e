"""The command that erases rows, and proves it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.options import TABLE, Common, command
from alluvia.cli.output import show, size
from alluvia.cli.terminal import say, tell
from alluvia.errors import Invalid

if TYPE_CHECKING:
    from alluvia.lake import Lake, Table
    from alluvia.operations.erase_report import EraseReport, Proof

_FOUND_MAX = 20
_VERSIONED = (
    "The older versions were not searched. The bucket of a deployed stack keeps them for 7 days; elsewhere, delete "
    "them, or have a lifecycle rule expire them. --json lists them all."
)


@command
@click.argument("where", metavar="CONDITION")
@click.argument("tables", nargs=-1, type=TABLE)
@click.option("--prove", is_flag=True, help="Search every object afterwards, and exit 1 if anything is found.")
@click.option("--dry-run", is_flag=True, help="Only search, and remove nothing.")
@click.option("--release-tags", is_flag=True, help="Delete tags whose versions hold such rows; else it refuses.")
def erase(
    common: Common, where: str, tables: tuple[str, ...], *, prove: bool, dry_run: bool, release_tags: bool
) -> None:
    """Erase rows for good, such as "user_id = '42'": from all versions, the log, change files and rejects.

    From all tables with such columns by default. Versions of before can no longer be read. Run it again if it stops.
    """
    lake = common.lake()
    with common.progress("erasing"):
        chosen = _tables(lake, where, tables)
        reports = [
            (table.name, table.erase(where, prove=prove, dry_run=dry_run, release_tags=release_tags))
            for table in chosen
        ]
    if common.as_json:
        show((_row(name, report) for name, report in reports), as_json=True)
    else:
        for name, report in reports:
            _print(name, report, dry_run=dry_run)
        if any(each.proof is not None and each.proof.old_versions for _, report in reports for each in _with(report)):
            say(_VERSIONED)
    left = [name for name, report in reports if not report.ok or _refused(report) or report.rollups_failed]
    if left and not dry_run:
        tell(f"alluvia: something is left in {', '.join(left)}")
        sys.exit(1)


def _tables(lake: Lake, where: str, given: tuple[str, ...]) -> Iterator[Table]:
    """Yield the tables to erase from, rollups last. Raises `Invalid` where no table has the condition's columns."""
    from alluvia.expressions.condition import condition

    if given:
        yield from map(lake.table, given)
        return
    refused: Invalid | None = None
    known: list[Table] = []
    rollups: list[Table] = []
    for name in lake.tables():
        table = lake.table(name)
        try:
            condition(where, table.schema)
        except Invalid as error:
            refused = error
        else:
            (rollups if table.is_rollup else known).append(table)
    if not known and not rollups and refused is not None:
        raise refused
    yield from (*known, *rollups)


def _row(name: str, report: EraseReport) -> dict[str, Any]:
    return {"table": name, **dataclasses.asdict(report), "ok": report.ok}


def _refused(report: EraseReport) -> bool:
    """Whether the store refused to delete an object."""
    return any(each.not_deleted for each in _with(report))


def _with(report: EraseReport) -> list[EraseReport]:
    """Return a report and that of the rejects."""
    return [report] if report.rejects is None else [report, report.rejects]


def _print(name: str, report: EraseReport, *, dry_run: bool) -> None:
    if not dry_run:
        rows = "rows" if report.rows is None else _many(report.rows, "row")
        arrived = f", {report.rows_arrived:,} of which arrived meanwhile" if report.rows_arrived else ""
        say(f"{name}: erased {rows}{arrived}; the oldest version that can be read is {report.oldest_version}")
        gone = [_of_kind(number, kind) for kind, number in report.removed.items()]
        if report.commits_redacted:
            gone.append(f"what {_many(report.commits_redacted, 'commit')} showed")
        if gone:
            say(f"  removed: {', '.join(gone)}")
        for key in report.not_deleted:
            say(f"  not deleted, because the store refused it: {key}")
        for rollup, reason in report.rollups_failed.items():
            say(f"  rollup {rollup} was not refreshed: {reason}")
    if report.proof is not None:
        _print_proof(report.proof)
    if report.rejects is not None:
        _print(f"{name}._rejects", report.rejects, dry_run=dry_run)


def _print_proof(proof: Proof) -> None:
    for each in proof.searched:
        say(f"  searched {_of_kind(each.objects, each.kind)} ({size(each.bytes)})")
    _print_old_versions(proof)
    if proof.ok:
        say(f"  nothing found up to version {proof.version}")
        return
    say(f"  found in {_many(len(proof.found), 'object')}:")
    for trace in proof.found[:_FOUND_MAX]:
        until = "" if trace.until is None else f"; erase again after {trace.until:%Y-%m-%d %H:%M} UTC"
        say(f"    {trace.key}: {trace.why}{until}")
    if len(proof.found) > _FOUND_MAX:
        say(f"    and {len(proof.found) - _FOUND_MAX:,} more")


def _print_old_versions(proof: Proof) -> None:
    if proof.old_versions is None:
        say(f"  not known which older versions the bucket still keeps: {proof.unlisted}")
        return
    for each in proof.old_versions[:_FOUND_MAX]:
        say(f"  the bucket still keeps {each.key}, version {each.version_id} ({size(each.size)})")
    if len(proof.old_versions) > _FOUND_MAX:
        say(f"  and {_many(len(proof.old_versions) - _FOUND_MAX, 'older version')} more")


def _of_kind(number: int, kind: str) -> str:
    what, of, rest = kind.partition(" of ")
    return f"{number:,} {what.removesuffix('s') + of + rest if number == 1 else kind}"


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
