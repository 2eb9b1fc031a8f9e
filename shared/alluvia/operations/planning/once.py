"""Changes that an application makes once: recognized by its id and number, as the table's log records them. Pure."""

from __future__ import annotations

from typing import NamedTuple

from alluvia.commit.transaction import Commit
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid


class Once(NamedTuple):
    """A transaction of an application that has no other: its number says which it is, not how many came before."""

    app_id: str
    number: int


def check_txn(txn: tuple[str, int]) -> None:
    """Raise `Invalid` unless it is an application id and a number."""
    app_id, version = txn if isinstance(txn, tuple) and len(txn) == 2 else (None, None)
    number = isinstance(version, int) and not isinstance(version, bool) and 0 <= version < 1 << 63
    if not isinstance(app_id, str) or not app_id or not number:
        raise Invalid(f"txn: expected a string and a number from 0 to 2**63 - 1, got {txn!r}")


def applied(snapshot: Snapshot, txn: tuple[str, int]) -> Commit | None:
    """Return a commit for a transaction that the table holds already. A negative number is one that was undone."""
    recorded = snapshot.state.txns.get(txn[0])
    if recorded is None or recorded.version < (0 if isinstance(txn, Once) else txn[1]):
        return None
    return Commit(snapshot.version, snapshot.timestamp_ms, 0, 0)
