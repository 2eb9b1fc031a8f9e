"""Whether the keeper of a shallow clone is still needed by it.

A clone's files of another table become fewer, never more: what it writes is its own, and restore and undrop bring back
only versions that can be read. So once its oldest readable version has none, none that comes later has any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import orjson

from alluvia.commit.handle import TableHandle, in_reach, oldest_readable
from alluvia.delta.deletion_vectors.descriptors import stored_vector
from alluvia.delta.log.actions import AddFile
from alluvia.delta.refs import CLONE, FILES, OWNER, OWNER_ID, Keeper, find_tagged, keepers_of, put_over
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import TableNotFound, Unsupported

CLOCKS_MS_MAX = 60 * 60 * 1000
"""The clock of a writer and that of the store are apart by no more than this."""


def is_orphan(handle: TableHandle, keeper: Keeper) -> bool:
    """Whether no version that can be read of a clone has files of a table, which a keeper keeps for it.

    For keepers that are older than any clone takes to be made. Two LISTs, and what opening the clone costs.
    """
    try:
        oldest = _oldest(handle, keeper)
    except TableNotFound:  # it was never made
        return True
    return oldest is not None and not any(_uses(oldest, file, handle.root) for file in oldest.files)


def still_used(handle: TableHandle, keeper: Keeper, kept: Snapshot, files: Sequence[AddFile]) -> list[AddFile]:
    """Return those files of a kept version of a table that the clone, which it is kept for, can still read."""
    try:
        oldest = _oldest(handle, keeper)
    except TableNotFound:  # it may be on its way
        oldest = None
    if oldest is None:
        return list(files)
    used = {key for file in oldest.files for key in _keys(oldest, file)}
    return [file for file in files if not used.isdisjoint(_keys(kept, file))]


def keep_only(handle: TableHandle, keeper: Keeper, kept: Snapshot, files: Sequence[AddFile]) -> bool:
    """Have a clone's keeper keep only some files of its version. False if it has been released or changed meanwhile."""
    found = find_tagged(handle.store, keeper.table, CLONE, keeper.name)
    if found is None or found[0] != replace(keeper, stored_ms=found[0].stored_ms):
        return False
    keys = sorted({key for file in files for key in _keys(kept, file) if key.startswith(handle.root)})
    text = orjson.dumps([key[len(handle.root) :] for key in keys]).decode()
    return put_over(handle.store, replace(keeper, details={**keeper.details, FILES: text}), found[1])


def _oldest(handle: TableHandle, keeper: Keeper) -> Snapshot | None:
    """Return the oldest version in a clone's log that can be read; None where versions of the clone may come after it.

    Where somebody keeps versions of the clone, it may need all that it ever had: None, too. Raises `TableNotFound`.
    """
    name, own = keeper.details.get(OWNER), keeper.details.get(OWNER_ID)
    if name is None or own is None:  # who knows what for
        return None
    clone = TableHandle(handle.store, f"{name}/", name, handle.clock, follows=False)
    newest = clone.newest(dropped=True)
    # A moment of the lake before the keeper was put is one before the clone was there.
    put_ms = min(keeper.created_ms, keeper.stored_ms) - CLOCKS_MS_MAX
    kept = keepers_of(clone.store, clone.root, name).keepers
    if any(each.table is not None or each.moment >= put_ms for each in kept):
        return None
    with clone.lock:
        oldest = clone.log.at(max(oldest_readable(newest.state), clone.log.oldest()))
    # By ids, since clocks differ: the log may have begun with another table, and go on with one.
    ended = newest.state.metadata.id == oldest.metadata.id and own not in {t.table_id for t in in_reach(newest.state)}
    if oldest.metadata.id != own and not ended:
        return None
    return Snapshot(oldest, clone.root, name, clone.store)


def _uses(snapshot: Snapshot, file: AddFile, root: str) -> bool:
    """Whether a file lies below a root, or its deletion vector; or nobody can tell, as it is outside the lake."""
    try:
        return any(key.startswith(root) for key in _keys(snapshot, file))
    except Unsupported:
        return True


def _keys(snapshot: Snapshot, file: AddFile) -> list[str]:
    stored = None if file.deletion_vector is None else stored_vector(file.deletion_vector)
    return [snapshot.key(file), *([] if stored is None else [snapshot.locate(stored.path)])]
