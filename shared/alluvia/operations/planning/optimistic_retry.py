"""Operations that read before they write: planned on the newest version, and again after each lost race.

A planner keeps the parts of a lost plan that are still valid, so a retry costs only what the winners changed.
"""

from __future__ import annotations

from collections.abc import Callable

from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import Commit
from alluvia.delta.properties import APPEND_ONLY, ROLLUP
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Conflict, Corrupt, Invalid, ObjectNotFound, TransactionExpired

TRIES_MAX = 100
Plan = Callable[[Snapshot], Changes | None]


def commit_planned(handle: TableHandle, plan: Plan) -> tuple[Commit | None, Snapshot, int]:
    """Commit what `plan` makes of the newest version; where a winner changed what it rests on, plan again.

    `plan` returns None where nothing is to be done. Returns the commit, the version that the last plan was made for,
    and the number of plans. A transaction over its maximum age starts again. Raises the last `Conflict` after
    `TRIES_MAX` plans.
    """
    snapshot = handle.newest()
    lost: Conflict | None = None
    for tries in range(1, TRIES_MAX + 1):
        transaction = handle.transaction(snapshot)
        try:
            changes = plan(snapshot)
            if changes is None and handle.carry_out(snapshot):  # then there may be something to do
                snapshot = handle.newest()
                continue
            commit = None if changes is None else transaction.commit(changes)
            if commit is None:
                handle.store.check_lasts()
        except ObjectNotFound as error:
            newest = handle.newest()
            if newest.version == snapshot.version:
                handle.store.check_lasts()
                raise Corrupt(f"data file {error} of version {snapshot.version} is missing") from error
            snapshot = newest
        except Corrupt:
            handle.store.check_lasts()  # of a branch that was discarded, files are missing
            raise
        except TransactionExpired as error:
            lost, snapshot = error, handle.newest()
        except Conflict as error:
            lost, snapshot = error, handle.at_hand()
        else:
            return commit, snapshot, tries
    msg = f"{handle.name}: planned {TRIES_MAX} times, and lost each race: try again when fewer writers are active"
    raise type(lost or Conflict())(msg) from lost


def check_not_append_only(snapshot: Snapshot, what: str) -> None:
    """Raise `Invalid` for a table from which nothing may be deleted."""
    if snapshot.settings.append_only:
        msg = f"{what}: table {snapshot.name} is append-only; set {APPEND_ONLY} to 'false' with evolve(…) first"
        raise Invalid(msg)


def check_not_rollup(snapshot: Snapshot, what: str) -> None:
    """Raise `Invalid` for a rollup, whose rows follow from another table's."""
    if ROLLUP in snapshot.properties:
        raise Invalid(
            f"{what}: table {snapshot.name} is a rollup, which only refresh writes: change its source instead"
        )
