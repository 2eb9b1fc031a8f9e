"""From an edit's outcomes to one commit, and to a report of it: what delete, update and upsert share."""

from __future__ import annotations

from collections.abc import Sequence

from alluvia.operations.replanning import RowChanges
from alluvia.operations.rewriting import Outcome, Rewriter
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Changes, Commit


def row_changes(rewriter: Rewriter, outcomes: Sequence[Outcome], now_ms: int) -> Changes:
    """Return what to commit for the outcomes of a version's files."""
    changed = [outcome for outcome in outcomes if outcome.changed]
    adds = [outcome.add for outcome in changed if outcome.add is not None]
    return Changes(
        rewriter.edit.operation,
        dict(rewriter.edit.parameters),
        adds=[*adds, *(add for part in rewriter.parts for add in part.adds)],
        removes=[outcome.file.removed(now_ms, data_change=True) for outcome in changed],
        cdc=[file for part in rewriter.parts for file in part.cdc],
        files_read=frozenset(outcome.file.key for outcome in changed),
    )


def report(
    commit: Commit | None,
    snapshot: Snapshot,
    changes: Changes | None,
    outcomes: Sequence[Outcome],
    tries: int,
    inserted: int = 0,
) -> RowChanges:
    """Return what was done, or what was found where there was nothing to do."""
    changed = [outcome for outcome in outcomes if outcome.changed]
    read = sum(outcome.rows > 0 or not outcome.changed for outcome in outcomes)
    if commit is None or changes is None:
        return RowChanges(snapshot.version, snapshot.timestamp_ms, files_read=read, tries=tries)
    return RowChanges(
        commit.version,
        commit.timestamp_ms,
        inserted,
        sum(outcome.updated for outcome in changed),
        rows_deleted(changed),
        sum(outcome.copied for outcome in changed),
        read,
        len(changes.adds),
        len(changes.removes),
        tries,
    )


def rows_deleted(changed: Sequence[Outcome]) -> int | None:
    """Return the number of rows that go; None if a file goes whole without anyone knowing how many it holds."""
    counts = [outcome.deleted for outcome in changed]
    known = [number for number in counts if number is not None]
    return sum(known) if len(known) == len(counts) else None
