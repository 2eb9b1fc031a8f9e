"""Mutants of pipelines."""

from __future__ import annotations

from tests.simulation.mutant_lists.mutant import Mutant

_PROPERTY = "tests/property/test_pipelines.py"
_SEQUENCES = "tests/unit/pipelines/test_sequences.py"
_KINDS, _RUNS = "tests/unit/pipelines/test_kinds.py", "tests/unit/pipelines/test_running.py"
_PUBLISHED = "tests/unit/pipelines/test_published_runs.py"


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a pipeline's run without a record of the versions that it shows",
        "pipelines/running.py",
        "            *(Txn(app_id(each), each.version, now_ms) for each in newest),\n",
        "",
        (_RUNS,),
    ),
    Mutant(
        "two runs of a pipeline at once that do not conflict",
        "pipelines/running.py",
        "            Txn(PROGRESS, max(each.version for each in newest), now_ms),\n",
        "",
        (_RUNS,),
    ),
    Mutant(
        "a pipeline's run that keeps the rows of changed units",
        "pipelines/computing.py",
        'o ANTI JOIN {view(units)} u ON {same}"',
        'o"',
        (_PROPERTY,),
    ),
    Mutant(
        "a pipeline's run that computes all rows for changed units",
        "pipelines/computing.py",
        """f" SEMI JOIN {view('pipeline_units')} u ON {self._in_unit(name)}\"""",
        '""',
        (_PROPERTY,),
    ),
    Mutant(
        "a pipeline's run that looks for units in the rows that came alone",
        "pipelines/computing.py",
        'self.changed_rows(some, rows, "<> 0", "pipeline_rows")',
        'self.changed_rows(some, rows, "> 0", "pipeline_rows")',
        (_PROPERTY,),
    ),
    Mutant(
        "a pipeline that traces the side of an outer join that may be null",
        "pipelines/queries/lineage.py",
        'kept = {"INNER": both.columns, "LEFT": left.columns, "RIGHT": right.columns}.get(kind, [])',
        "kept = both.columns",
        (_KINDS,),
    ),
    Mutant(
        "a pipeline that traces a column without a look at windows",
        "pipelines/queries/lineage.py",
        "return trace if trace is not None and all(trace in parts for parts in self._partitions) else None",
        "return trace",
        (_KINDS,),
    ),
    Mutant(
        "a pipeline that traces a column to some of the tables of a join",
        "pipelines/queries/from_clauses.py",
        "if not self.entries or self.entries - trace.keys():",
        "if not self.entries:",
        (_KINDS,),
    ),
    Mutant(
        "a pipeline that traces a table that is read twice to one of two expressions",
        "pipelines/queries/from_clauses.py",
        "if made.setdefault(table, expression) != expression:",
        "if made.setdefault(table, expression) is None:",
        (_KINDS,),
    ),
    Mutant(
        "a pipeline that does not see tables in subqueries of expressions",
        "pipelines/queries/lineage.py",
        "if below != source.tables or select.hides:",
        "if select.hides and not below:",
        (_KINDS,),
    ),
    Mutant(
        "a pipeline that folds late changes",
        "pipelines/sequence_folding.py",
        "s.{latest} IS NULL OR f.{least} > s.{latest}",
        "true",
        (_PROPERTY,),
    ),
    Mutant(
        "a pipeline that folds changes that are as new as the row",
        "pipelines/sequence_folding.py",
        "f.{least} > s.{latest}",
        "f.{least} >= s.{latest}",
        (_PROPERTY,),
    ),
    Mutant(
        "a pipeline that brings a deleted key back",
        "pipelines/sequence_folding.py",
        "if self.sequencing.delete_when is None:",
        "if self.sequencing is not None:",
        (_SEQUENCES,),
    ),
    Mutant(
        "a pipeline that takes the end of a deleted key's history for its newest change",
        "pipelines/sequence_folding.py",
        '"true" if self.sequencing.scd == 1 else "bool_or(is_current)"',
        '"true"',
        (_SEQUENCES,),
    ),
    Mutant(
        "a pipeline that forgets what expectations left out",
        "pipelines/folding.py",
        "return txn is not None and txn.version > 0",
        "return False",
        (_SEQUENCES,),
    ),
    Mutant(
        "a pipeline that forgets the greatest change of runs before",
        "pipelines/running.py",
        "self._greatest = _greatest([self._greatest, greatest_seen(now)])",
        "self._greatest = _greatest([self._greatest])",
        (_SEQUENCES,),
    ),
    Mutant(
        "a pipeline that appends the rows of deletes and updates",
        "rollups/change.py",
        "if may_append(each)]",
        "if each.adds]",
        (_PROPERTY,),
    ),
    Mutant(
        "a pipeline that appends a source's rows again where changes are gone",
        "pipelines/planning.py",
        "    if (reason := _why_unknown(target, source.snapshot)) is not None:",
        "    if (reason := _why_unknown(target, source.snapshot)) == 'none':",
        (_RUNS,),
    ),
    Mutant(
        "a pipeline that lets null meet an expectation",
        "pipelines/computing.py",
        ") IS TRUE",
        ") IS NOT FALSE",
        (_PROPERTY,),
    ),
    Mutant(
        "a pipeline that leaves failed rows of changed units in the quarantine",
        "pipelines/running.py",
        "        done.quarantined += kept.adds\n        return list(files)",
        "        return []",
        (_PROPERTY,),
    ),
    Mutant(
        "a pipeline that takes another query for the same",
        "pipelines/declarations/definition.py",
        '"the query": not _same_query(one.query, other.query),',
        '"the query": False,',
        (_RUNS,),
    ),
    Mutant(
        "a pipeline that shares the rows of all sources out by the values of the first",
        "pipelines/splitting.py",
        "step.query.sources[int(of_source[1] or 0)]",
        "step.query.sources[0]",
        (_PROPERTY,),
    ),
    Mutant(
        "a pipeline that shares out the rows of a query that may give another value for the same rows",
        "pipelines/kinds.py",
        "    if varying is not None:\n",
        "    if varying is not None and declaration.kind is not None:\n",
        (_KINDS,),
    ),
    Mutant(
        "a pipeline that takes the rows of one table for rows of their own, whatever the query",
        "pipelines/splitting.py",
        "    values: list[str] = []\n    for each in step.kind.parts:\n",
        "    values: list[str] = []\n    for each in ():\n",
        (_PROPERTY,),
    ),
    Mutant(
        "a branch that is published with a pipeline's progress in its own versions",
        "operations/branches/branch_publish.py",
        "changed = [with_published_progress(each, tables, app_id) for each in own]",
        "changed = own",
        (_PUBLISHED,),
    ),
    Mutant(
        "a published table that takes what its source gained on the branch after its last run for its own",
        "operations/branches/published_progress.py",
        "    if any(commit.changes_rows for commit in later):\n        return None\n",
        "",
        (_PUBLISHED,),
    ),
    Mutant(
        "a published table that reads once more what was published with it",
        "operations/changes/shown_versions.py",
        "if is_shown(each) else each",
        "if is_shown is None else each",
        (_PUBLISHED,),
    ),
    Mutant(
        "a published table that takes what came to the lake since the cut for its own",
        "operations/branches/published_progress.py",
        "else shown_beyond(state.metadata.id, first, transactions",
        "else shown_beyond(state.metadata.id, txn.version + 1, transactions",
        (_PUBLISHED,),
    ),
)
