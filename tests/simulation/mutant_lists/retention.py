"""Mutants of expiry, clean-up and vacuum."""

from __future__ import annotations

from tests.simulation.mutant_lists.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "judge the keeper of a clone that may still be made",
        "operations/retention/referenced_files.py",
        "if keeper.stored_ms < now_ms - CLONE_AGE_MS_MIN and is_orphan(",
        "if is_orphan(",
        (
            "tests/unit/operations/tables/test_clone.py",
            "tests/unit/operations/tables/test_clone_retention.py",
        ),
    ),
    Mutant(
        "record no version that a clone has given up",
        "operations/retention/vacuum_cutoffs.py",
        " or CLONE_OF in snapshot.properties:\n        moments",
        ":\n        moments",
        (
            "tests/unit/operations/tables/test_clone.py",
            "tests/unit/operations/tables/test_clone_retention.py",
        ),
    ),
    Mutant(
        "vacuum by clock instead of reference",
        "operations/retention/vacuum_plan.py",
        "pc.less(dead_ms, whole(cutoffs.removed))",
        "pc.less(modified_ms, whole(cutoffs.removed))",
        seed=62,
    ),
    Mutant(
        "vacuum what is live, once it is old",
        "operations/retention/vacuum_plan.py",
        "    objects = listing.chosen(pc.invert(live))",
        '    old = pc.less(_column(listing.columns, "modified_ms"), whole(cutoffs.orphans))\n'
        "    objects = listing.chosen(pc.invert(pc.and_not(live, old)))",
        ("tests/unit/operations/retention/test_vacuum.py",),
    ),
    Mutant(
        "vacuum files of event ids before the window ends",
        "operations/retention/vacuum_cutoffs.py",
        "ids=now_ms - ORPHAN_AGE_MS_MIN - settings.dedup_window_ms",
        "ids=now_ms - ORPHAN_AGE_MS_MIN",
        ("tests/unit/operations/dedup/test_known_events.py",),
    ),
    Mutant(
        "vacuum files of event ids without a commit",
        "operations/retention/vacuum.py",
        "fence=bool(named or log_plan.hints or log_plan.id_files)",
        "fence=bool(named or log_plan.hints)",
        ("tests/unit/operations/dedup/test_known_events.py",),
    ),
    Mutant(
        "vacuum without a record of the oldest version",
        "operations/retention/log_cleanup.py",
        "        if oldest <= known and not fence:\n            return\n",
        "        if known >= 0:\n            return\n",
    ),
    Mutant(
        "vacuum orphans without a fence",
        "operations/retention/vacuum.py",
        "fence=bool(named or log_plan.hints or log_plan.id_files)",
        "fence=False",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "vacuum what came back before the record",
        "operations/retention/vacuum.py",
        "            plan = plan.without(self._needed_by(newest))\n",
        "",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "expire a file of which some rows are old",
        "operations/retention/expire.py",
        "if not newer.can_match(file) or _tag",
        "if True or _tag",
    ),
    Mutant(
        "expire a file that nothing bounds",
        "operations/retention/expire.py",
        "if not newer.can_match(file) or _tag",
        "if not newer.can_match(file) or not file.tags or _tag",
        ("tests/unit/operations/retention/test_expire.py",),
    ),
    Mutant(
        "expire rows without a time",
        "operations/retention/expire.py",
        ", IsNull((column,))))",
        ",))",
        ("tests/unit/operations/retention/test_expire.py",),
    ),
    Mutant(
        "erase files that a claim names",
        "operations/retention/vacuum_keys.py",
        "    for claim in pending(snapshot.state.domains):\n",
        "    for claim in pending({}):\n",
        ("tests/unit/operations/erasure/test_erase_claims.py",),
    ),
    Mutant(
        "clean up the log below the newest checkpoint, young or not",
        "operations/retention/log_cleanup.py",
        "    keep = max((version for version in old if version <= current), default=None)\n",
        "    keep = max(listing.checkpoints, default=None)\n",
    ),
    Mutant(
        "a checkpoint of just now makes those before it needless",
        "operations/retention/log_cleanup.py",
        "if all(known[part.name].modified_ms <= before_ms for part in parts)",
        "if parts",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "vacuum the hint of a drop without a fence",
        "operations/retention/vacuum.py",
        "fence=bool(named or log_plan.hints or log_plan.id_files)",
        "fence=bool(named or log_plan.id_files)",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "carry out a plan of vacuum that is days old",
        "operations/retention/vacuum.py",
        "> PLAN_AGE_MS_MAX:",
        "> PLAN_AGE_MS_MAX * 1000:",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "count retention from when a late commit was made",
        "operations/retention/vacuum_cutoffs.py",
        "min(before_ms, commit.timestamp_ms)",
        "before_ms",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "know a live file by the text of its path",
        "operations/retention/vacuum_keys.py",
        "        return snapshot.locate(path)\n",
        "        return snapshot.root + path\n",
        ("tests/unit/operations/tables/test_foreign_tables.py",),
    ),
    Mutant(
        "clean up the checkpoint as well",
        "operations/retention/log_cleanup.py",
        "return file is not None and file.version < keep",
        "return file is not None and file.version <= keep",
    ),
    Mutant(
        "vacuum without a look for what keeps versions",
        "operations/retention/vacuum.py",
        "        added = self._kept.look(oldest, known)\n",
        "        added = False\n",
    ),
    Mutant(
        "look for what keeps versions only before the record",
        "operations/retention/vacuum.py",
        "            plan, log_plan = self._spared(plan, log_plan, live, oldest, known)\n            newest =",
        "            newest =",
        (
            "tests/unit/operations/references/test_keepers.py",
            "tests/unit/operations/references/test_kept_moments.py",
        ),
    ),
    Mutant(
        "forget what the moment of a tag of the lake means",
        "operations/retention/vacuum.py",
        "            self._kept.pin(oldest, known)\n",
        "",
        seed=212,
    ),
    Mutant(
        "clean up the log of a version that is kept",
        "operations/retention/vacuum_plan.py",
        "[info for info in below if info.key not in kept_log]",
        "list(below)",
    ),
    Mutant(
        "delete decisions that a moment needs",
        "operations/retention/old_commit_records.py",
        "key for key, ms in about.items() if ms <= keeper.moment and",
        "key for key, ms in about.items() if ms > keeper.moment and",
        (
            "tests/unit/operations/references/test_keepers.py",
            "tests/unit/operations/references/test_kept_moments.py",
        ),
    ),
    Mutant(
        "vacuum files of a version that is restored",
        "operations/retention/vacuum.py",
        "            named = len(plan.data_files) or len(plan.orphans)\n",
        "            named = len(plan.orphans)\n",
        (
            "tests/unit/operations/references/test_keepers.py",
            "tests/unit/operations/references/test_kept_moments.py",
        ),
    ),
)
