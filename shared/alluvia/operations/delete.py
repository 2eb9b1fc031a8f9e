"""Deleting the rows that match a condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from alluvia.expressions.condition import Condition, condition
from alluvia.log.actions import AddFile
from alluvia.operations.datafile import DataFile
from alluvia.operations.edits import Edit, Hits
from alluvia.operations.replanning import RowChanges
from alluvia.operations.rewriting import Outcome
from alluvia.operations.row_changes import rows_deleted
from alluvia.operations.rows_where import change_where, find
from alluvia.table.handle import TableHandle
from alluvia.table.scan import Scan
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Changes


def delete(handle: TableHandle, where: str) -> RowChanges:
    """Delete the rows for which an SQL condition holds, in one commit; none where no row matches.

    Only files that can match are read, and only those with matching rows change: written again without them, or given a
    deletion vector where the table has `delta.enableDeletionVectors`. A file all of whose rows match by its partition
    values or statistics goes without being read. Raises `Invalid` for an append-only table, or for a condition that is
    none.
    """

    def edit(snapshot: Snapshot) -> tuple[Edit, Condition]:
        read = condition(where, snapshot.schema)
        return DeleteEdit(snapshot, read, {"predicate": where}), read

    return change_where(handle, "delete", edit, _metrics)


class DeleteEdit:
    """Rows that match go."""

    operation = "DELETE"
    in_place = False

    def __init__(self, snapshot: Snapshot, condition: Condition, parameters: Mapping[str, str]) -> None:
        self.parameters = parameters
        self._schema = snapshot.schema
        self._condition = condition
        self._staying = Scan(snapshot, condition.complement)

    def goes_whole(self, file: AddFile) -> bool:
        """Whether no row of a file can be one that the condition does not hold for."""
        return not self._staying.can_match(file)

    def find(self, data: DataFile) -> Hits | None:
        """Return the rows that match."""
        return find(data, self._condition, self._schema)

    def renew(self, rows: pa.Table, sources: pa.Int64Array | None) -> pa.Table:  # noqa: ARG002
        """Return no rows: none is updated."""
        return rows.slice(0, 0)


def _metrics(changed: Sequence[Outcome], changes: Changes) -> dict[str, int]:
    metrics = {
        "numAddedFiles": len(changes.adds),
        "numCopiedRows": sum(outcome.copied for outcome in changed),
        "numDeletionVectorsAdded": sum(add.deletion_vector is not None for add in changes.adds),
        "numAddedChangeFiles": len(changes.cdc),
    }
    deleted = rows_deleted(changed)
    return metrics if deleted is None else metrics | {"numDeletedRows": deleted}
