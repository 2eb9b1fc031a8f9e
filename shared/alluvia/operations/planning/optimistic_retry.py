"""Common parts of plans that write: retries after a lost race, marks of applications, and the removal of unused files.

A planner keeps the parts of a lost plan that are still valid, so a retry costs only what the winners changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import Commit
from alluvia.delta.log.actions import AddFile
from alluvia.delta.properties import APPEND_ONLY, PIPELINE, ROLLUP
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import (
    AlluviaError,
    Conflict,
    Corrupt,
    Invalid,
    MetadataChanged,
    ObjectNotFound,
    ProtocolChanged,
    TableDropped,
    TransactionExpired,
)

OWN_IDS = "alluvia."
"""The beginning of application ids in records of the library: of a source's version, of a branch that was published."""


class Once(NamedTuple):
    """A transaction of an application that has no other: its number says which it is, not how many came before."""

    app_id: str
    number: int


def check_txn(txn: tuple[str, int]) -> None:
    """Raise `Invalid` unless it is an application id that Alluvia does not use itself, and a number."""
    app_id, version = txn if isinstance(txn, tuple) and len(txn) == 2 else (None, None)
    number = isinstance(version, int) and not isinstance(version, bool) and 0 <= version < 1 << 63
    if not isinstance(app_id, str) or not app_id or not number:
        raise Invalid(f"txn: expected a string and a number from 0 to 2**63 - 1, got {txn!r}")
    if app_id.startswith(OWN_IDS):
        raise Invalid(f"txn: application ids that begin with {OWN_IDS} are Alluvia's own, got {app_id!r}: use another")


def applied(snapshot: Snapshot, txn: tuple[str, int]) -> Commit | None:
    """Return a commit for a transaction that the table holds already. A negative number is one that was undone."""
    recorded = snapshot.state.txns.get(txn[0])
    if recorded is None or recorded.version < (0 if isinstance(txn, Once) else txn[1]):
        return None
    return Commit(snapshot.version, snapshot.timestamp_ms, 0, 0)


LOST = (MetadataChanged, ProtocolChanged, TableDropped)
"""What a commit raises that has lost to a change of the table, once it has seen the winner in its place."""
_logger = logging.getLogger(__name__)


@contextmanager
def discarding(handle: TableHandle, snapshot: Snapshot, adds: Sequence[AddFile]) -> Iterator[None]:
    """Delete files that were written for one commit where that loses to a change of the table, and raise what it did.

    After any other error the commit may have happened, or happen yet, or be tried again with these files.
    """
    try:
        yield
    except LOST:
        discard(handle, snapshot, adds)
        raise


@contextmanager
def discarding_unfinished(handle: TableHandle, snapshot: Snapshot) -> Iterator[list[AddFile]]:
    """Delete the files that a block has put into the list, if it fails: no commit has been tried with them."""
    adds: list[AddFile] = []
    try:
        yield adds
    except Exception:
        discard(handle, snapshot, adds)
        raise


def discard(handle: TableHandle, snapshot: Snapshot, adds: Sequence[AddFile]) -> None:
    """Delete files that no commit names or will name. A caller that may not delete leaves them to vacuum."""
    try:
        handle.store.delete([snapshot.key(add) for add in adds])
    except AlluviaError as error:
        _logger.info("table %s: files without a commit are left to vacuum: %s", handle.name, error)


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


def check_not_derived(snapshot: Snapshot, what: str) -> None:
    """Raise `Invalid` for a rollup, or a table of a pipeline, whose rows follow from other tables'."""
    if ROLLUP in snapshot.properties:
        raise Invalid(
            f"{what}: table {snapshot.name} is a rollup, which only refresh writes: change its source instead"
        )
    if PIPELINE in snapshot.properties and what != "erase":
        raise Invalid(
            f"{what}: table {snapshot.name} belongs to a pipeline, and only its runs write it: change its sources "
            "instead"
        )
