"""Changing the rows that one condition holds for: what delete and update share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.expressions.condition import Condition
from alluvia.operations.datafile import DataFile
from alluvia.operations.edits import Edit, Hits
from alluvia.operations.replanning import RowChanges, check_not_append_only, commit_planned
from alluvia.operations.rewriting import Outcome, Rewriter
from alluvia.operations.row_changes import report, row_changes
from alluvia.table.handle import TableHandle
from alluvia.table.masks import count, definite
from alluvia.table.scan import Scan
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Changes

ReadEdit = Callable[[Snapshot], tuple[Edit, Condition]]
"""Returns the edit for a table as it is now, and the condition that its rows meet."""
Metrics = Callable[[Sequence[Outcome], Changes], dict[str, int]]
"""Counts for the table's history, from the outcomes of files that change and from what is committed."""


def change_where(handle: TableHandle, name: str, read_edit: ReadEdit, metrics: Metrics) -> RowChanges:
    """Carry an edit out in one commit; none where no row meets its condition.

    Only files that can match are read. Raises `Invalid` for an append-only table, with the operation's `name`.
    """
    plans = _Plans(handle, name, read_edit, metrics)
    commit, snapshot, tries = commit_planned(handle, plans.plan)
    return report(commit, snapshot, plans.changes, plans.outcomes, tries)


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


class _Plans:
    """The plans of one operation: each takes over from the one before what still holds."""

    def __init__(self, handle: TableHandle, name: str, read_edit: ReadEdit, metrics: Metrics) -> None:
        self.outcomes: list[Outcome] = []
        self.changes: Changes | None = None
        self._handle = handle
        self._name = name
        self._read_edit = read_edit
        self._metrics = metrics
        self._planned: tuple[Snapshot, Rewriter, Condition] | None = None

    def plan(self, snapshot: Snapshot) -> Changes | None:
        """Return what to commit on a version; None where no row of it matches."""
        check_not_append_only(snapshot, self._name)
        rewriter, condition = self._rewriter(snapshot)
        scan = Scan(snapshot, condition.predicate)
        self.outcomes = rewriter.work(snapshot, scan.files)
        changed = [outcome for outcome in self.outcomes if outcome.changed]
        self.changes = None
        if changed:
            self.changes = row_changes(rewriter, self.outcomes, self._handle.clock.now_ms())
            self.changes.can_match = scan.can_match
            self.changes.metrics = self._metrics(changed, self.changes)
        return self.changes

    def _rewriter(self, snapshot: Snapshot) -> tuple[Rewriter, Condition]:
        if self._planned is None or self._planned[0].state.metadata != snapshot.state.metadata:
            edit, condition = self._read_edit(snapshot)
            self._planned = snapshot, Rewriter(self._handle, snapshot, edit), condition
        return self._planned[1], self._planned[2]
