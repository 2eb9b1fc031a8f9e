"""Overdue checkpoints: the writer that notices one has it written in the background, and does not wait.

Optimize writes checkpoints when they are due. If it does not run, a cold process has to read all commits since the
last.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from alluvia.errors import AlluviaError
from alluvia.operations.checkpoint import checkpoint, checkpoint_due
from alluvia.table.handle import TableHandle

FILES_MAX = 200_000
"""With more files, a checkpoint takes more memory than a writer may have: it is left to optimize, and to the alarm."""

_logger = logging.getLogger(__name__)
_lock = Lock()
_under_way: set[tuple[str, str]] = set()


def checkpoint_overdue(handle: TableHandle) -> None:
    """Write a checkpoint in the background, if no other writer has written one in the meantime."""
    table = (handle.store.uri, handle.root)
    with _lock:
        if table in _under_way:
            return
        _under_way.add(table)
    pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
    pool.submit(_checkpoint, handle, table)
    pool.shutdown(wait=False)


def _checkpoint(handle: TableHandle, table: tuple[str, str]) -> None:
    """Write a checkpoint by a handle of its own, since one in use would stay locked, and tell the other handle."""
    own = TableHandle(handle.store, handle.root, handle.name, handle.clock)
    try:
        snapshot = own.newest()
        if checkpoint_due(own, snapshot) and snapshot.totals[0] <= FILES_MAX:
            checkpoint(own)
        with handle.lock:
            if (own.log.checkpoint_version or -1) > (handle.log.checkpoint_version or -1):
                handle.log.checkpoint_version = own.log.checkpoint_version
    except AlluviaError as error:
        _logger.warning("table %s has no new checkpoint, though one is overdue: %s", handle.name, error)
    finally:
        with _lock:
            _under_way.discard(table)
