"""Mutants of the catalog, tables, and the functions."""

from __future__ import annotations

from tests.simulation.mutant_lists.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "keep nothing of the tables that own what a clone of a clone has",
        "operations/tables/clone.py",
        "        _keep_bases(origin, snapshot, keepers)\n",
        "",
        (
            "tests/unit/operations/tables/test_clone.py",
            "tests/unit/operations/tables/test_clone_retention.py",
        ),
    ),
    Mutant(
        "release the keepers of a clone that was made",
        "operations/tables/clone.py",
        "        needed = True  #",
        "        needed = False  #",
        (
            "tests/unit/operations/tables/test_clone.py",
            "tests/unit/operations/tables/test_clone_retention.py",
        ),
    ),
    Mutant(
        "drop rejects of a backfill by the numbers of its rows",
        "../alluvia_spark/backfill_job/execute.py",
        "dropped = drops_of(job, chunk.table, chunk.task)[ROW]",
        "dropped = drops_of(job, ROWS, chunk.task)[ROW]",
        ("tests/spark/test_backfill_counts.py",),
    ),
    Mutant(
        "commit a backfill whose counts do not agree",
        "../alluvia_spark/backfill_job/committing.py",
        "    outcome.check()\n",
        "",
        ("tests/spark/test_committing.py",),
    ),
    Mutant(
        "take what the table knows with other content for a duplicate in a backfill",
        "../alluvia_spark/backfill_job/dropping.py",
        "    known = partial(live.known_contents, job) if table == ROWS else repeats.nothing_known\n",
        "    known = repeats.nothing_known\n",
        ("tests/spark/test_backfill_counts.py",),
    ),
    Mutant(
        "let a backfill write rejects that were written before",
        "../alluvia_spark/backfill_job/execute.py",
        "            if _rows_of(weights, REJECTS):\n",
        "            if False:\n",
        ("tests/spark/test_backfill_counts.py",),
    ),
    Mutant(
        "commit what a backfill wrote however long ago",
        "../alluvia_spark/backfill_job/committing.py",
        "        if lake.clock.now_ms() - began_ms > FILE_AGE_MS_MAX:\n",
        "        if False:\n",
        ("tests/spark/test_committing.py",),
    ),
    Mutant(
        "put copies of long ago in the place of a dropped table",
        "operations/tables/drop.py",
        "        first.check_young(handle.name, now_ms)\n",
        "",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "commit the first version of a table however old its files are",
        "operations/tables/create.py",
        "        first.check_young(handle.name, handle.clock.now_ms())\n",
        "",
        ("tests/faults/test_sleepers.py::test_a_shallow_clone_that_slept_shares_no_file_that_nothing_keeps",),
    ),
    Mutant(
        "acknowledge a clone whose files nothing keeps",
        "operations/tables/clone.py",
        "        _check_kept(target, rejects, keepers, begun_ms)\n",
        "",
        ("tests/faults/test_sleepers.py::test_a_shallow_clone_that_slept_shares_no_file_that_nothing_keeps",),
    ),
    Mutant(
        "take a cut of tables without a second look",
        "operations/catalog/lake_snapshot.py",
        "        late, known = list(self._logs), set[str]()\n",
        "        late, known = [], set[str]()\n",
    ),
    Mutant(
        "leave tables of a cut behind a transaction that another has met",
        "operations/catalog/lake_snapshot.py",
        "if late := self._behind(met.values()):",
        "if late := []:",
        (
            "tests/unit/operations/transactions/test_transactions.py",
            "tests/unit/operations/transactions/test_decisions.py",
            "tests/unit/operations/transactions/test_upkeep_of_claims.py",
        ),
    ),
    Mutant(
        "read a transaction without what it follows by way of a table that is not read",
        "operations/catalog/lake_snapshot.py",
        "        return list(self._logs) if beyond and len(self._logs) > 1 else []\n",
        "        return []\n",
        ("tests/unit/operations/catalog/test_lake_snapshot.py",),
    ),
    Mutant(
        "read a table without what has happened but is not in its log",
        "operations/catalog/lake_snapshot.py",
        "if self._claims(claim, log)]",
        "if False]",
        (
            "tests/unit/operations/transactions/test_transactions.py",
            "tests/unit/operations/transactions/test_decisions.py",
            "tests/unit/operations/transactions/test_upkeep_of_claims.py",
        ),
    ),
    Mutant(
        "take a decision that vacuum has deleted for one that never was",
        "operations/catalog/lake_snapshot.py",
        "    if decision is None and handle.clock.now_ms() - claim.started_ms > COMMIT_AGE_MS_MAX:",
        "    if False:",
        (
            "tests/unit/operations/transactions/test_transactions.py",
            "tests/unit/operations/transactions/test_decisions.py",
            "tests/unit/operations/transactions/test_upkeep_of_claims.py",
        ),
    ),
    Mutant(
        "count what was decided after the tables of a lake were looked at",
        "operations/catalog/lake_snapshot.py",
        "            self._decided[claim.transaction_id] = {} if self._behind([claims]) else claims\n"
        "        return self._decided[claim.transaction_id]\n",
        "            return claims\n        return {}\n",
        (
            "tests/unit/operations/transactions/test_transactions.py",
            "tests/unit/operations/transactions/test_decisions.py",
            "tests/unit/operations/transactions/test_upkeep_of_claims.py",
        ),
    ),
    Mutant(
        "read a table that is used late as it is by then",
        "operations/catalog/lake_snapshot.py",
        "            return handle.log.at(version)",
        "            return handle.log.refresh()",
        (
            "tests/unit/operations/transactions/test_transactions.py",
            "tests/unit/operations/transactions/test_decisions.py",
            "tests/unit/operations/transactions/test_upkeep_of_claims.py",
        ),
    ),
    Mutant(
        "forget what a query, or a subquery of a change, has read in a transaction",
        "api/lake_transaction.py",
        "            staged.read(scan)\n\n    def tables",
        "            pass\n\n    def tables",
        seed=31,
    ),
    Mutant(
        "say that there is nothing to do without a look at what has happened",
        "operations/planning/optimistic_retry.py",
        "if changes is None and handle.carry_out(snapshot):",
        "if False:",
        (
            "tests/unit/operations/transactions/test_transactions.py",
            "tests/unit/operations/transactions/test_decisions.py",
            "tests/unit/operations/transactions/test_upkeep_of_claims.py",
        ),
    ),
    Mutant(
        "hand the answers of a group to the wrong callers",
        "operations/catalog/request_batching.py",
        "zip(group, outcomes, strict=True)",
        "zip(group, reversed(outcomes), strict=True)",
    ),
    Mutant(
        "leave one of a group waiting",
        "operations/catalog/request_batching.py",
        "            for member in group[1:]:",
        "            for member in group[2:]:",
    ),
    Mutant(
        "hand the lead to nobody",
        "operations/catalog/request_batching.py",
        "            if not waiting:\n                del self._lines[line]",
        "            if True:\n                del self._lines[line]",
    ),
    Mutant(
        "have a request alone wait for others",
        "operations/catalog/request_batching.py",
        "line if self._crowd > 1 else None",
        "line",
        ("tests/unit/operations/catalog/test_request_batching.py",),
    ),
    Mutant(
        "remember the keyed uploads that a restore takes back",
        "operations/tables/restore.py",
        "app_id.startswith((BACKFILL, UPLOAD))",
        "app_id.startswith(BACKFILL)",
        (
            "tests/functions/test_uploads.py",
            "tests/functions/test_upload_keys.py",
        ),
    ),
    Mutant(
        "share one error object between the threads of a group",
        "operations/catalog/request_batching.py",
        "outcome if alone else _copy(outcome)",
        "outcome",
        ("tests/unit/operations/catalog/test_request_batching.py",),
    ),
    Mutant(
        "tell nobody that the leader was interrupted",
        "operations/catalog/request_batching.py",
        "= [interrupted] * len(group)",
        "= [None] * len(group)",
        ("tests/unit/operations/catalog/test_request_batching.py",),
    ),
    Mutant(
        "restore a lake to half of a transaction",
        "operations/catalog/transaction_order.py",
        "    while versions != before:\n",
        "    while False:\n",
        ("tests/unit/operations/transactions/test_lake_restore.py",),
    ),
    Mutant(
        "begin a branch with what the lake holds when a table is used first",
        "api/lake_branch.py",
        "            return kept_at(self.main.catalog.handle(table), self._kept()).version\n",
        "            return self.main.catalog.handle(table).newest(dropped=True).version\n",
    ),
    Mutant(
        "publish what is left of a branch while it is discarded",
        "api/lake_branch.py",
        "        self._check_there()  # a discard says so before it deletes any of them\n",
        "",
        ("tests/unit/operations/branches/test_branch_gone.py",),
    ),
)
