"""Mutants of references that keep versions."""

from __future__ import annotations

from tests.simulation.mutant_lists.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
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
        "give files of a branch names that the lake may give",
        "operations/references/branch_store.py",
        "        return self._places(key)[0]\n",
        "        return key\n",
        ("tests/unit/operations/branches/test_branches.py",),
    ),
)
