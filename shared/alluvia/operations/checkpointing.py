"""Checkpoint tables that are due.

Optimize writes checkpoints when they are due. If it does not run, a cold process has to read all commits since the
last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock

from alluvia.commit.event_window.id_runs import EVENT_ID
from alluvia.commit.event_window.index import index_name, write_index
from alluvia.commit.handle import TableHandle
from alluvia.commit.reads import checkpointed
from alluvia.commit.warm_table import WarmTable
from alluvia.delta.log.checkpoints.writer import Form
from alluvia.delta.log.features import V2_CHECKPOINT
from alluvia.delta.protocols import check_writable
from alluvia.delta.snapshot import Snapshot
from alluvia.delta.statistics.checkpoint_form import CheckpointForm
from alluvia.errors import AlluviaError
from alluvia.operations.dedup import follow_window, open_window

TOMBSTONES_LONGER_MS = 24 * 60 * 60 * 1000


def checkpoint(handle: TableHandle, *, dropped: bool = False, anew: bool = False) -> int:
    """Write a checkpoint of the newest version that the handle knows, and return that version.

    If there is one, nothing is written, unless `anew`. With `dropped`, also of a dropped table, so that its log stays
    quick to open. The index of event ids is written first, so each of our checkpoints has one.
    """
    with handle.lock:
        snapshot = handle.at_hand(dropped=dropped)
        check_writable(snapshot.state.protocol, snapshot.state.metadata)
        v2 = has_v2_checkpoints(snapshot)
        if v2 and handle.log.base_is_old:  # it names sidecars of the checkpoint it is based on: they must exist
            handle.log.open()
            snapshot = handle.at_hand(dropped=dropped)
            v2 = has_v2_checkpoints(snapshot)
        if handle.log.checkpoint_version == snapshot.version and not anew:
            return snapshot.version
        state = checkpointed(snapshot.state) if handle.store.is_branch else snapshot.state
        if EVENT_ID in snapshot.column_names:
            window = open_window(handle.log) if handle.window is None else follow_window(handle)
            if window.version > snapshot.version:  # the log had to be opened again
                return checkpoint(handle, dropped=dropped, anew=anew)
            handle.store.put(handle.root + index_name(snapshot.version), write_index(window))
        after_ms = tombstones_after_ms(snapshot, handle.clock.now_ms())
        handle.log.checkpoint(state, after_ms, form_of(snapshot), v2=v2)
        return snapshot.version


def tombstones_after_ms(snapshot: Snapshot, now_ms: int) -> int:
    """Return the time in ms since which checkpoints name removed files.

    A day before they expire by what their commits say: a commit may have taken effect long after it was made.
    """
    return now_ms - snapshot.settings.file_retention_ms - TOMBSTONES_LONGER_MS


def form_of(snapshot: Snapshot) -> Form:
    """Return what the checkpoints of a table hold of statistics, by its properties.

    Where a column is nested too deeply to read, they are kept as they are in the log.
    """
    settings = snapshot.settings
    if snapshot.not_readable is not None:
        return Form()
    if not settings.statistics_as_struct:
        return Form(settings.statistics_as_json)
    columns = [snapshot.physical_name(name) for name in snapshot.partition_columns]
    structs = CheckpointForm(snapshot.counted_schema, columns, settings.indexed_columns)
    return Form(settings.statistics_as_json, structs)


def has_v2_checkpoints(snapshot: Snapshot) -> bool:
    """Whether a table's checkpoints are of the second kind: by property, where its protocol has the feature."""
    feature = V2_CHECKPOINT in (snapshot.protocol.writer_features or ())
    return feature and snapshot.settings.checkpoint_policy == "v2"


def checkpoint_due(handle: TableHandle, snapshot: Snapshot) -> bool:
    """Whether `delta.checkpointInterval` commits have been made since the last checkpoint."""
    last = handle.log.checkpoint_version
    return snapshot.version - (0 if last is None else last) >= snapshot.settings.checkpoint_interval


FILES_MAX = 200_000
"""With more files, a checkpoint takes more memory than a writer may have: it is left to optimize, and to the alarm."""

_logger = logging.getLogger(__name__)
_lock = Lock()
_under_way: set[tuple[str, str]] = set()


def checkpoint_overdue(handle: WarmTable, then: Callable[[WarmTable], object] | None = None) -> None:
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


def _checkpoint(handle: WarmTable, table: tuple[str, str], then: Callable[[WarmTable], object] | None) -> None:
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
