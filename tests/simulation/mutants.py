"""`python -m tests.simulation.mutants`: break the code on purpose, and see that the tests notice every time.

Each mutant is a change of text in a copy of the library. The simulation hunts it over seeds; where the simulation
cannot see it by its nature, the tests named with it do.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import alluvia
from tests.simulation.seeds import say

PACKAGE = Path(alluvia.__file__).parent
ROOT = Path(__file__).parents[2]
SEEDS = 2000
PATIENCE_SECONDS = 1500


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one file's text: `old`, which stands there once, becomes `new`. `tests`: who must notice.

    Without `tests` the simulation must, within `SEEDS` seeds. `seed` is one at which it did when it was last asked, so
    that most hunts end at once: where the simulation has changed since, the hunt goes on with all the others.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    seed: int = 0


def _rule_ignored(rule: str, tests: tuple[str, ...] = (), seed: int = 0) -> Mutant:
    return Mutant(f"ignore the rule {rule}", "commit/conflicts.py", f"    {rule},\n", "", tests, seed)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "prune files with fields in properties alone by the statistics of their columns",
        "delta/skipping/pruning.py",
        "        return tag_number(file.tags.get(self.tag)) < self.number",
        "        return False",
        ("tests/contract/test_promoted_fields.py",),
    ),
    Mutant(
        "say that a file has fields in their columns, and leave them in properties",
        "delta/promoted_fields.py",
        "texts, columns[field.column] = _settled(texts, field, rows.column(field.column), moving=True)",
        "columns[field.column] = rows.column(field.column)",
        ("tests/contract/test_promoted_fields.py",),
    ),
    Mutant(
        "have DuckDB show the files' paths",
        "engine/duck/relation.py",
        "hive_partitioning=false{options})",
        "hive_partitioning=false, filename='alluvia_path'{options})",
        ("tests/contract/test_engine_names.py",),
    ),
    Mutant(
        "take a file's own column for its number",
        "engine/duck/views.py",
        "        if part.reserved & kinds.keys() or not all(starmap(fits, types)):",
        "        if not all(starmap(fits, types)):",
        ("tests/contract/test_column_names.py",),
    ),
    Mutant(
        "read whatever an external file holds now",
        "store/outside.py",
        "        if PIN in key and info is not None and info.etag != key.partition(PIN)[2]:",
        "        if False:",
        ("tests/unit/operations/tables/test_external.py",),
    ),
    Mutant(
        "write to an external table",
        "commit/warm_table.py",
        "        if self.is_read_only:\n            msg",
        "        if False:\n            msg",
        ("tests/unit/operations/tables/test_external.py",),
    ),
    Mutant(
        "let go of what a clone can still read",
        "operations/references/clones.py",
        "return oldest is not None and not any(",
        "return oldest is not None or not any(",
        (
            "tests/unit/operations/tables/test_clone.py",
            "tests/unit/operations/tables/test_clone_retention.py",
        ),
    ),
    Mutant(
        "take a clone that has just been made for one that never came",
        "operations/references/clones.py",
        "    if oldest.metadata.id != own and not ended:\n        return None\n",
        "",
        (
            "tests/unit/operations/tables/test_clone.py",
            "tests/unit/operations/tables/test_clone_retention.py",
        ),
    ),
    Mutant(
        "forget the versions of a clone that somebody keeps",
        "operations/references/clones.py",
        "    if any(each.table is not None or each.moment >= put_ms for each in kept):\n        return None\n",
        "",
        (
            "tests/unit/operations/tables/test_clone.py",
            "tests/unit/operations/tables/test_clone_retention.py",
        ),
    ),
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
        "let a source be erased that its clones show",
        "operations/erasure/erase_keepers.py",
        "if any(_holds(handle, matching, used, facts.files)):",
        "if False:",
        (
            "tests/unit/operations/tables/test_clone.py",
            "tests/unit/operations/tables/test_clone_retention.py",
        ),
    ),
    Mutant(
        "keep for an erased clone nothing of its source",
        "operations/references/clones.py",
        "for file in files for key in _keys(kept, file) if key.startswith",
        "for file in files[:0] for key in _keys(kept, file) if key.startswith",
        (
            "tests/unit/operations/tables/test_clone.py",
            "tests/unit/operations/tables/test_clone_retention.py",
        ),
    ),
    Mutant(
        "write to an attached table",
        "store/wrapper.py",
        "if kind not in _READS:",
        "if False:",
        ("tests/unit/operations/tables/test_attach.py",),
    ),
    Mutant(
        "follow the absolute paths of an attached table",
        "delta/places.py",
        "        if (own := self._own(key)) is not None:\n",
        "        if (own := key) is not None:\n",
        ("tests/unit/operations/tables/test_attach.py",),
    ),
    Mutant(
        "attach what a server may not read",
        "store/outside.py",
        "if self._allowed is not None and not (",
        "if False and not (",
        ("tests/unit/operations/tables/test_attach.py",),
    ),
    Mutant(
        "go on with an attached table that was detached",
        "commit/warm_table.py",
        "        if place != self._place:\n",
        "        if self._place is None and place is not None:\n",
        ("tests/unit/operations/tables/test_attach.py",),
    ),
    Mutant(
        "take one's own commit for another's after a lost answer",
        "delta/log/log.py",
        'is_ours=lambda stored: stored.info.get("txnId") == txn_id',
        "is_ours=lambda _: False",
    ),
    Mutant(
        "take whatever is found for one's own commit",
        "delta/log/log.py",
        'is_ours=lambda stored: stored.info.get("txnId") == txn_id',
        "is_ours=lambda _: True",
    ),
    Mutant(
        "skip the read-back: a lost answer means committed",
        "delta/log/committer.py",
        "        except AnswerLost:\n            sent_unclear = True\n",
        "        except AnswerLost:\n            return None\n",
    ),
    Mutant(
        "skip the read-back: a lost answer means that nothing happened",
        "delta/log/committer.py",
        "        except AnswerLost:\n            sent_unclear = True\n",
        '        except AnswerLost:\n            raise Unavailable("lost") from None\n',
    ),
    Mutant(
        "treat 409 as exists",
        "store/s3/bucket.py",
        "                self._clock.sleep(CONFLICT_WAIT_SECONDS * (attempt + self._clock.uniform()))\n"
        "                continue\n",
        "                return PutResult.EXISTS\n",
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
        "take what was read before a long sleep for new",
        "delta/log/log.py",
        "        self._seen_ms = began_ms\n",
        "        self._seen_ms = self.clock.now_ms()\n",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "record a version of a rollup's source that came after the rows were read",
        "rollups/refresh.py",
        "            txns=progress_txns(source, now_ms),",
        "            txns=progress_txns(handle.newest(), now_ms),",
        seed=213,
    ),
    Mutant(
        "refresh a rollup without a record of the version",
        "rollups/refresh.py",
        "            txns=progress_txns(source, now_ms),",
        "            txns=(),",
        (
            "tests/unit/rollups/test_rollups.py",
            "tests/unit/rollups/test_rollup_rules.py",
        ),
    ),
    Mutant(
        "fold groups that rows were deleted from",
        "rollups/computing.py",
        '            lost.append(f"SELECT',
        '            gained.append(f"SELECT',
        (
            "tests/unit/rollups/test_rollups.py",
            "tests/unit/rollups/test_rollup_rules.py",
        ),
    ),
    Mutant(
        "keep the old rows of recomputed groups",
        "rollups/computing.py",
        """join = f"ANTI JOIN {self._named('again')} g ON {self._same('o', 'g')}\"""",
        'join = ""',
        (
            "tests/unit/rollups/test_rollups.py",
            "tests/unit/rollups/test_rollup_rules.py",
        ),
    ),
    Mutant(
        "prune the files of a rollup's null groups",
        "rollups/groups.py",
        "either: list[Predicate] = [IsNull((name,))] if values.nulls else []",
        "either: list[Predicate] = []",
        (
            "tests/unit/rollups/test_rollups.py",
            "tests/unit/rollups/test_rollup_rules.py",
        ),
    ),
    Mutant(
        "prune the files of a source's null groups",
        "rollups/groups.py",
        'parts = ["k IS NULL"] if values.nulls else []',
        "parts: list[str] = []",
        (
            "tests/unit/rollups/test_rollups.py",
            "tests/unit/rollups/test_rollup_rules.py",
        ),
    ),
    Mutant(
        "take two sources of one name for one",
        "rollups/change.py",
        'return f"{PROGRESS}/{source.state.metadata.id}"',
        'return f"{PROGRESS}/{source.name}"',
        (
            "tests/unit/rollups/test_rollups.py",
            "tests/unit/rollups/test_rollup_rules.py",
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
        "ignore the event ids that commits have in files",
        "operations/dedup.py",
        "for commit in window.files(undone, after):",
        "for commit in window.files(undone, window.version):",
    ),
    Mutant(
        "look into files of event ids only before the first race",
        "operations/append/ingest.py",
        "        self._looked_up = window.version\n",
        "        self._looked_up = 1 << 62\n",
    ),
    Mutant(
        "forget files of event ids at a checkpoint",
        "commit/event_window/index.py",
        "    files = encode_entries(window.files(()))\n",
        "    files = encode_entries(())\n",
        seed=141,
    ),
    Mutant(
        "let a backfill commit events that another has in files",
        "operations/dedup.py",
        "        return handle.store.get(handle.root + commit.files.name(number))\n",
        "        return None\n",
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
        "commit files that were written however long ago",
        "operations/append/append.py",
        "age_ms_max)\n    _check_young(handle, adds)\n",
        "age_ms_max)\n",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "commit files that grew old in a race",
        "operations/append/append.py",
        "        _check_young(handle, adds)\n        return changes\n",
        "        return changes\n",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
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
        "begin to commit for all once their rows are in a file",
        "operations/append/group_commit.py",
        "commit = transaction.commit(changes, after_loss",
        "commit = self._handle.transaction(snapshot).commit(changes, after_loss",
        ("tests/unit/operations/append/test_group_commit.py",),
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
        "leave a checkpoint whose sidecars clean-up has taken",
        "delta/log/checkpoints/putting.py",
        "    try:\n        check_age()\n",
        "    try:\n        pass\n",
        (
            "tests/faults/test_sleepers.py",
            "tests/faults/test_sleeping_upkeep.py",
        ),
    ),
    Mutant(
        "take an offer after a commit that has its event ids in files",
        "commit/commit_offers.py",
        " or EVENT_FILES in commit.info",
        "",
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
        "erase from the newest version, and forget older ones",
        "operations/erasure/erase.py",
        "        failed += self._delete(others)\n",
        "",
        seed=27,
    ),
    Mutant(
        "erase, and forget older checkpoints",
        "operations/erasure/erase.py",
        "        failed = self._delete(checkpoints, [*_naming(handle, sidecars, oldest.version)])\n",
        "        failed: list[str] = []\n",
        ("tests/unit/operations/erasure/test_erase.py",),
    ),
    Mutant(
        "erase, and forget what commits show",
        "operations/erasure/erase.py",
        "sum(_redact(handle, shown, infos) for infos in _chunks(shown.commits))",
        "0",
        seed=27,
    ),
    Mutant(
        "erase, and forget rejects",
        "events/ingest/erasing.py",
        "rejects=erase(rejects, finder, release_tags=release_tags))",
        "rejects=EraseReport(rejects.newest().version))",
        ("tests/contract/test_erase.py",),
    ),
    Mutant(
        "erase, and forget the fields that properties keep",
        "operations/erasure/erase_judging.py",
        "        if self.places.properties and PROPERTIES in rows.schema.names:\n",
        "        if False:\n",
        (
            "tests/unit/operations/erasure/test_erase_fields.py",
            "tests/unit/operations/erasure/test_erase_elsewhere.py",
        ),
    ),
    Mutant(
        "erase, and say nothing of what could not be judged",
        "operations/erasure/erase_report.py",
        "        return all(not each.unjudged and ",
        "        return all(",
        (
            "tests/unit/operations/erasure/test_erase_fields.py",
            "tests/unit/operations/erasure/test_erase_elsewhere.py",
        ),
    ),
    Mutant(
        "erase, and take folders of partitions to be hidden",
        "operations/erasure/erase_survey.py",
        'in self._kept or name.endswith(".parquet"):',
        'in self._kept or (name.endswith(".parquet") and "/" not in name):',
        (
            "tests/unit/operations/erasure/test_erase_fields.py",
            "tests/unit/operations/erasure/test_erase_elsewhere.py",
        ),
    ),
    Mutant(
        "erase a file that a transaction may be about to commit",
        "operations/erasure/erase_survey.py",
        "        if age_ms >= ORPHAN_AGE_MS_MIN:\n",
        "        if age_ms >= 0:\n",
        ("tests/unit/operations/erasure/test_erase.py",),
    ),
    Mutant(
        "erase files that came since the version that stays readable",
        "operations/erasure/erase_survey.py",
        "        self._keep_later(commits)\n",
        "",
        ("tests/unit/operations/erasure/test_erase_claims.py",),
    ),
    Mutant(
        "erase files that a claim names",
        "operations/retention/vacuum_keys.py",
        "    for claim in pending(snapshot.state.domains):\n",
        "    for claim in pending({}):\n",
        ("tests/unit/operations/erasure/test_erase_claims.py",),
    ),
    Mutant(
        "erase, and forget what claims show",
        "operations/erasure/erase_log.py",
        "        return body if intended == claim.commit else",
        "        return body if intended else",
        ("tests/unit/operations/erasure/test_erase_claims.py",),
    ),
    Mutant(
        "erase while others claim the table",
        "operations/erasure/erase.py",
        "        snapshot = settled(self._handle, ERASE)\n",
        "        snapshot = self._handle.newest()\n",
        ("tests/unit/operations/erasure/test_erase_claims.py",),
    ),
    Mutant(
        "erase without a record of the oldest version",
        "operations/erasure/erase.py",
        "        record_oldest(handle, snapshot.version, fence=True, operation=ERASE)\n",
        "",
        ("tests/unit/operations/erasure/test_erase.py",),
    ),
    Mutant(
        "delete the checkpoint that the hint names",
        "operations/erasure/erase.py",
        "anew=hint is None or hint.version != snapshot.version",
        "anew=False",
        ("tests/faults/test_erase.py",),
    ),
    Mutant(
        "erase with deletion vectors",
        "operations/rows/rewriting.py",
        "snapshot.settings.deletion_vectors and not edit.erases",
        "snapshot.settings.deletion_vectors",
        ("tests/unit/operations/erasure/test_erase.py",),
    ),
    Mutant(
        "leave rows that a deletion vector has deleted",
        "operations/rows/rewriting.py",
        "        if not hits.changed and not self.edit.erases:\n",
        "        if not hits.changed:\n",
        ("tests/unit/operations/erasure/test_erase.py",),
    ),
    Mutant(
        "overwrite a commit that another has changed",
        "operations/erasure/erase_keepers.py",
        "store.put_if_same(key, plain, tag)",
        "store.put(key, plain) is None",
        ("tests/unit/operations/erasure/test_erase.py",),
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
        "commit files that vacuum may have taken meanwhile",
        "operations/rows/parts.py",
        " and part.begun_ms >= young_ms]",
        "]",
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
        "look keys up in memory that lose digits there",
        "operations/rows/keyed_merge.py",
        "        if pa.types.is_float32(schema.field(mine).type) and",
        "        if pa.types.is_float16(schema.field(mine).type) and",
        ("tests/unit/sql/test_merge.py",),
    ),
    Mutant(
        "give each row that is updated the values of every clause",
        "operations/rows/merge.py",
        "            here = pc.equal(hits.clauses, pa.scalar(number, CLAUSE))\n",
        "            here = pc.is_valid(hits.clauses)\n",
        ("tests/unit/sql/test_merge.py",),
    ),
    Mutant(
        "let several clauses apply to a pair, of which the last counts",
        "operations/rows/keyed_merge.py",
        "            here = pc.and_(paired, pc.is_null(clauses))\n",
        "            here = paired\n",
        ("tests/unit/sql/test_merge.py",),
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
        "resolve a path of a log without asking where it leads",
        "delta/places.py",
        """        return None if plain.startswith("../") else self._own(f"{scheme}{mark}{plain}")\n""",
        """        return f"{scheme}{mark}{plain}"\n""",
        ("tests/contract/test_paths_of_logs.py::test_no_deletion_vector_of_others_is_read",),
    ),
    Mutant(
        "believe a log in the lake that says whose files it shares",
        "delta/places.py",
        'keeper is not None and keeper.details.get(OWNER) == self._root.rstrip("/")',
        "True",
        ("tests/contract/test_paths_of_logs.py::test_a_log_in_the_lake_claims_no_other_table",),
    ),
    Mutant(
        "follow links out of a table's folder",
        "store/directory.py",
        """        if not real.startswith(f"{self._home(key).rstrip('/')}/"):\n""",
        "        if False:\n",
        ("tests/contract/test_links.py::test_no_link_leads_out_of_a_table",),
    ),
    Mutant(
        "know a live file by the text of its path",
        "operations/retention/vacuum_keys.py",
        "        return snapshot.locate(path)\n",
        "        return snapshot.root + path\n",
        ("tests/unit/operations/tables/test_foreign_tables.py",),
    ),
    Mutant(
        "remember the events that a restore took back",
        "commit/event_window/window.py",
        "        undone = self.rules.undone if undone is None else undone\n",
        "        undone = ()\n",
        ("tests/unit/operations/tables/test_restore_events.py",),
    ),
    Mutant(
        "take another event under a known id for a duplicate",
        "operations/append/ingest.py",
        "        elif content not in known and UNKNOWN not in known:\n",
        "        elif False:\n",
    ),
    Mutant(
        "take another event under an id of the same batch for a duplicate",
        "operations/append/ingest.py",
        "            elif first[fingerprint] != content:\n",
        "            elif False:\n",
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
        "take released event ids for none",
        "delta/log/log.py",
        " or (event_ids and version < self._released)",
        "",
        ("tests/unit/delta/log/test_recent_commits.py",),
    ),
    Mutant(
        "no older index where clean-up took a commit",
        "operations/dedup.py",
        "            window, whole = _from_index(log, at, version, rules)\n",
        "            whole = False\n",
        ("tests/unit/operations/append/test_ingest_window.py",),
    ),
    Mutant(
        "clean up the checkpoint as well",
        "operations/retention/log_cleanup.py",
        "return file is not None and file.version < keep",
        "return file is not None and file.version <= keep",
    ),
    Mutant(
        "forget the sort",
        "delta/data_files/writer.py",
        "return [rows[name] for name in settings.cluster_by or settings.sort_by]",
        "return []",
    ),
    Mutant(
        "drop a tombstone early",
        "operations/checkpointing.py",
        "snapshot.settings.file_retention_ms - TOMBSTONES_LONGER_MS",
        "snapshot.settings.file_retention_ms + 1_800_000",
        seed=271,
    ),
    Mutant(
        "commit before the data files are durable",
        "delta/data_files/writer.py",
        "        self._store.put_new_many({self._root + add.path: data for add, data in prepared})\n",
        "        for add, data in prepared:\n            try:\n"
        "                self._store.put(self._root + add.path, data)\n"
        "            except Exception:\n                continue\n",
        (
            "tests/faults/test_fail_at_call.py",
            "tests/faults/test_fail_at_call_of_upkeep.py",
        ),
    ),
    Mutant(
        "forget the winners' ids after a lost race",
        "operations/append/ingest.py",
        "        self._look_up([self._prints[at] for at in before])\n",
        "",
    ),
    Mutant(
        "let an event in twice that stands in one batch twice",
        "operations/append/ingest.py",
        "            if fingerprint not in first:\n",
        "            if True:\n",
    ),
    Mutant(
        "do not follow the window",
        "operations/dedup.py",
        "        window.follow(commits)\n",
        "        window.version = state.version\n",
    ),
    Mutant(
        "the dedup window by this machine's clock",
        "operations/dedup.py",
        "        window.follow(commits)\n",
        "        window.follow(commits)\n        window._time_ms = handle.clock.now_ms()\n        window.obey(rules)\n",
        ("tests/faults/test_clocks.py",),
    ),
    Mutant(
        "a cold window from the commits alone, without the checkpoint's index",
        "operations/dedup.py",
        "            window = read_index(log.store.get(log.root + name), name, rules, start)\n",
        "            window = DedupWindow(rules, start)\n",
    ),
    Mutant(
        "an index that clean-up took means that there was none",
        "operations/dedup.py",
        "        if whole:\n            return window\n",
        "        return window\n",
        ("tests/unit/operations/append/test_ingest_window.py",),
    ),
    Mutant(
        "the checkpoint before its window",
        "operations/checkpointing.py",
        "            handle.store.put(handle.root + index_name(snapshot.version), write_index(window))\n"
        "        after_ms = tombstones_after_ms(snapshot, handle.clock.now_ms())\n"
        "        handle.log.checkpoint(state, after_ms, form_of(snapshot), v2=v2)\n",
        "            pass\n"
        "        after_ms = tombstones_after_ms(snapshot, handle.clock.now_ms())\n"
        "        handle.log.checkpoint(state, after_ms, form_of(snapshot), v2=v2)\n"
        "        if EVENT_ID in snapshot.schema.names:\n"
        "            handle.store.put(handle.root + index_name(snapshot.version), write_index(window))\n",
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
        "rewrite a file and leave it",
        "operations/compaction/optimize.py",
        "data_change=done.changed) for file in files],\n",
        "data_change=done.changed) for file in files[1:]],\n",
    ),
    Mutant(
        "fold rows, and leave all that they were",
        "operations/compaction/optimize.py",
        "data_change=done.changed) for file in files],\n",
        "data_change=False) for file in files if not done.changed],\n",
        seed=30,
    ),
    Mutant(
        "fold the rows of a file twice",
        "operations/compaction/optimize_fold.py",
        "folded(read)",
        "folded(Files(snapshot, [*read.files, read.files[0]], [*read.paths, read.paths[0]]))",
        seed=30,
    ),
    Mutant(
        "merge the files of two partitions",
        "operations/compaction/optimize_plan.py",
        "partition = tuple(sorted(each.file.partition_values.items()))",
        "partition = ()",
    ),
    Mutant(
        "join the files of two partitions",
        "operations/compaction/optimize_outputs.py",
        'return tuple((name, text is None, text or "") for name, text in sorted(each.file.partition_values.items()))',
        "return ()",
        ("tests/unit/operations/compaction/test_optimize_joins.py",),
    ),
    Mutant(
        "fold the rows of files that were planned by another merge's commit",
        "operations/compaction/optimize.py",
        "        except Conflict:\n            return False\n",
        "        except Conflict:\n            commit = handle.transaction(handle.newest()).commit(changes)\n",
    ),
    Mutant(
        "say that folding changes no data",
        "operations/compaction/optimize_fold.py",
        "return Folded(before, before != after)",
        "return Folded(before, changed=False)",
        ("tests/unit/operations/merge_query/test_folding.py::test_a_merge_folds_rows_in_a_commit_that_changes_them",),
    ),
    Mutant(
        "put conditions on folded values to the rows that are folded",
        "operations/merge_query/folding.py",
        "query.folded(source, schema)}, query.keys(schema))",
        "query.folded(source, schema)}, schema.names)",
        ("tests/unit/operations/merge_query/test_folding.py::test_final_gives_the_same_before_and_after_a_merge",),
    ),
    Mutant(
        "delete by what a merge may have changed",
        "operations/merge_query/folding.py",
        "if name not in keys), None)",
        "if name not in snapshot.schema.names), None)",
        (
            "tests/unit/operations/merge_query/test_folding.py::test_nothing_that_a_merge_could_change_decides_what_is_changed",
        ),
    ),
    Mutant(
        "try a merge query in one order of rows only",
        "operations/merge_query/merge_query_checks.py",
        "range(len(every) - 1, -1, -1)",
        "range(len(every))",
        ("tests/unit/operations/merge_query/test_folding.py",),
    ),
    Mutant(
        "try a merge query only over all that it has merged",
        "operations/merge_query/merge_query_checks.py",
        "FROM {_at('merged')} UNION ALL FROM {_at('b')}",
        "FROM {_at('every')}",
        ("tests/unit/operations/merge_query/test_folding.py",),
    ),
    Mutant(
        "an error while reading a commit means that there is none",
        "delta/log/reading.py",
        "        except ObjectNotFound:\n            return None\n\n    def read_commits",
        "        except (ObjectNotFound, Unavailable):\n            return None\n\n    def read_commits",
        (
            "tests/faults/test_fail_at_call.py",
            "tests/faults/test_fail_at_call_of_upkeep.py",
        ),
    ),
    Mutant(
        "acknowledge rejects that could not be kept",
        "events/ingest/event_tables.py",
        "    place = rejects_of(catalog, name)\n    known = all_but(_commit(place, rows).new, len(rows))\n",
        "    try:\n        place = rejects_of(catalog, name)\n"
        "        known = all_but(_commit(place, rows).new, len(rows))\n"
        "    except Exception:\n        return set()\n",
        seed=129,
    ),
    Mutant(
        "take a known reject for one that is there",
        "events/ingest/event_tables.py",
        "    return [at for at in known if ids[at] in wanted]\n",
        "    return []\n",
        ("tests/unit/events/ingest/test_rejects_again.py",),
    ),
    Mutant(
        "keep a reject again that a replay has made a row of",
        "events/ingest/event_tables.py",
        "    again = [at for at in gone if at not in settled]\n",
        "    again = gone\n",
        ("tests/unit/events/ingest/test_rejects_again.py",),
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
        "forget what was read when something is changed",
        "operations/transactions/staging.py",
        "        self._handle.scans.remove(self._read)\n",
        "        self._handle.scans.clear()\n",
        seed=176,
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
        "look at no event of the group's other requests",
        "operations/append/ingest.py",
        "            if fingerprint not in first:",
        "            if True:",
    ),
    Mutant(
        "forget which requests the events that are left came with",
        "events/ingest/pipeline.py",
        "self._owners = self._owners[: len(rows.taken)] if one else [self._owners[at] for at in rows.taken]\n",
        "pass\n",
    ),
    Mutant(
        "refuse events by columns that are known no longer to hold",
        "events/ingest/pipeline.py",
        "            if rows.refused and tries_left and not is_newest:",
        "            if False:",
        (
            "tests/unit/events/ingest/test_pipeline.py",
            "tests/unit/events/ingest/test_event_tables.py",
        ),
    ),
    Mutant(
        "store rows that were made for other columns",
        "operations/append/ingest.py",
        "            raise _other_columns(self._handle)",
        "            pass",
        (
            "tests/unit/events/ingest/test_pipeline.py",
            "tests/unit/events/ingest/test_event_tables.py",
        ),
    ),
    Mutant(
        "give the rejects of a group to its first request",
        "events/ingest/pipeline.py",
        "            self._rejects[at].append(reject)",
        "            self._rejects[0].append(reject)",
    ),
    Mutant(
        "take a group's events for those of its first request",
        "events/ingest/columnar_batch.py",
        "RawEvent(*event[:3], origin, *event[4:])",
        "event",
        ("tests/unit/events/ingest/test_together.py",),
    ),
    Mutant(
        "take a group's blocks for those of its first request",
        "events/ingest/event_rows.py",
        "(part.origin or request).arrival_us",
        "arrival_us",
        ("tests/unit/events/ingest/test_together.py",),
    ),
    Mutant(
        "take a process that a sent file has ended for a fault of ours",
        "processes/reading.py",
        "            if error.status < 0:",
        "            if error.status < -99:",
        ("tests/functions/test_hostile_uploads.py",),
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
        "fail a group for what one of its requests breaks",
        "events/ingest/pipeline.py",
        "if len(requests) == 1 or group.committing:",
        "if True:",
        ("tests/unit/events/ingest/test_together.py",),
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
        "take an offer whose event ids are known",
        "operations/append/group_commit.py",
        "known = set(window.held([each for offer in offers for each in offer.prints], self._undone))",
        "known = set[bytes]()",
    ),
    Mutant(
        "take two offers that bring the same event",
        "operations/append/group_commit.py",
        "                known.update(offer.prints)\n",
        "",
    ),
    Mutant(
        "take an offer for a table that has changed since",
        "commit/commit_offers.py",
        "    return len(commits) >= LIFE or any(map(_ends, commits))",
        "    return len(commits) >= LIFE",
        ("tests/unit/operations/append/test_group_commit.py",),
    ),
    Mutant(
        "commit offers again that another has taken meanwhile",
        "operations/append/group_commit.py",
        "return changes if len(self._admitted(group)) == len(group) else None",
        "return changes",
    ),
    Mutant(
        "take any commit of offers for that of one's own",
        "commit/commit_offers.py",
        "if offer_id in offers_in(commit)), None)",
        "if offers_in(commit)), None)",
    ),
    Mutant(
        "do not look whether one's own offer was taken",
        "operations/append/group_commit.py",
        "                if taken is not None:\n",
        "                if False:\n",
        ("tests/unit/operations/append/test_group_commit.py",),
    ),
    Mutant(
        "forget the event ids of offers",
        "operations/append/group_commit.py",
        "**encode_event_ids(prints, contents), **taken_info",
        "**encode_event_ids(self._offer.prints, self._offer.contents), **taken_info",
    ),
    Mutant(
        "take offers whose owners have gone",
        "operations/append/group_commit.py",
        "if each.modified_ms >= oldest_ms)",
        ")",
        ("tests/unit/operations/append/test_group_commit.py",),
    ),
    Mutant(
        "answer that rows on offer were refused when the store fails",
        "operations/append/group_commit.py",
        "        if owner.refused:\n            raise\n",
        "        raise\n",
        ("tests/unit/operations/append/test_group_commit.py",),
    ),
    Mutant(
        "leave an erased row in an offer",
        "operations/erasure/erase_survey.py",
        "        elif name.startswith(OFFERS):\n",
        "        elif False:\n",
        ("tests/unit/operations/append/test_group_commit.py",),
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
        "keep a version that was given up",
        "operations/references/pinned_versions.py",
        "        _check_there(handle, keeper)\n        return _confirmed(handle.store",
        "        return _confirmed(handle.store",
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
        "take a moment for the one before it",
        "delta/refs.py",
        "if ms <= keeper.moment)",
        "if ms < keeper.moment)",
    ),
    Mutant(
        "take no transaction that had happened at a moment",
        "operations/references/pinned_versions.py",
        "table_at(handle.log, state, keeper.moment)",
        "TableAt(state)",
        (
            "tests/unit/operations/references/test_keepers.py",
            "tests/unit/operations/references/test_kept_moments.py",
        ),
    ),
    Mutant(
        "take a transaction that happened after a moment",
        "operations/references/pinned_versions.py",
        "table_at(handle.log, state, keeper.moment)",
        "table_at(handle.log, state)",
        (
            "tests/unit/operations/references/test_keepers.py",
            "tests/unit/operations/references/test_kept_moments.py",
        ),
    ),
    Mutant(
        "return from a tag of the lake before its second is over",
        "operations/references/pinned_versions.py",
        "        clock.sleep(1.0 if catalog.store.parallel else 0.001)\n",
        "",
        (
            "tests/unit/operations/references/test_keepers.py",
            "tests/unit/operations/references/test_kept_moments.py",
        ),
    ),
    Mutant(
        "erase what tags keep",
        "operations/erasure/erase_survey.py",
        "            self._kept.update(kept.live.to_pylist())\n",
        "            pass\n",
        ("tests/unit/operations/erasure/test_erase_keepers.py",),
    ),
    Mutant(
        "leave erased rows in tags",
        "operations/erasure/erase_keepers.py",
        "    if not holding:\n",
        "    if True:\n",
        ("tests/unit/operations/erasure/test_erase_keepers.py",),
    ),
    Mutant(
        "erase without a word on what the moment of a tag means",
        "operations/erasure/erase.py",
        "        kept.pin(snapshot.version, oldest_readable(snapshot.state))\n"
        "        record_oldest(handle, snapshot.version, fence=True, operation=ERASE)\n"
        "        # Keepers may have come meanwhile.\n"
        "        kept = without_rows(handle, matching, snapshot.version, release_tags=release_tags, facts=facts)\n"
        "        kept.pin(snapshot.version, oldest_readable(snapshot.state))\n",
        "        record_oldest(handle, snapshot.version, fence=True, operation=ERASE)\n"
        "        # Keepers may have come meanwhile.\n"
        "        kept = without_rows(handle, matching, snapshot.version, release_tags=release_tags, facts=facts)\n",
        ("tests/unit/operations/erasure/test_erase_keepers.py",),
    ),
    Mutant(
        "erase checkpoints of versions that are kept",
        "operations/erasure/erase.py",
        "        checkpoints = kept.write_checkpoints()\n",
        "        checkpoints = frozenset[str]()\n",
        ("tests/unit/operations/erasure/test_erase_keepers.py",),
    ),
    Mutant(
        "keep what has expired",
        "delta/refs.py",
        "return self.expires_ms is None or now_ms < self.expires_ms",
        "return True",
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
    Mutant(
        "leave a tag without its files to its readers",
        "verify/verification.py",
        "kept = check_kept(self._handle, objects, oldest, findings)",
        "kept = []",
        (
            "tests/unit/operations/references/test_keepers.py",
            "tests/unit/operations/references/test_kept_moments.py",
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
        "    commits = _without_undone(commits, stream.position)\n",
        "",
        ("tests/unit/operations/transactions/test_lake_restore.py",),
    ),
    Mutant(
        "restore a lake to half of a transaction",
        "operations/catalog/transaction_order.py",
        "    while versions != before:\n",
        "    while False:\n",
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
        "begin a branch with what the lake holds when a table is used first",
        "api/lake_branch.py",
        "            return kept_at(self.main.catalog.handle(table), self._kept()).version\n",
        "            return self.main.catalog.handle(table).newest(dropped=True).version\n",
    ),
    Mutant(
        "mean an older version where the log has forgotten the one of a moment",
        "delta/refs.py",
        "    return newest if newest + 1 in stored_ms or newest == max(stored_ms) else None\n",
        "    return newest\n",
        (
            "tests/unit/operations/references/test_keepers.py",
            "tests/unit/operations/references/test_kept_moments.py",
        ),
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
        "undo a compaction although rows have changed since",
        "operations/compaction/revert_compaction.py",
        " and all(map(now.files.get, went))",
        "",
        ("tests/unit/operations/compaction/test_revert_compaction.py",),
    ),
    Mutant(
        "take a file for one that was never gone, whatever has changed in it",
        "commit/conflicts.py",
        "        back = {add.key for add in winner.adds if not add.data_change and add.key in gone}\n",
        "        back = {add.key for add in winner.adds if add.key in gone}\n",
        ("tests/unit/commit/test_conflicts.py",),
    ),
    Mutant(
        "erase rows that a branch keeps in a transaction's claim",
        "operations/erasure/erase_keepers.py",
        "added = chain(version.state.files, _claimed(version))",
        "added = version.state.files",
        ("tests/unit/operations/erasure/test_erase_claims.py",),
    ),
    Mutant(
        "publish events that were ingested on both sides",
        "operations/branches/branch_publish.py",
        "        if both:\n",
        "        if False:\n",
        ("tests/unit/operations/branches/test_branch_publish.py",),
    ),
    Mutant(
        "publish what is left of a branch while it is discarded",
        "api/lake_branch.py",
        "        self._check_there()  # a discard says so before it deletes any of them\n",
        "",
        ("tests/unit/operations/branches/test_branch_gone.py",),
    ),
    Mutant(
        "give files of a branch names that the lake may give",
        "operations/references/branch_store.py",
        "        return self._places(key)[0]\n",
        "        return key\n",
        ("tests/unit/operations/branches/test_branches.py",),
    ),
    Mutant(
        "report writes on a branch that is gone as done",
        "commit/transaction.py",
        "                    self._log.store.check_lasts()\n",
        "                    pass\n",
        ("tests/unit/operations/branches/test_branch_gone.py",),
    ),
    Mutant(
        "judge the event ids of a branch by its commits alone",
        "operations/dedup.py",
        "    now_ms = max(handle.log.refresh().timestamp_ms, handle.clock.now_ms())\n",
        "    now_ms = handle.log.refresh().timestamp_ms\n",
        ("tests/unit/operations/dedup/test_known_events.py",),
    ),
    Mutant(
        "erase rows that were written on a branch",
        "operations/erasure/erase_keepers.py",
        "    holding += _written(branches, matching)\n",
        "",
        ("tests/unit/operations/branches/test_branches.py",),
    ),
)


def mutated(mutant: Mutant, folder: Path) -> None:
    """Put a copy of the library, and of what it has for Spark, with a mutant's change into a folder."""
    for package in (PACKAGE, PACKAGE.parent / "alluvia_spark"):
        shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / PACKAGE.name / mutant.file
    text = file.read_text()
    if text.count(mutant.old) != 1:
        message = f"{mutant.name}: its text stands {text.count(mutant.old)} times in {mutant.file}"
        raise ValueError(message)
    file.write_text(text.replace(mutant.old, mutant.new))


def hunt(mutant: Mutant, seeds: int) -> tuple[bool, str]:
    """Let the tests at a mutant. Returns whether they noticed, and how."""
    with tempfile.TemporaryDirectory(prefix="alluvia-mutant-") as name:
        mutated(mutant, Path(name))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((name, str(ROOT)))}
        command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *mutant.tests]
        if not mutant.tests:
            command = [sys.executable, "-m", "tests.simulation.hunt", str(seeds), "--first", str(mutant.seed)]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("seed ", "FAILED ", "no seed "))]
    if not mutant.tests and done.returncode == 1 and lines and fails_whole(int(lines[0].split()[1])):
        return False, f"the library fails without the mutant too: {lines[0]}"
    return done.returncode == 1 and bool(lines), lines[0] if lines else done.stdout[-300:] + done.stderr[-300:]


@cache
def fails_whole(seed: int) -> bool:
    """Whether the simulation fails at a seed with the library as it is: what it notices there is no mutant."""
    command = [sys.executable, "-m", "tests.simulation.hunt", "0", "--first", str(seed)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=PATIENCE_SECONDS, check=False).returncode != 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt the mutants whose names hold a word; 1 if one lives."""
    parser = argparse.ArgumentParser(prog="mutants")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("word", nargs="?", default="")
    given = parser.parse_args(arguments)
    wanted = [mutant for mutant in MUTANTS if given.word in mutant.name]

    def one(mutant: Mutant) -> tuple[Mutant, bool, str, float]:
        began = time.monotonic()
        caught, how = hunt(mutant, given.seeds)
        return mutant, caught, how, time.monotonic() - began

    living = 0
    with ThreadPoolExecutor(given.workers) as pool:
        for mutant, caught, how, took in pool.map(one, wanted):
            living += not caught
            say(f"{'caught' if caught else 'LIVES '} {mutant.name}: {how[:200]} ({took:.0f} s)")
    say(f"{len(wanted) - living} of {len(wanted)} mutants caught")
    return 1 if living else 0


if __name__ == "__main__":
    sys.exit(main())
