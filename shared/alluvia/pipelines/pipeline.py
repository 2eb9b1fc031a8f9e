"""A pipeline: the tables that are declared together, planned and run in their order."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence

import orjson

from alluvia.clock import datetime_of
from alluvia.errors import AlluviaError, Invalid
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.reading.history import history
from alluvia.operations.reading.relations import Evaluate
from alluvia.pipelines.declarations.declaration import Declaration
from alluvia.pipelines.execution import Execution, LocalExecution
from alluvia.pipelines.graph import selected, upstream_of
from alluvia.pipelines.marks import read_failure, read_marks
from alluvia.pipelines.planning import MODES, NOTHING
from alluvia.pipelines.running import TableRun, run_table
from alluvia.pipelines.table_planner import Planner
from alluvia.pipelines.tables import OPERATION
from alluvia.pipelines.unit_tests import DeclarationTest, DeclarationTestResult, Scratch, run_test
from alluvia.rollups.change import PROGRESS, progress_of
from alluvia.table_names import sql_name

REFUSED, FAILED, SKIPPED = "refused", "failed", "skipped"
COMMITS_LOOKED_AT = 20
"""Of a table, for its last run: merges may have come since."""


class Pipeline:
    """The declared tables of a folder, each after those that it reads."""

    def __init__(
        self,
        catalog: WritableCatalog,
        evaluation: Callable[[], Evaluate],
        declarations: Sequence[Declaration],
        tests: Sequence[DeclarationTest] = (),
        scratch: Scratch | None = None,
    ) -> None:
        self.declarations = tuple(declarations)
        self.tests = tuple(tests)
        self._catalog = catalog
        self._evaluation = evaluation
        self._scratch = scratch

    def plan(self, select: Sequence[str] = (), *, full_refresh: bool = False) -> list[dict[str, object]]:
        """Return what a run would do now, a row for each table, from the log alone.

        Rows have `table`, `kind`, `mode` (`nothing`, `appended`, `changed`, `rebuilt` or `refused`), `why`, `sources`
        with the versions that it goes from and to, and at most `files`, `rows`, `bytes`, `requests` and `dollars` that
        it reads, and the `engine` that can: `duckdb` in a function, or `spark`, with the reason in `engine_why`.
        `on_spark` says how tasks would share the work on all rows. `after` names tables of the pipeline that run
        before, and so change what it reads: that cost is not known, and None. A refused table has the reason in `why`.
        """
        planner = Planner(self._catalog, self._evaluation())
        running: set[str] = set()
        above = upstream_of(self.declarations)
        rows: list[dict[str, object]] = []
        wanted = {each.target for each in selected(self.declarations, select)}
        for each in self.declarations:
            try:
                plan = planner.plan(each, full_refresh=full_refresh and each.target in wanted)
            except AlluviaError as error:
                row: dict[str, object] = {"table": sql_name(each.target), "mode": REFUSED, "why": str(error)}
            else:
                row = plan.to_row()
            if each.target in wanted:
                after = sorted(sql_name(name) for name in above[each.target] & running)
                if after and (row["mode"] == NOTHING or not row.get("sources")):
                    mode = MODES[str(row["kind"])] if row["mode"] == NOTHING else row["mode"]
                    row |= {"mode": mode, "why": f"after {' and '.join(after)}"}
                    row |= dict.fromkeys(("files", "rows", "bytes", "requests", "dollars"))
                rows.append({**row, "after": after})
                if row["mode"] != NOTHING:
                    running.add(each.target)
        return rows

    def run(
        self, select: Sequence[str] = (), *, full_refresh: bool = False, execution: Execution | None = None
    ) -> list[TableRun]:
        """Bring tables to their sources' newest versions, each in one commit, and return what was done, in order.

        With `full_refresh`, all rows of the selected tables are computed again. A table that fails does not stop the
        others: it is left as it was, and those that read it are skipped, each with the reason in `error`. `execution`
        computes the rows, by default this machine's DuckDB.
        """
        return list(self.running(select, full_refresh=full_refresh, execution=execution))

    def running(
        self, select: Sequence[str] = (), *, full_refresh: bool = False, execution: Execution | None = None
    ) -> Iterator[TableRun]:
        """Yield what `run` returns, each as soon as it is done."""
        tables = selected(self.declarations, select)
        return self._each(tables, {each.target for each in tables} if full_refresh else set(), execution)

    def _each(
        self, tables: Sequence[Declaration], again: Container[str], execution: Execution | None
    ) -> Iterator[TableRun]:
        execution, stopped = execution or LocalExecution(self._evaluation()), set[str]()
        above = upstream_of(self.declarations)
        for each in tables:
            if stopping := sorted(above[each.target] & stopped):
                stopped.add(each.target)
                reason = f"skipped, since {' and '.join(map(sql_name, stopping))} failed"
                yield TableRun(each.target, mode=SKIPPED, error=str(each.wrong(reason)))
                continue
            try:
                yield run_table(self._catalog, execution, each, full_refresh=each.target in again)
            except AlluviaError as error:
                stopped.add(each.target)
                text = str(error)
                placed = text if each.place and text.startswith(each.place) else str(each.wrong(text))
                yield TableRun(each.target, mode=FAILED, error=placed)

    def backfill(self, tables: Sequence[str], *, execution: Execution | None = None) -> list[TableRun]:
        """Compute all rows of some tables again, and bring those that are made of them up to date, in order.

        The latter follow what the former have changed, and no more. Raises `Invalid` without a table.
        """
        return list(self.backfilling(tables, execution=execution))

    def backfilling(self, tables: Sequence[str], *, execution: Execution | None = None) -> Iterator[TableRun]:
        """Yield what `backfill` returns, each as soon as it is done."""
        if not tables:
            raise Invalid("name the tables to backfill")
        again = {each.target for each in selected(self.declarations, tables)}
        below = [f"{name}+" for name in again]
        return self._each(selected(self.declarations, below), again, execution)

    def test(self) -> list[DeclarationTestResult]:
        """Run the tests of the declarations, each on a lake of its own in memory. The lake is read for its columns."""
        assert self._scratch is not None  # noqa: S101 - who makes a pipeline of a lake gives one
        results: list[DeclarationTestResult] = []
        for each in self.tests:
            scratch, evaluate = self._scratch()
            results.append(run_test(each, self.declarations, self._catalog, scratch, evaluate))
        return results

    def status(self) -> list[dict[str, object]]:
        """Return how fresh each table is, a row for each: from the log alone.

        Rows have `table`, `kind`, `version`, `last_run`, the time at which it looked at its sources, `behind`, the
        versions of each source that it does not show yet, None for a source that it has never shown, and the `mode` of
        the next run, with the reason in `why`. `failed` counts the rows that did not meet each expectation in the last
        run, None if it is not among the newest commits; `error` is the reason why a run that its schedule started
        failed, if none has succeeded since.
        """
        planner, rows = Planner(self._catalog, self._evaluation()), list[dict[str, object]]()
        failed = frozenset[str]() if self._catalog.origin else read_marks(self._catalog.store).failed
        for each in self.declarations:
            row: dict[str, object] = {"table": sql_name(each.target), "version": None, "last_run": None, "behind": {}}
            failed_run = read_failure(self._catalog.store, each.target) if each.target in failed else None
            target = planner.newest(each.target)
            try:
                plan = planner.plan(each, target)
            except AlluviaError as error:
                row |= {"mode": REFUSED, "why": str(error)}
            else:
                row |= {"kind": plan.step.kind.name, "mode": plan.mode, "why": plan.reason}
                if target is not None:
                    row["behind"] = {
                        sql_name(name): None if (at := progress_of(target, source.snapshot)) is None
                        else source.snapshot.version - at
                        for name, source in plan.sources.items()
                    }  # fmt: skip
            if target is not None:
                txn = target.state.txns.get(PROGRESS)
                looked = None if txn is None or txn.last_updated is None else datetime_of(txn.last_updated)
                row |= {"version": target.version, "last_run": looked, "failed": self._failed_rows(each.target)}
                if failed_run is not None and looked is not None and looked > failed_run.failed_at:
                    failed_run = None
            row["error"] = None if failed_run is None else failed_run.error
            rows.append(row)
        return rows

    def _failed_rows(self, name: str) -> dict[str, int] | None:
        """Return the counts of the last run's commit."""
        for entry in history(self._catalog.handle(name), COMMITS_LOOKED_AT):
            if entry.operation == OPERATION:
                return dict(orjson.loads(entry.parameters.get("failed", "{}")))
        return None
