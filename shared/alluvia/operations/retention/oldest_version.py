"""The record of the oldest version that stays readable, which a commit of a table makes."""

from __future__ import annotations

from dataclasses import replace

from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle, oldest_readable
from alluvia.commit.intents import pending
from alluvia.delta.log.actions import DomainMetadata
from alluvia.delta.properties import OLDEST_READABLE
from alluvia.delta.protocols import has_domains
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ConcurrentDomain, MetadataChanged, TransactionExpired

VACUUM = "VACUUM"
TRIES_MAX = 100


def settled(handle: TableHandle, operation: str) -> Snapshot:
    """Return the newest version of a table, after all transactions that claimed it were carried out or aborted.

    A commit does that: where there are claims, it records once more what is on record. It waits for a few seconds
    before it aborts a transaction.
    """
    snapshot = handle.newest(dropped=True)
    if not pending(snapshot.state.domains):
        return snapshot
    record_oldest(handle, 0, fence=True, operation=operation)
    return handle.newest(dropped=True)


def record_oldest(handle: TableHandle, oldest: int, *, fence: bool, operation: str = VACUUM) -> None:
    """Commit the oldest version that stays readable, so that a reader of an older one learns it by name.

    With `fence`, commit in any case: a writer that slept since long before then finds its version taken. Where another
    vacuum, or a change of the table, comes first, this looks again.
    """
    for tries in range(1, TRIES_MAX + 1):
        snapshot = handle.newest(dropped=True)
        known = oldest_readable(snapshot.state)
        if oldest <= known and not fence:
            return
        try:
            handle.transaction(snapshot, upkeep=True).commit(_record(snapshot, max(oldest, known), operation))
        except (ConcurrentDomain, MetadataChanged, TransactionExpired):
            if tries == TRIES_MAX:
                raise
        else:
            return


def _record(snapshot: Snapshot, oldest: int, operation: str) -> Changes:
    changes = Changes(operation, {"oldestReadableVersion": str(oldest)})
    if has_domains(snapshot.protocol):
        changes.domains = [DomainMetadata(OLDEST_READABLE, str(oldest))]
    else:
        metadata = snapshot.state.metadata
        configuration = {**metadata.configuration, OLDEST_READABLE: str(oldest)}
        changes.metadata = replace(metadata, configuration=configuration)
    return changes
