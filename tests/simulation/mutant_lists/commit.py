"""Mutants of commits and their conflicts."""

from __future__ import annotations

from tests.simulation.mutant_lists.mutant import Mutant


def _rule_ignored(rule: str, tests: tuple[str, ...] = (), seed: int = 0) -> Mutant:
    return Mutant(f"ignore the rule {rule}", "commit/conflicts.py", f"    {rule},\n", "", tests, seed)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "write to an external table",
        "commit/warm_table.py",
        "        if self.is_read_only:\n            msg",
        "        if False:\n            msg",
        ("tests/unit/operations/tables/test_external.py",),
    ),
    Mutant(
        "go on with an attached table that was detached",
        "commit/warm_table.py",
        "        if place != self._place:\n",
        "        if self._place is None and place is not None:\n",
        ("tests/unit/operations/tables/test_attach.py",),
    ),
    _rule_ignored("protocol_changed", ("tests/unit/commit/test_conflicts.py",)),
    _rule_ignored("metadata_changed", seed=130),
    _rule_ignored("transaction_recorded", seed=78),
    _rule_ignored(
        "domain_changed",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    _rule_ignored("rows_added"),
    _rule_ignored("read_file_removed", seed=128),
    _rule_ignored("file_removed_twice"),
    _rule_ignored("file_compacted", seed=69),
    Mutant(
        "write the version after a look of long ago",
        "commit/transaction.py",
        "            if state.version >= 0 and self._log.stale and (known := self._looked_again(state.version)):\n"
        "                continue\n",
        "",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "believe a commit that took longer than the log's retention",
        "commit/transaction.py",
        "                if self._slept(commit.version):\n"
        "                    self._log.confirm(commit.version, data)\n",
        "",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "forget files of event ids at a checkpoint",
        "commit/event_window/index.py",
        "    files = encode_entries(window.files(()))\n",
        "    files = encode_entries(())\n",
        seed=141,
    ),
    Mutant(
        "take an offer after a commit that has its event ids in files",
        "commit/commit_offers.py",
        " or EVENT_FILES in commit.info",
        "",
    ),
    Mutant(
        "forget where a compaction put the rows that were read",
        "commit/transaction.py",
        "            attempt = replace(attempt, files_read=self._moved)\n",
        "            self._moved = frozenset()\n",
        (
            "tests/unit/operations/rows/test_upsert.py",
            "tests/unit/operations/rows/test_upsert_races.py",
        ),
    ),
    Mutant(
        "remember the events that a restore took back",
        "commit/event_window/window.py",
        "        undone = self.rules.undone if undone is None else undone\n",
        "        undone = ()\n",
        ("tests/unit/operations/tables/test_restore_events.py",),
    ),
    Mutant(
        "forget the contents that a commit carries",
        "commit/event_window/window.py",
        "contents or UNKNOWN * count)",
        "UNKNOWN * count)",
    ),
    Mutant(
        "forget the contents in the checkpoint's index",
        "commit/event_window/index.py",
        "        ids = pa.RecordBatch.from_arrays(columns, schema=COLUMNS)\n",
        "        columns[2] = pc.multiply(columns[2], pa.scalar(0, pa.uint32()))\n"
        "        ids = pa.RecordBatch.from_arrays(columns, schema=COLUMNS)\n",
        seed=491,
    ),
    Mutant(
        "in-commit timestamps by the clock alone",
        "commit/changes.py",
        "max(now_ms, state.timestamp_ms + 1)",
        "now_ms",
    ),
    Mutant(
        "tombstones without their time",
        "commit/changes.py",
        "replace(remove, deletion_timestamp=timestamp_ms)",
        "replace(remove, deletion_timestamp=1)",
    ),
    Mutant(
        "commit whatever another transaction claims",
        "commit/transaction.py",
        "            if claim.only_appends and changes.only_appends:",
        "            if True:",
    ),
    Mutant(
        "let appends pass every claim",
        "commit/transaction.py",
        "            if claim.only_appends and changes.only_appends:",
        "            if changes.only_appends:",
        seed=27,
    ),
    Mutant(
        "let everything pass a claim of appends",
        "commit/transaction.py",
        "            if claim.only_appends and changes.only_appends:",
        "            if claim.only_appends:",
    ),
    Mutant(
        "carry out what was aborted",
        "commit/transaction.py",
        "                if decision.committed:",
        "                if True:",
    ),
    Mutant(
        "believe a decision that came too late",
        "commit/commit_records.py",
        "info.modified_ms <= claim.started_ms + COMMIT_AGE_MS_MAX",
        "True",
        (
            "tests/unit/operations/transactions/test_transactions.py",
            "tests/unit/operations/transactions/test_decisions.py",
            "tests/unit/operations/transactions/test_upkeep_of_claims.py",
        ),
    ),
    Mutant(
        "carry out a claim that does not stand any more",
        "commit/transaction.py",
        "            if claim.domain not in state.domains:\n                return",
        "            if False:\n                return",
        seed=27,
    ),
    Mutant(
        "carry out a claim and leave it there",
        "commit/transaction.py",
        ", claim.lifted()],",
        "],",
    ),
    Mutant(
        "leave the claims of aborted transactions for ever",
        "commit/transaction.py",
        "            lifted.append(claim.lifted())",
        "            pass",
        (
            "tests/unit/operations/transactions/test_transactions.py",
            "tests/unit/operations/transactions/test_decisions.py",
            "tests/unit/operations/transactions/test_upkeep_of_claims.py",
        ),
    ),
    Mutant(
        "take an offer for a table that has changed since",
        "commit/commit_offers.py",
        "    return len(commits) >= LIFE or any(map(_ends, commits))",
        "    return len(commits) >= LIFE",
        ("tests/unit/operations/append/test_group_commit.py",),
    ),
    Mutant(
        "take any commit of offers for that of one's own",
        "commit/commit_offers.py",
        "if offer_id in offers_in(commit)), None)",
        "if offers_in(commit)), None)",
    ),
    Mutant(
        "take a file for one that was never gone, whatever has changed in it",
        "commit/conflicts.py",
        "        back = {add.key for add in winner.adds if not add.data_change and add.key in gone}\n",
        "        back = {add.key for add in winner.adds if add.key in gone}\n",
        ("tests/unit/commit/test_conflicts.py",),
    ),
    Mutant(
        "report writes on a branch that is gone as done",
        "commit/transaction.py",
        "                    self._log.store.check_lasts()\n",
        "                    pass\n",
        ("tests/unit/operations/branches/test_branch_gone.py",),
    ),
)
