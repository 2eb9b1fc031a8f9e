"""Writing a checkpoint: the state in one file, and beside it the window of event ids, so that opening stays cheap."""

from __future__ import annotations

from alluvia.operations.ingest import open_window
from alluvia.table.handle import TableHandle
from alluvia.table.protocols import check_writable
from alluvia.table.snapshot import Snapshot
from alluvia.table.window import index_name, write_index


def checkpoint(handle: TableHandle) -> int:
    """Write a checkpoint of the newest version that the handle knows, and return that version.

    The index of event ids goes first: where there is a checkpoint of ours, there is its index.
    """
    with handle.lock:
        snapshot = handle.at_hand()
        check_writable(snapshot.state.protocol, snapshot.state.metadata)
        if handle.log.checkpoint_version == snapshot.version:
            return snapshot.version
        window = open_window(handle.log)
        if len(window):
            handle.store.put(handle.root + index_name(snapshot.version), write_index(window))
        handle.log.checkpoint(snapshot.state, handle.clock.now_ms() - snapshot.settings.file_retention_ms)
        return snapshot.version


def checkpoint_due(handle: TableHandle, snapshot: Snapshot) -> bool:
    """Whether as many commits as `delta.checkpointInterval` says have come since the last checkpoint."""
    last = handle.log.checkpoint_version
    return snapshot.version - (0 if last is None else last) >= snapshot.settings.checkpoint_interval
