"""What a branch names again of an earlier version of a table: files that nobody keeps for it become its own."""

from __future__ import annotations

from collections.abc import Sequence

from alluvia.commit.handle import TableHandle
from alluvia.delta.deletion_vectors.descriptors import stored_vector
from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ObjectNotFound, VersionExpired
from alluvia.operations.references.branch_store import NOT_THERE, BranchStore
from alluvia.operations.references.clones import copied_files


def held(handle: TableHandle, source: Snapshot, adds: Sequence[AddFile]) -> list[AddFile]:
    """Return files of a version of a table as they may be added to it again: on a branch, some of them copied.

    The lake keeps for a branch what the version has that the branch began with, and nothing older. Raises
    `VersionExpired` where vacuum of the lake was faster.
    """
    store = handle.store
    if not isinstance(store, BranchStore) or not adds:
        return list(adds)
    kept: set[str] = set()
    if (version := store.base(handle.name)) != NOT_THERE:
        with handle.lock:
            state = handle.log.at(version)
        base = Snapshot(state, handle.root, handle.name, store)
        kept = {key for file in base.files for key in _keys(base, file)}
    lent = [file for file in adds if not all(key in kept or store.owns(key) for key in _keys(source, file))]
    try:
        copies = copied_files(source, handle, lent)
    except ObjectNotFound as error:
        raise VersionExpired(
            f"version {source.version} of {handle.name} is gone: neither the branch nor the lake keeps it"
        ) from error
    paths = {file.key for file in lent}
    return [*(file for file in adds if file.key not in paths), *copies]


def _keys(snapshot: Snapshot, file: AddFile) -> list[str]:
    stored = None if file.deletion_vector is None else stored_vector(file.deletion_vector)
    return [snapshot.key(file), *([] if stored is None else [snapshot.locate(stored.path)])]
