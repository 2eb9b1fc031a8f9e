"""Delete the data files of a commit that can no longer happen: no other process knows their names."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from alluvia.commit.handle import TableHandle
from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import AlluviaError, MetadataChanged, ProtocolChanged, TableDropped

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


def discard(handle: TableHandle, snapshot: Snapshot, adds: Sequence[AddFile]) -> None:
    """Delete files that no commit names or will name. A caller that may not delete leaves them to vacuum."""
    try:
        handle.store.delete([snapshot.key(add) for add in adds])
    except AlluviaError as error:
        _logger.info("table %s: files of a commit that lost a race are left to vacuum: %s", handle.name, error)
