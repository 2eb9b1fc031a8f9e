"""The progress of a derived table that is published from a branch, in records that hold on the lake. Pure.

On the branch, the table shows versions of the branch. If no rows of a source changed there after the version that the
table has read, it shows the lake's source as it was when the branch was cut, and the commit of the publish, whatever
others have committed in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from alluvia.delta.lineage import is_dropped
from alluvia.delta.log.actions import Txn
from alluvia.operations.branches.branch_changes import BranchedTable
from alluvia.operations.changes.shown_versions import UNKNOWN, shown_beyond, shown_id


def with_published_progress(table: BranchedTable, written: Iterable[BranchedTable], marker: str) -> BranchedTable:
    """Return a table with records of its sources that hold on the lake. `written` are all tables of the branch.

    `marker` is the application id that each commit of the publish carries.
    """
    txns = dict(table.tip.txns)
    for source in written:
        first = source.commits[0].version
        for state in (source.tip, source.base):
            txn = None if state is None else txns.get(shown_id(state.metadata.id))
            if state is None or txn is None or txn.version < first:  # the lake has the version, too
                continue
            transactions = _transactions_shown(source, state.metadata.id, txn.version, marker)
            records = (
                [Txn(txn.app_id, UNKNOWN, txn.last_updated)]
                if transactions is None
                else shown_beyond(state.metadata.id, first, transactions, txn.last_updated)
            )
            txns |= {each.app_id: each for each in records}
    return replace(table, tip=replace(table.tip, txns=txns))


def _transactions_shown(source: BranchedTable, table_id: str, version: int, marker: str) -> list[str] | None:
    """Return the transactions after the cut that a table shows once it has read a version of the branch.

    None where no set of the lake's commits has these rows: others changed later on the branch, or the source is not
    published.
    """
    if source.tip.metadata.id != table_id or is_dropped(source.tip.metadata.configuration):
        return None
    later = source.commits[version - source.commits[0].version + 1 :]
    if any(commit.changes_rows for commit in later):
        return None
    if source.is_rollup and source.kind is not None:
        return None
    published = [] if source.kind is None else [marker]
    return [*published, *source.held]
