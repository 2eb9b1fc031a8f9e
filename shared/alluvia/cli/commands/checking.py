"""Commands that search all objects of tables, and report what they find: erase, verify."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common
from alluvia.cli.options import SPARK, TABLE, command, dry_run
from alluvia.cli.spark import spark_upkeep
from alluvia.cli.terminal.output import size
from alluvia.cli.terminal.terminal import say, tell
from alluvia.errors import AlluviaError, Invalid
from alluvia.progress import report as tell_progress
from alluvia.table_names import TABLE_OR_REJECTS

if TYPE_CHECKING:
    from alluvia.api.lake import Lake, Table
    from alluvia.operations.erasure.erase_report import EraseReport, Proof
    from alluvia.verify.report import VerifyReport

_FOUND_MAX = 20
_DROPPED = "dropped, so it is only searched: undrop it and erase, or run vacuum to delete its files"
_VERSIONED = (
    "The older versions were not searched. The bucket of a deployed stack keeps them for 7 days; elsewhere, delete "
    "them, or have a lifecycle rule expire them. --json lists them all."
)


@command
@click.argument("tables", nargs=-1, type=TABLE)
@click.option("--where", required=True, metavar="SQL", help="Which rows to erase, such as \"user_id = '42'\".")
@click.option("--prove", is_flag=True, help="Search every object afterwards, and exit 1 if anything is found.")
@dry_run("Only search, and remove nothing.")
@click.option("--release-tags", is_flag=True, help="Delete tags whose versions hold such rows, instead of refusing.")
@SPARK
def erase(
    common: Common, tables: tuple[str, ...], where: str, *, prove: bool, dry_run: bool, release_tags: bool, spark: bool
) -> None:
    """Erase rows of TABLES (all by default) for good: from all versions, the log, change files and rejects.

    In columns and in properties. Earlier versions can no longer be read. Exits 1 if
    something is left, or could not be judged. Run it again if it stops.
    """
    lake = common.lake()
    how: dict[str, Any] = {"where": where, "anywhere": not tables}
    how |= {"prove": prove, "dry_run": dry_run, "release_tags": release_tags}
    with spark_upkeep(common, wanted=spark) as call, common.progress("erasing"):

        def erase_one(table: Table) -> EraseReport:
            report: EraseReport = table.erase(**how) if call is None else call("erase", table.name, **how)
            return report

        run = _Run(lake, where, erase_one, dry_run=dry_run, named=bool(tables))
        run.erase(list(map(lake.table, tables)) if tables else _tables(lake, where))
        if not tables:
            run.look_at_dropped()
    reports = run.reports
    if common.as_json:
        common.show(_row(name, report) for name, report in reports)
    else:
        for name, report in reports:
            if not (dry_run and not tables and _has_nothing(report)):
                _print(name, report, dry_run=dry_run)
        if dry_run and not tables:
            say(_total([report for _, report in reports]))
        if any(each.proof is not None and each.proof.old_versions for _, report in reports for each in _with(report)):
            say(_VERSIONED)
    if reports and not run.failed and (unknown := set.intersection(*(set(each.unknown) for _, each in reports))):
        tell(f"alluvia: field {', '.join(sorted(unknown))} was not found: check the spelling")
    for name, reason in run.failed.items():
        tell(f"alluvia: {name} was not erased: {reason}")
    left = [name for name, report in reports if not report.ok or _refused(report) or report.rollups_failed]
    if left and not dry_run:
        tell(f"alluvia: something is left in {', '.join(left)}")
    if run.failed or (left and not dry_run):
        sys.exit(1)


class _Run:
    """Erases from tables one after another: one that refuses does not keep it from the others."""

    def __init__(
        self, lake: Lake, where: str, erase_one: Callable[[Table], EraseReport], *, dry_run: bool, named: bool
    ) -> None:
        self.reports: list[tuple[str, EraseReport]] = []
        self.failed: dict[str, str] = {}
        self._found: set[tuple[str, str]] = set()
        self._lake = lake
        self._where = where
        self._dry_run = dry_run
        self._named = named
        self._erase_one = erase_one

    def erase(self, tables: list[Table]) -> None:
        """Erase from tables. Those that refuse come again once: what their clones kept may be gone then."""
        refused = [table for table in tables if not self._erased(table, last=self._named)]
        for table in refused if len(refused) < len(tables) else ():
            self._erased(table, last=False)

    def _erased(self, table: Table, *, last: bool) -> bool:
        self.failed.pop(table.name, None)
        try:
            self.reports.append((table.name, self._once(self._erase_one(table))))
        except AlluviaError as error:
            if last:
                raise
            self.failed[table.name] = str(error)
            return False
        return True

    def _once(self, report: EraseReport) -> EraseReport:
        """Return a report without what the search of a table before has found outside of the tables."""
        from alluvia.operations.erasure.erase_report import OF_LAKE

        if report.proof is None:
            return report
        new = [each for each in report.proof.found if (each.key, each.why) not in self._found]
        self._found.update((each.key, each.why) for each in new if each.kind in OF_LAKE)
        return dataclasses.replace(report, proof=dataclasses.replace(report.proof, found=new))

    def look_at_dropped(self) -> None:
        """Search tables that were dropped, whose files are there until vacuum deletes them."""
        from alluvia.events.ingest.erasing import prove_erased

        for name in sorted(set(self._lake.tables(dropped=True)) - set(self._lake.tables())):
            try:
                report = self._once(
                    prove_erased(
                        self._lake.catalog, self._lake.catalog.handle(name), self._where, anywhere=True, dropped=True
                    )
                )
            except AlluviaError as error:
                self.failed[name] = str(error)
                continue
            if self._dry_run:
                self.reports.append((name, dataclasses.replace(report, rows=None)))
            elif not report.ok:
                self.failed[name] = (
                    "it was dropped, and its files still contain matching rows: undrop it and erase again, or run "
                    "vacuum to delete them"
                )


def _tables(lake: Lake, where: str) -> list[Table]:
    """Return all tables, rollups last. Raises `Invalid` where none can have the fields of the condition."""
    from alluvia.operations.erasure.erase_matching import matching_rows

    find = matching_rows(where)
    tables = [lake.table(name) for name in lake.tables()]
    refused: list[Invalid] = []
    for table in tables:
        try:
            find(table.snapshot())
        except Invalid as error:
            refused.append(error)
    if refused and len(refused) == len(tables):
        raise refused[-1]
    return sorted(tables, key=lambda table: table.is_rollup)


def _row(name: str, report: EraseReport) -> dict[str, Any]:
    return {"table": name, **dataclasses.asdict(report), "ok": report.ok}


def _refused(report: EraseReport) -> bool:
    """Whether the store refused to delete an object."""
    return any(each.not_deleted for each in _with(report))


def _with(report: EraseReport) -> list[EraseReport]:
    """Return a report and that of the rejects."""
    return [report] if report.rejects is None else [report, report.rejects]


def _has_nothing(report: EraseReport) -> bool:
    """Whether a table has nothing to erase, and nothing to say about it."""
    return not any(each.rows or each.unjudged or _has_traces(each.proof) for each in _with(report))


def _has_traces(proof: Proof | None) -> bool:
    return proof is not None and bool(proof.found or proof.old_versions or proof.old_versions is None)


def _total(reports: list[EraseReport]) -> str:
    each = [part for report in reports for part in _with(report) if part.rows]
    having = sum(any(part.rows for part in _with(report)) for report in reports)
    rows = sum(part.rows or 0 for part in each)
    return f"would erase {_many(rows, 'row')}, in {having:,} of {_many(len(reports), 'table')} that were searched"


def _print(name: str, report: EraseReport, *, dry_run: bool) -> None:
    if dry_run:
        say(f"{name}: " + (_DROPPED if report.rows is None else f"would erase {_many(report.rows, 'row')}"))
    else:
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
        for trace in report.unjudged:
            say(f"  {trace.key}: {trace.why}")
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


@command
@click.argument("table", type=TABLE)
@click.option("--full", is_flag=True, help="Read every row too, and compare it with the log.")
@SPARK
def verify(common: Common, table: str, *, full: bool, spark: bool) -> None:
    """Verify TABLE, and exit 1 if it is damaged. Nothing is written.

    TABLE is a table of the lake, or the path or URI of any Delta table. Without --full no data file is opened.
    """
    if spark and not (full and TABLE_OR_REJECTS.fullmatch(table)):
        raise click.UsageError("--spark reads the data files of a table of the lake: add --full, and name the table")
    with spark_upkeep(common, wanted=spark) as call, common.progress(f"verifying {table}"):
        if call is None:
            report = _opened(common, table).verify(full=full, progress=_tell)
        else:
            report = call("verify", table, progress=_tell)
    if common.as_json:
        common.show(_json_rows(report))
    else:
        _print_verified(report)
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


def _print_verified(report: VerifyReport) -> None:
    mode = "every row was read" if report.full else "no data file was opened; --full reads them"
    say(f"{report.table}: {_summary(report)} ({mode})")
    gaps = " with gaps" if "tombstone-file-missing" in report.found and report.oldest_version != report.version else ""
    oldest = "" if report.oldest_version is None else f", readable from version {report.oldest_version}{gaps}"
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

    counts = [(severity, report.count(severity)) for severity in Severity]
    told = [f"{n:,} damage" if s is Severity.DAMAGE else _many(n, s.value) for s, n in counts if n]
    return ", ".join(told) or "sound"
