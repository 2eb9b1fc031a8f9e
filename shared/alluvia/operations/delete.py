"""Deleting the rows that match a condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.log.actions import AddFile
from alluvia.operations.datafile import DataFile
from alluvia.operations.edits import Condition, Hits
from alluvia.operations.replanning import RowChanges, check_not_append_only, commit_planned
from alluvia.operations.rewriting import Outcome, Rewriter
from alluvia.operations.row_changes import matcher, report, row_changes, rows_deleted
from alluvia.table.handle import TableHandle
from alluvia.table.masks import count, definite
from alluvia.table.skipping import prune
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Changes


def delete(handle: TableHandle, where: str, condition: Callable[[str, pa.Schema], Condition]) -> RowChanges:
    """Delete the rows for which an SQL condition holds, in one commit; none where no row matches.

    Only files that can match are read, and only those with matching rows change: written again without them, or given a
    deletion vector where the table has `delta.enableDeletionVectors`. A file all of whose rows match by its partition
    values or statistics goes without being read. `condition` reads a condition on columns of a schema. Raises `Invalid`
    for an append-only table, or for a condition that is none.
    """
    work = _Delete(handle, where, condition)
    commit, snapshot, tries = commit_planned(handle, work.plan)
    return report(commit, snapshot, work.changes, work.outcomes, tries)


class _Delete:
    """The plans of one delete: each takes over from the one before what still holds."""

    def __init__(self, handle: TableHandle, where: str, condition: Callable[[str, pa.Schema], Condition]) -> None:
        self.outcomes: list[Outcome] = []
        self.changes: Changes | None = None
        self._handle = handle
        self._where = where
        self._read_condition = condition
        self._planned: tuple[Snapshot, Rewriter, Condition] | None = None

    def plan(self, snapshot: Snapshot) -> Changes | None:
        """Return what to commit on a version; None where no row of it matches."""
        check_not_append_only(snapshot, "delete")
        rewriter, condition = self._rewriter(snapshot)
        self.outcomes = rewriter.work(snapshot, snapshot.prune(condition.predicate))
        changed = [outcome for outcome in self.outcomes if outcome.changed]
        self.changes = None
        if changed:
            self.changes = row_changes(rewriter, self.outcomes, self._handle.clock.now_ms())
            self.changes.can_match = matcher(snapshot, condition.predicate)
            self.changes.metrics = _metrics(self.outcomes, self.changes)
        return self.changes

    def _rewriter(self, snapshot: Snapshot) -> tuple[Rewriter, Condition]:
        if self._planned is None or self._planned[0].state.metadata != snapshot.state.metadata:
            condition = self._read_condition(self._where, snapshot.schema)
            edit = DeleteEdit(snapshot, condition, {"predicate": self._where})
            self._planned = snapshot, Rewriter(self._handle, snapshot, edit), condition
        return self._planned[1], self._planned[2]


class DeleteEdit:
    """Rows that match go."""

    operation = "DELETE"
    in_place = False

    def __init__(self, snapshot: Snapshot, condition: Condition, parameters: Mapping[str, str]) -> None:
        self.parameters = parameters
        self._schema = snapshot.schema
        self._partition_columns = snapshot.partition_columns
        self._condition = condition

    def goes_whole(self, file: AddFile) -> bool:
        """Whether no row of a file can be one that the condition does not hold for."""
        return not prune([file], self._condition.complement, self._schema, self._partition_columns)

    def find(self, data: DataFile) -> Hits | None:
        """Return the rows that match."""
        return find(data, self._condition, self._schema)

    def renew(self, rows: pa.Table, sources: pa.Int64Array | None) -> pa.Table:  # noqa: ARG002
        """Return no rows: none is updated."""
        return rows.slice(0, 0)


def find(data: DataFile, condition: Condition, schema: pa.Schema, *, updated: bool = False) -> Hits | None:
    """Return the rows of a file, of those not yet deleted, for which a condition holds; None if there are none."""
    columns = list(condition.columns) or schema.names[:1]
    masks: list[pa.BooleanArray] = []
    start = 0
    for batch in data.batches(columns):
        live = data.live.slice(start, len(batch))
        start += len(batch)
        masks.append(pc.replace_with_mask(live, live, definite(condition.mask(batch.filter(live)))))
    mask = pa.concat_arrays(masks) if masks else pa.array([], pa.bool_())
    if not count(mask):
        return None
    return Hits(mask, pa.repeat(pa.scalar(value=True), count(mask)) if updated else None)


def _metrics(outcomes: Sequence[Outcome], changes: Changes) -> dict[str, int]:
    changed = [outcome for outcome in outcomes if outcome.changed]
    metrics = {
        "numAddedFiles": len(changes.adds),
        "numCopiedRows": sum(outcome.copied for outcome in changed),
        "numDeletionVectorsAdded": sum(add.deletion_vector is not None for add in changes.adds),
        "numAddedChangeFiles": len(changes.cdc),
    }
    deleted = rows_deleted(changed)
    return metrics if deleted is None else metrics | {"numDeletedRows": deleted}
