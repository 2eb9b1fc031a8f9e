"""DELETE and UPDATE of the rows for which one condition holds."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import AddFile
from alluvia.delta.promoted_fields import columns_settled, settled
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.assignments import assignments
from alluvia.engine.conditions.columnar import definite
from alluvia.engine.conditions.condition import ROWS_AT_ONCE, condition
from alluvia.engine.queries.tokens import masked
from alluvia.operations.merge_query.folding import check_edit
from alluvia.operations.reading.datafile import DataFile
from alluvia.operations.rows.edits import Edit, Hits, RowChanges, delete_metrics, moves_rows, update_metrics
from alluvia.operations.rows.row_changes import change_rows


def delete(handle: TableHandle, where: str) -> RowChanges:
    """Delete the rows that match an SQL condition, in one commit; no commit if no row matches.

    Only files that can match are read, and only those with matching rows change: they are rewritten without them, or
    get a deletion vector if the table has `delta.enableDeletionVectors`. A file whose partition values or statistics
    say that all rows match is removed without being read. Raises `Invalid` for an append-only table, or if `where` is
    not a condition.
    """
    return change_rows(handle, "delete", lambda snapshot: DeleteEdit(snapshot, where))


def update(handle: TableHandle, values: Mapping[str, str], where: str | None = None) -> RowChanges:
    """Set columns of the rows for which an SQL condition holds (of all without one), in one commit.

    `values` has an SQL expression for each column, over the row as it was. Files are read and written as `delete` does;
    a row whose partition or place in the file's order changes goes into a new file. Raises `Invalid`, naming the
    column, where a value does not fit, is null though it must not be, or breaks a CHECK constraint; and for an
    append-only table.
    """
    return change_rows(handle, "update", lambda snapshot: UpdateEdit(snapshot, values, where or "true"))


class WhereEdit(Edit):
    """An edit of all rows for which one SQL condition holds. Raises `Invalid` if the text is not a condition."""

    updates = False

    def __init__(self, snapshot: Snapshot, where: str) -> None:
        self.condition = condition(where, snapshot.schema)
        self.parameters = {"predicate": masked(where)}
        self.predicate = self.condition.predicate
        self._columns = list(self.condition.columns) or snapshot.schema.names[:1]

    def find(self, data: DataFile) -> Hits | None:
        masks: list[pa.BooleanArray] = []
        start = 0
        for batch in data.batches(self._columns, rows=self.condition.rows_at_once):
            live = data.live.slice(start, len(batch))
            start += len(batch)
            if live.true_count == len(batch):
                masks.append(definite(self.condition.mask(batch)))
            else:
                masks.append(pc.replace_with_mask(live, live, definite(self.condition.mask(pc.filter(batch, live)))))
        mask = pa.concat_arrays(masks) if masks else pa.array([], pa.bool_())
        if not mask.true_count:
            return None
        return Hits(mask, pa.repeat(pa.scalar(value=True, type=pa.bool_()), mask.true_count) if self.updates else None)


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

    def metrics(self, done: RowChanges, changes: Changes) -> dict[str, int]:
        return delete_metrics(done, changes)


class UpdateEdit(WhereEdit):
    """Matching rows get new values."""

    operation = "UPDATE"
    updates = True

    def __init__(self, snapshot: Snapshot, values: Mapping[str, str], where: str) -> None:
        check_edit(snapshot, "update", None)
        self._assignments = assignments(values, snapshot.schema)
        super().__init__(snapshot, where)
        self._promoted = snapshot.promoted
        self.columns_set = columns_settled(self._assignments.names, self._promoted)
        self.in_place = not moves_rows(snapshot, self.columns_set)

    def renew(self, rows: pa.Table, hits: Hits) -> pa.Table:  # noqa: ARG002
        given = self._assignments.apply(rows)
        new = dict(zip(given.column_names, given.columns, strict=True))
        columns = [new.get(name, column) for name, column in zip(rows.column_names, rows.columns, strict=True)]
        return settled(pa.Table.from_arrays(columns, schema=rows.schema), given.column_names, self._promoted)

    def metrics(self, done: RowChanges, changes: Changes) -> dict[str, int]:
        return update_metrics(done, changes)
