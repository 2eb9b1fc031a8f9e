"""The public API: one table of a lake, with its maintenance and checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alluvia.api import api_hints
from alluvia.api.table_rows import TableRows, naming_views
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import Commit
from alluvia.delta.arguments import check_number
from alluvia.delta.log.actions import AddFile
from alluvia.errors import AlluviaError
from alluvia.operations.catalog.catalog import check_whole_lake
from alluvia.table_names import REJECTS

if TYPE_CHECKING:
    from alluvia.api.lake import Lake
    from alluvia.events.ingest import replay as replaying
    from alluvia.events.ingest import suggest as suggesting
    from alluvia.operations.compaction import optimize as optimizing
    from alluvia.operations.compaction.optimize_plan import FileGroup
    from alluvia.operations.erasure import erase_report
    from alluvia.operations.erasure.erase_work import EraseWork
    from alluvia.operations.reading import history
    from alluvia.operations.references.tags import Tag
    from alluvia.operations.retention import expire as expiring
    from alluvia.operations.retention import vacuum_report
    from alluvia.rollups import asking
    from alluvia.rollups import refresh as refreshing
    from alluvia.verify.report import VerifyReport
    from alluvia.verify.verification import Progress


@naming_views
class Table(TableRows):
    """One table of a lake. Methods that write return what they committed."""

    def __init__(self, lake: Lake, handle: TableHandle | None = None) -> None:
        if handle is None:
            raise TypeError("tables come from lake.table(name), and from alluvia.open_table(uri)")
        super().__init__(lake, handle)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise api_hints.no_attribute("Table", name, api_hints.TABLE, dir(type(self)))

    def commit_files(
        self, adds: Sequence[AddFile], txn: tuple[str, int] | None = None, age: timedelta | None = None
    ) -> Commit:
        """Commit data files that a `FileWriter` wrote for this table, only once per `txn`.

        `age` is the maximum age of the transaction; one hour by default.
        """
        from alluvia.operations.append import append

        age_ms_max = None if age is None else int(age / timedelta(milliseconds=1))
        return append.commit_files(self._handle, adds, txn, age_ms_max=age_ms_max)

    def suggest(self, sample: int = 10_000) -> list[suggesting.Suggestion]:
        """Return the fields of the newest events, rejected ones too, that have no column, with the types that fit.

        `evolve(add={each.field: each.type})` makes columns of them.
        """
        from alluvia.events.ingest import suggest
        from alluvia.events.sources.receiving import UnreadTimes

        return suggest.suggest(self.lake.catalog, self.name, sample, UnreadTimes(self.lake.store))

    def replay_rejects(
        self, where: str | None = None, values: Mapping[str, str] | None = None, *, dry_run: bool = False
    ) -> replaying.Replayed:
        """Ingest the table's rejected events again, each once, after you have changed the table or the source.

        where: an SQL condition on the columns of `<name>/_rejects`. values: fields to repair first, each with an SQL
        expression over the event's own fields, which are text: `{"amount": "replace(amount, ',', '.')::double"}`.
        Events that still do not fit stay there, and `staying` in the report has the reasons. With `dry_run`, nothing
        changes, and the report shows some of the rows. Raises `Invalid` for a condition or an expression that cannot be
        read, and `Conflict` if other writers keep changing the tables: a second call goes on with the rest.
        """
        from alluvia.events.ingest import replay
        from alluvia.events.sources.receiving import Rereader

        read = Rereader(self.lake.store).read
        return replay.replay(self.lake.catalog, self.name, read, where, values or {}, dry_run=dry_run)

    def final(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
    ) -> pa.Table:
        """Read rows as the table's merge query folds them, whatever has been merged already; arguments as for `scan`.

        Raises `Invalid` for a table without a merge query.
        """
        from alluvia.operations.merge_query import folding

        return folding.final(self._readable(version, timestamp, tag), self.lake.evaluation(), columns, where)

    def changes(
        self, from_version: int, to_version: int | None = None, *, expired: bool = False
    ) -> pa.RecordBatchReader:
        """Read the rows that versions inserted and deleted (both ends included), with change type, version and time.

        Rows that expired are left out; with `expired` they have the change type `expire`.
        """
        from alluvia.operations.changes import changes

        return changes.changes(self._handle, from_version, to_version, expired=expired)

    def history(self, limit: int | None = None) -> list[history.HistoryEntry]:
        """Return the commits in the log, newest first, and whether their versions can still be read."""
        from alluvia.operations.reading import history

        return history.history(self._handle, limit)

    def tag(
        self,
        name: str,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        *,
        expires: str | timedelta | None = None,
        replace: bool = False,
    ) -> Tag:
        """Give a version a name, the newest by default: it stays readable until `drop_tag`, whatever vacuum takes.

        `expires` says how long it is kept, as in `30d` or `12 hours`. With `replace`, a tag of that name now means
        this version. Raises `VersionNotFound`, `VersionExpired`, and `Invalid` for a name that is taken.
        """
        from alluvia.operations.references import tags

        return tags.tag_table(self._handle, name, version, timestamp, expires=expires, replace=replace)

    def drop_tag(self, name: str) -> None:
        """Delete a tag: vacuum may take its version. Raises `VersionNotFound` if there is none of that name."""
        from alluvia.operations.references import tags

        tags.drop_tag(self._handle.store, self._handle.name, name)

    def optimize(
        self,
        *,
        target_size: int | None = None,
        full: bool = False,
        order: str = "smallest",
        partition: Mapping[str, object] | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        backfill: bool = False,
        when_due: bool = False,
        memory_mb: int | None = None,
        dry_run: bool = False,
        go_on: Callable[[], bool] = lambda: True,
        turn: AbstractContextManager[object] | None = None,
        fits: Callable[[Sequence[FileGroup]], bool] = lambda _: True,
    ) -> optimizing.OptimizeReport:
        """Rewrite small files into larger, sorted ones, without changing data, and write a checkpoint if one is due.

        `order` is `smallest`, `oldest` or `newest` first. `partition` restricts it to some values of fields of
        `partition_by`, such as `{"country": "de", "day(ts)": "2026-01-31"}`. `max_files` and `max_bytes` limit what is
        read. `backfill` rewrites the files in which fields that became columns (`evolve(add=…)`) may still be in
        `properties`, and no others; after it was stopped, another call does the rest. `when_due` does nothing until a
        merge would save 16 files, so a program can call it after each append. A dry run only plans: see the
        report's `plan`. `go_on` is called before each group of files; when it returns false, the rest is left.
        `memory_mb` is how much memory this process may take in all, in MB; what does not fit is sorted on disk. `turn`
        is held while rows are rewritten, so that several tables share that limit. `fits` is called with all groups of
        files that are to be rewritten; when it returns false, they are left.
        """
        from alluvia.operations.compaction import optimize as optimizing

        return optimizing.optimize(
            self._handle,
            optimizing.OptimizeOptions(target_size, full, order, partition, max_files, max_bytes, backfill, when_due),
            memory_mb=memory_mb,
            dry_run=dry_run,
            go_on=go_on,
            turn=turn,
            fits=fits,
            evaluation=self.lake.evaluation,
        )

    def refresh(self, *, rebuild: bool = False, memory_mb: int | None = None) -> refreshing.RefreshReport:
        """Bring a rollup up to date with its source, exactly once for each version of the source.

        Groups that lost rows are computed again; new rows are added to theirs where all aggregates are count, sum, min,
        max, bool_and or bool_or. With `rebuild`, all groups are computed again: what has expired in the source is lost.
        Raises `Invalid` for a table that is not a rollup or has lost its source, and if the rollup can only be rebuilt
        but rows of its source have expired.
        """
        from alluvia.pipelines.execution import LocalExecution
        from alluvia.pipelines.rollup_runs import refresh_rollup

        check_number("memory_mb", memory_mb)
        execution = LocalExecution(self.lake.evaluation(memory_mb))
        return refresh_rollup(self.lake.catalog, self.name, execution, rebuild=rebuild)

    def freshness(self) -> asking.Freshness:
        """Return which version of its source a rollup shows, and how many it is behind. Raises `Invalid`."""
        from alluvia.rollups import asking

        return asking.freshness(self.lake.catalog, self._handle.snapshot())

    def expire(self, *, dry_run: bool = False) -> expiring.ExpireReport:
        """Remove the files whose rows are all older than `alluvia.ttl`; for rejects without one, that of their table.

        A dry run only says which. Removed files are deleted by vacuum, after the table's retention.
        """
        from alluvia.operations.retention import expire as expiring

        check_whole_lake(self.lake.store, "expire")  # published, expired rows would count as deleted
        parent, separator, _ = self._handle.name.partition(f"/{REJECTS}")
        return expiring.expire(
            self._handle, ttl_of=self.lake.catalog.handle(parent) if separator else None, dry_run=dry_run
        )

    def vacuum(
        self,
        retention: timedelta | None = None,
        *,
        dry_run: bool = False,
        time_limit: timedelta | None = None,
        names_max: int | None = None,
    ) -> vacuum_report.VacuumReport:
        """Delete what no version within the retention needs; a dry run says what would go, and why the rest stays.

        After `time_limit` it stops, and the next vacuum goes on. `names_max` limits the names of a kind in the report.
        """
        from alluvia.operations.retention import vacuum

        return vacuum.vacuum(self._handle, retention, dry_run=dry_run, time_limit=time_limit, names_max=names_max)

    def erase(
        self,
        where: str,
        *,
        prove: bool = False,
        dry_run: bool = False,
        release_tags: bool = False,
        anywhere: bool = False,
        work: EraseWork | None = None,
    ) -> erase_report.EraseReport:
        """Delete the rows that match, everything that still holds them, and what shows their values, rejects included.

        Files are rewritten, old ones deleted at once, and earlier versions can no longer be read. With `prove`, every
        object of the table is searched afterwards. A dry run only searches, and counts the `rows` that it would delete.
        A rollup is refreshed first, and rollups of the table once the rows are deleted. The condition may name columns
        by any name that they have had, and fields that are in `properties`; with `anywhere` also fields that the table
        has no place for, which earlier versions may have had. What could not be judged is in `unjudged`, and `ok` is
        false then. If it fails or stops, call it again. Tags whose versions hold such rows are deleted with
        `release_tags`. `work` reads and rewrites files in place of this process, as for Spark. Raises `Invalid` for an
        append-only table, and, before anything is changed, for such tags without it, and clones and branches that hold
        such rows.
        """
        from alluvia.events.ingest import erasing

        check_whole_lake(self.lake.store, "erase")
        if dry_run:
            return erasing.prove_erased(
                self.lake.catalog, self._handle, where, anywhere=anywhere, counts=True, work=work
            )
        if self.is_rollup:
            self.refresh()
        failed: dict[str, str] = {}

        def refresh_rollups() -> None:
            for name in self.lake.rollups(self._handle.name, nested=True):
                try:
                    self.lake.table(name).refresh()
                except AlluviaError as error:  # which must not keep the rows from being erased
                    failed[name] = str(error)

        report = erasing.erase_rows(
            self.lake.catalog,
            self._handle,
            where,
            proof=prove,
            before_removal=refresh_rollups,
            release_tags=release_tags,
            anywhere=anywhere,
            work=work,
        )
        return replace(report, rollups_failed=failed)

    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version, and return that version."""
        from alluvia.operations import checkpointing as checkpoints

        self._handle.newest()
        return checkpoints.checkpoint(self._handle)

    def verify(self, *, full: bool = False, progress: Progress | None = None) -> VerifyReport:
        """Check the table for damage and report everything found; `full` reads every row. Writes nothing.

        `progress` is called with what is being read (`log` or `files`), how much is done, and the total. Damage is
        reported, not raised. Raises `Unsupported` for a table with a feature that this library cannot read.
        """
        from alluvia.verify import verification as verify

        return verify.verify(self._handle, full=full, progress=progress)


Table.optimize.__dict__.update(compact=api_hints.compact, z_order=api_hints.compact)
