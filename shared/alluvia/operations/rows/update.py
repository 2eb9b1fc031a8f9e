"""Set new values in some columns of the rows that match a condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.assignments import assignments
from alluvia.operations.merge_query.folding import check_edit
from alluvia.operations.rows.edits import RowChanges, WhereEdit, vectors_added
from alluvia.operations.rows.row_changes import change_rows


def update(handle: TableHandle, values: Mapping[str, str], where: str | None = None) -> RowChanges:
    """Set columns of the rows for which an SQL condition holds (of all without one), in one commit.

    `values` has an SQL expression for each column, over the row as it was. Files are read and written as `delete` does;
    a row whose partition or place in the file's order changes goes into a new file. Raises `Invalid`, naming the
    column, where a value does not fit, is null though it must not be, or breaks a CHECK constraint; and for an
    append-only table.
    """
    return change_rows(handle, "update", lambda snapshot: UpdateEdit(snapshot, values, where or "true"))


class UpdateEdit(WhereEdit):
    """Rows that match get new values."""

    operation = "UPDATE"
    updates = True

    def __init__(self, snapshot: Snapshot, values: Mapping[str, str], where: str) -> None:
        check_edit(snapshot, "update", None)
        self._assignments = assignments(values, snapshot.schema)
        super().__init__(snapshot, where)
        self.columns_set = self._assignments.names
        self.in_place = not moves_rows(snapshot, self.columns_set)

    def renew(self, rows: pa.Table, sources: pa.Int64Array) -> pa.Table:  # noqa: ARG002
        return with_columns(rows, self._assignments.apply(rows))

    def metrics(self, done: RowChanges, changes: Changes) -> dict[str, int]:
        return update_metrics(done, changes)


def update_metrics(done: RowChanges, changes: Changes) -> dict[str, int]:
    """Return what the history says of an update."""
    return {
        "numAddedFiles": len(changes.adds),
        "numUpdatedRows": done.rows_updated,
        "numCopiedRows": done.rows_copied,
        "numDeletionVectorsAdded": vectors_added(changes),
        "numAddedChangeFiles": len(changes.cdc),
    }


def moves_rows(snapshot: Snapshot, columns: Sequence[str]) -> bool:
    """Whether new values of some columns can move a row to another file, or elsewhere in its file's order."""
    settings = snapshot.settings
    placing = {field.column for field in snapshot.partition_spec.fields}.union(settings.sort_by, settings.cluster_by)
    return not placing.isdisjoint(columns)


def with_columns(rows: pa.Table, values: pa.Table) -> pa.Table:
    """Return rows with some columns replaced."""
    given = dict(zip(values.column_names, values.columns, strict=True))
    columns = [given.get(name, column) for name, column in zip(rows.column_names, rows.columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=rows.schema)
