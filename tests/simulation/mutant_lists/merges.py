"""Mutants of compaction, merge queries and rollups."""

from __future__ import annotations

from tests.simulation.mutant_lists.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "record a version of a rollup's source that came after the rows were read",
        "rollups/refresh.py",
        "            txns=progress_txns(rollup, [source], now_ms),",
        "            txns=progress_txns(rollup, [handle.newest()], now_ms),",
        seed=213,
    ),
    Mutant(
        "refresh a rollup without a record of the version",
        "rollups/refresh.py",
        "            txns=progress_txns(rollup, [source], now_ms),",
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
        "return source.state.metadata.id",
        "return source.name",
        (
            "tests/unit/rollups/test_rollups.py",
            "tests/unit/rollups/test_rollup_rules.py",
        ),
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
        "undo a compaction although rows have changed since",
        "operations/compaction/revert_compaction.py",
        " and all(map(now.files.get, went))",
        "",
        ("tests/unit/operations/compaction/test_revert_compaction.py",),
    ),
)
