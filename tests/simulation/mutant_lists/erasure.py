"""Mutants of erasure."""

from __future__ import annotations

from tests.simulation.mutant_lists.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
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
        "erase, and forget what claims show",
        "operations/erasure/erase_log.py",
        "        return body if intended == claim.commit else",
        "        return body if intended else",
        ("tests/unit/operations/erasure/test_erase_claims.py",),
    ),
    Mutant(
        "erase, and keep comments that were replaced",
        "operations/erasure/erase_log.py",
        "                changed[tag] = without_texts(body, self._goes)\n",
        "                pass\n",
        ("tests/unit/operations/erasure/test_erase_elsewhere.py",),
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
        "overwrite a commit that another has changed",
        "operations/erasure/erase_keepers.py",
        "store.put_if_same(key, plain, tag)",
        "store.put(key, plain) is None",
        ("tests/unit/operations/erasure/test_erase.py",),
    ),
    Mutant(
        "leave an erased row in an offer",
        "operations/erasure/erase_survey.py",
        "        elif name.startswith(OFFERS):\n",
        "        elif False:\n",
        ("tests/unit/operations/append/test_group_commit.py",),
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
        "erase rows that a branch keeps in a transaction's claim",
        "operations/erasure/erase_keepers.py",
        "added = chain(version.state.files, _claimed(version))",
        "added = version.state.files",
        ("tests/unit/operations/erasure/test_erase_claims.py",),
    ),
    Mutant(
        "erase rows that were written on a branch",
        "operations/erasure/erase_keepers.py",
        "    holding += _written(branches, matching)\n",
        "",
        ("tests/unit/operations/branches/test_branches.py",),
    ),
)
