"""Mutants of transactions, branches, changes and streams."""

from __future__ import annotations

from tests.simulation.mutant_lists.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "forget the age of a transaction that has moved to newer versions",
        "operations/transactions/lake_commit.py",
        "    check_age(clock, started_ms)  # a table",
        "    # a table",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "publish copies of a branch's files however old they are",
        "operations/branches/branch_publish.py",
        "        if copied_ms is None or main.clock.now_ms() - copied_ms > FILE_AGE_MS_MAX:",
        "        if copied_ms is None:",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "tell readers of changes that expired rows were deleted",
        "operations/changes/changes.py",
        "if is_expiry(commit) and not self._expired:",
        "if self._expired:",
        ("tests/unit/operations/retention/test_expire.py",),
    ),
    Mutant(
        "tell readers of changes that a restore inserts what had expired",
        "operations/changes/changes.py",
        "return [*gone, *before], come |",
        "return gone, come |",
        ("tests/unit/operations/retention/test_expire.py",),
    ),
    Mutant(
        "tell readers of changes that a restore deletes what had expired",
        "operations/changes/changes.py",
        "for at, file in restored}",
        "for at, file in restored[:0]}",
        ("tests/unit/operations/retention/test_expire.py",),
    ),
    Mutant(
        "forget what a transaction over several tables has read",
        "operations/transactions/lake_commit.py",
        "table.changes(reads=reads)",
        "table.changes(reads=False)",
        (
            "tests/unit/operations/transactions/test_transactions.py",
            "tests/unit/operations/transactions/test_decisions.py",
            "tests/unit/operations/transactions/test_upkeep_of_claims.py",
        ),
    ),
    Mutant(
        "claim only the tables that a transaction changes",
        "operations/transactions/lake_commit.py",
        "if table.staged or (isolation == SERIALIZABLE and table.scans)]",
        "if table.staged]",
    ),
    Mutant(
        "read a transaction in a late table that changed one that was read before",
        "operations/transactions/past_snapshots.py",
        "self._after = self._order.with_followers(changed)",
        "self._after: dict[str, Claims] = {}",
        seed=206,
    ),
    Mutant(
        "read in a late table what follows a transaction that is left out",
        "operations/transactions/past_snapshots.py",
        "self._after = self._order.with_followers(changed)",
        "self._after = changed",
        ("tests/unit/operations/transactions/test_past_snapshots.py",),
    ),
    Mutant(
        "leave out of a late table, by the clock, what another table that was read follows",
        "operations/transactions/past_snapshots.py",
        "one not in self._after and self._order.is_read(one, each.claims)",
        "False",
        ("tests/unit/operations/transactions/test_past_snapshots.py",),
    ),
    Mutant(
        "read in a late table what came after another that was read had changed",
        "operations/transactions/past_snapshots.py",
        "        return moment > self._end and commit.timestamp_ms > self._began_ms",
        "        return False and moment > self._end",
        ("tests/unit/operations/transactions/test_past_snapshots.py",),
    ),
    Mutant(
        "carry a transaction out that another has aborted",
        "operations/transactions/lake_commit.py",
        "    if not decisions.commit(transaction_id, versions):",
        "    if decisions.commit(transaction_id, versions) is None:",
        seed=559,
    ),
    Mutant(
        "forget what was read when something is changed",
        "operations/transactions/staging.py",
        "        self._handle.scans.remove(self._read)\n",
        "        self._handle.scans.clear()\n",
        seed=176,
    ),
    Mutant(
        "answer an owner that slept for days that its transaction has happened",
        "operations/transactions/lake_commit.py",
        "    if clock.now_ms() - started_ms > COMMIT_AGE_MS_MAX // 2:",
        "    if False:",
        (
            "tests/unit/operations/transactions/test_transactions.py",
            "tests/unit/operations/transactions/test_decisions.py",
            "tests/unit/operations/transactions/test_upkeep_of_claims.py",
        ),
    ),
    Mutant(
        "read a stream without moving it",
        "operations/transactions/lake_transaction.py",
        "        if batch.to != stream.position or stream.initial_rows:\n",
        "        if stream.initial_rows:\n",
    ),
    Mutant(
        "move a stream further than what was read of it",
        "operations/transactions/lake_transaction.py",
        "streams.moved(stream, batch.to, streams.READ_STREAM",
        "streams.moved(stream, table.inner.newest().version, streams.READ_STREAM",
    ),
    Mutant(
        "move a stream in a transaction that only reads",
        "operations/transactions/lake_transaction.py",
        "        if self.wrote or any(each.staged or each.begun for each in tables):\n",
        "        if tables is not None:\n",
        (
            "tests/unit/operations/streams/test_streams.py",
            "tests/unit/operations/streams/test_stream_sources.py",
        ),
    ),
    Mutant(
        "give the first rows of a stream with those that come again later",
        "operations/streams/stream_batches.py",
        "begin = source.snapshot(newest.version)",
        "begin = source.readable()",
        (
            "tests/unit/operations/streams/test_streams.py",
            "tests/unit/operations/streams/test_stream_sources.py",
        ),
    ),
    Mutant(
        "give what a restore has undone",
        "operations/streams/stream_batches.py",
        "    commits = without_undone(commits, stream.position)\n",
        "",
        ("tests/unit/operations/transactions/test_lake_restore.py",),
    ),
    Mutant(
        "leave streams where they are when their lake is restored",
        "operations/transactions/lake_restore.py",
        "        return _stream_moved(name, then)\n",
        "        return None\n",
        ("tests/unit/operations/transactions/test_lake_restore.py",),
    ),
    Mutant(
        "publish a branch without its files",
        "operations/branches/branch_publish.py",
        "            copied = sorted({*_own_files(store, changed)})\n",
        "            copied: list[str] = []\n",
        seed=42,
    ),
    Mutant(
        "publish as if a branch had read nothing",
        "operations/branches/branch_changes.py",
        "        can_match, files_read = self.reads() if reads or restored else (None, frozenset[str]())\n",
        "        can_match, files_read = None, frozenset[str]()\n",
        ("tests/unit/operations/branches/test_branch_reads.py",),
    ),
    Mutant(
        "publish a branch twice",
        "operations/branches/branch_publish.py",
        "    published = _record(store) or _published(main, changed, app_id)\n    if",
        "    published = None\n    if",
        ("tests/unit/operations/branches/test_branch_publish.py",),
    ),
    Mutant(
        "publish events that were ingested on both sides",
        "operations/branches/branch_publish.py",
        "        if both:\n",
        "        if False:\n",
        ("tests/unit/operations/branches/test_branch_publish.py",),
    ),
)
