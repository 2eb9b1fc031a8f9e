"""Overdue checkpoints: the writer that notices one has it written in the background, and does not wait.

Optimize writes checkpoints when they are due. If it does not run, a cold process has to read all commits since the
last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock

from alluvia.commit.handle import TableHandle
from alluvia.errors import AlluviaError
from alluvia.operations.checkpointing.checkpoint import checkpoint, checkpoint_due

FILES_MAX = 200_000
"""With more files, a checkpoint takes more memory than a writer may have: it is left to optimize, and to the alarm."""

_logger = logging.getLogger(__name__)
_lock = Lock()
_under_way: set[tuple[str, str]] = set()


def checkpoint_overdue(handle: TableHandle, then: Callable[[TableHandle], object] | None = None) -> None:
    """Write a checkpoint in the background, if no other writer has written one in the meantime.

    After it, `then` is called with a copy of the handle.
    """
    table = (handle.store.uri, handle.root)
    with _lock:
        if table in _under_way:
            return
        _under_way.add(table)
    pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
    pool.submit(partial(_checkpoint, handle, table, then))
    pool.shutdown(wait=False)


def _checkpoint(handle: TableHandle, table: tuple[str, str], then: Callable[[TableHandle], object] | None) -> None:
    """Write a checkpoint by a copy of the handle, since one in use would stay locked. The handle goes on from it.

    It reads nothing but `_last_checkpoint`, which names the checkpoint that another writer may have written.
    """
    try:
        own = handle.copy()
        snapshot = own.at_hand()
        hint = own.log.hint()
        if hint is not None and hint.version > (own.log.checkpoint_version or -1):
            own.log.checkpoint_version = hint.version
        if checkpoint_due(own, snapshot) and snapshot.files.expected_len <= FILES_MAX:
            checkpoint(own)
            if then is not None:
                then(own)
        handle.log.take_checkpoint(own.log)
    except AlluviaError as error:
        _logger.warning("table %s has no new checkpoint, though one is overdue: %s", handle.name, error)
    finally:
        with _lock:
            _under_way.discard(table)
