"""Giving the rows that match a condition new values in some columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from alluvia.expressions.assignments import Assignments, assignments
from alluvia.expressions.condition import Condition, condition
from alluvia.log.actions import AddFile
from alluvia.operations.datafile import DataFile
from alluvia.operations.edits import Edit, Hits
from alluvia.operations.replanning import RowChanges
from alluvia.operations.rewriting import Outcome
from alluvia.operations.rows_where import change_where, find
from alluvia.table.handle import TableHandle
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Changes


def update(handle: TableHandle, values: Mapping[str, str], where: str | None = None) -> RowChanges:
    """Set columns of the rows for which an SQL condition holds (of all without one), in one commit.

    `values` has an SQL expression for each column, over the row as it was. Files are read and written as `delete` does;
    a row whose partition or place in the file's order changes goes into a new file. Raises `Invalid`, naming the
    column, where a value does not fit, is null though it must not be, or breaks a CHECK constraint; and for an
    append-only table.
    """

    def edit(snapshot: Snapshot) -> tuple[Edit, Condition]:
        new = assignments(values, snapshot.schema)
        read = condition(where or "true", snapshot.schema)
        return UpdateEdit(snapshot, read, new, {"predicate": where or "true"}), read

    return change_where(handle, "update", edit, _metrics)


class UpdateEdit:
    """Rows that match get new values."""

    operation = "UPDATE"

    def __init__(
        self, snapshot: Snapshot, condition: Condition, assignments: Assignments, parameters: Mapping[str, str]
    ) -> None:
        self.parameters = parameters
        self.in_place = not moves_rows(snapshot, assignments.names)
        self._schema = snapshot.schema
        self._condition = condition
        self._assignments = assignments

    def goes_whole(self, file: AddFile) -> bool:  # noqa: ARG002
        """Nothing is deleted."""
        return False

    def find(self, data: DataFile) -> Hits | None:
        """Return the rows that match."""
        return find(data, self._condition, self._schema, updated=True)

    def renew(self, rows: pa.Table, sources: pa.Int64Array | None) -> pa.Table:  # noqa: ARG002
        """Return rows with their new values."""
        return with_columns(rows, self._assignments.apply(rows))


def moves_rows(snapshot: Snapshot, columns: Sequence[str]) -> bool:
    """Whether new values of some columns can move a row to another file, or elsewhere in its file's order."""
    placing = {field.column for field in snapshot.partition_spec.fields} | set(snapshot.settings.sort_by)
    return not placing.isdisjoint(columns)


def with_columns(rows: pa.Table, values: pa.Table) -> pa.Table:
    """Return rows with some columns replaced."""
    for name in values.column_names:
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), values[name])
    return rows


def _metrics(changed: Sequence[Outcome], changes: Changes) -> dict[str, int]:
    return {
        "numAddedFiles": len(changes.adds),
        "numUpdatedRows": sum(outcome.updated for outcome in changed),
        "numCopiedRows": sum(outcome.copied for outcome in changed),
        "numDeletionVectorsAdded": sum(add.deletion_vector is not None for add in changes.adds),
        "numAddedChangeFiles": len(changes.cdc),
    }
