"""Delete the rows that match a condition."""

from __future__ import annotations

import pyarrow as pa

from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.condition import ROWS_AT_ONCE
from alluvia.operations.merge_query.folding import check_edit
from alluvia.operations.rows.edits import RowChanges, WhereEdit, vectors_added
from alluvia.operations.rows.row_changes import change_rows


def delete(handle: TableHandle, where: str) -> RowChanges:
    """Delete the rows that match an SQL condition, in one commit; no commit if no row matches.

    Only files that can match are read, and only those with matching rows change: they are rewritten without them, or
    get a deletion vector if the table has `delta.enableDeletionVectors`. A file whose partition values or statistics
    say that all rows match is removed without being read. Raises `Invalid` for an append-only table, or if `where` is
    not a condition.
    """
    return change_rows(handle, "delete", lambda snapshot: DeleteEdit(snapshot, where))


class DeleteEdit(WhereEdit):
    """Matching rows are deleted."""

    operation = "DELETE"
    rows_at_once = ROWS_AT_ONCE

    def __init__(self, snapshot: Snapshot, where: str) -> None:
        super().__init__(snapshot, where)
        check_edit(snapshot, "delete", self.condition.columns)
        self._staying = Scan(snapshot, self.condition.complement)

    def goes_whole(self, file: AddFile) -> bool:
        """Whether no row of a file can be one that the condition does not hold for."""
        return not self._staying.can_match(file)

    def renew(self, rows: pa.Table, sources: pa.Int64Array) -> pa.Table:  # noqa: ARG002
        return rows.slice(0, 0)

    def metrics(self, done: RowChanges, changes: Changes) -> dict[str, int]:
        return delete_metrics(done, changes)


def delete_metrics(done: RowChanges, changes: Changes) -> dict[str, int]:
    """Return what the history says of a delete."""
    metrics = {
        "numAddedFiles": len(changes.adds),
        "numCopiedRows": done.rows_copied,
        "numDeletionVectorsAdded": vectors_added(changes),
        "numAddedChangeFiles": len(changes.cdc),
    }
    return metrics if done.rows_deleted is None else metrics | {"numDeletedRows": done.rows_deleted}
