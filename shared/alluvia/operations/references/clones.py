"""Files of other tables, or of earlier versions, that clones and branches name, and what keeps them there.

A clone's files of another table become fewer, never more: what it writes is its own, and restore and undrop bring back
only versions that can be read. So once its oldest readable version has none, none that comes later has any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from urllib.parse import unquote

import orjson

from alluvia.commit.handle import TableHandle
from alluvia.commit.versions import in_reach, oldest_readable
from alluvia.commit.warm_table import WarmTable
from alluvia.delta.deletion_vectors.descriptors import renamed_vector, stored_vector
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.fields import Json
from alluvia.delta.log.paths import encode_path, folder_of, is_absolute, is_own_name
from alluvia.delta.refs import CLONE, FILES, OWNER, OWNER_ID, Keeper, find_tagged, keepers_of, put_over
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ObjectNotFound, TableNotFound, Unsupported, VersionExpired
from alluvia.operations.references.branch_store import NOT_THERE, BranchStore
from alluvia.store import Store


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


def shared_files(snapshot: Snapshot, store: Store) -> list[AddFile]:
    """Return the files of a version under the URIs at which they are."""
    return [
        replace(
            file,
            path=_uri(store, snapshot, file.path),
            deletion_vector=_shared_vector(store, snapshot, file.deletion_vector),
            data_change=True,
            uri=None,
        )
        for file in snapshot.files
    ]


def _uri(store: Store, snapshot: Snapshot, path: str) -> str:
    """Return a path of a log, decoded, as an absolute URI."""
    key = snapshot.locate(path)
    if is_absolute(path) and "://" in path:
        return path
    root = unquote(store.uri) if store.uri.startswith("file:") else store.uri
    return f"{root.rstrip('/')}/{key}"


def is_below(add: AddFile, handle: TableHandle) -> bool:
    """Whether a file that is named by its URI, or its deletion vector, lies in the folder of a table."""
    stored = None if add.deletion_vector is None else stored_vector(add.deletion_vector)
    keys = [handle.store.locate(each) for each in (add.path, None if stored is None else stored.path) if each]
    return any(key is not None and key.startswith(handle.root) for key in keys)


def _shared_vector(store: Store, snapshot: Snapshot, descriptor: Json | None) -> Json | None:
    stored = None if descriptor is None else stored_vector(descriptor)
    if descriptor is None or stored is None:
        return descriptor
    uri = encode_path(_uri(store, snapshot, stored.path))
    return {**descriptor, "storageType": "p", "pathOrInlineDv": uri}


def copied_files(snapshot: Snapshot, target: TableHandle, files: Iterable[AddFile] | None = None) -> list[AddFile]:
    """Copy the files of a version, all by default, and their deletion vectors, below a table's root.

    Returns the copies.
    """
    store, clock = target.store, target.clock
    vectors: dict[str, str] = {}
    adds = []
    copies: list[tuple[str, str]] = []
    for file in snapshot.files if files is None else files:
        kind = "part" if is_own_name(file.path) else "copy"  # what others wrote is read with care
        path = f"{folder_of(file.path)}{kind}-{clock.new_id()}.parquet"
        copies.append((snapshot.key(file), target.root + path))
        descriptor = file.deletion_vector
        stored = None if descriptor is None else stored_vector(descriptor)
        if descriptor is not None and stored is not None:
            identity = vectors.setdefault(stored.path, clock.new_id())
            descriptor = renamed_vector(descriptor, identity)
        adds.append(replace(file, path=path, deletion_vector=descriptor, data_change=True, uri=None))
    for path, identity in vectors.items():
        copies.append((snapshot.locate(path), f"{target.root}deletion_vector_{identity}.bin"))
    store.map(lambda each: store.copy(*each), copies)
    return adds


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
    tagged = find_tagged(handle.store, keeper.table, CLONE, keeper.name)
    if tagged is None or tagged[0] != replace(keeper, stored_ms=tagged[0].stored_ms):
        return False
    keys = sorted({key for file in files for key in _keys(kept, file) if key.startswith(handle.root)})
    text = orjson.dumps([key[len(handle.root) :] for key in keys]).decode()
    return put_over(handle.store, replace(keeper, details={**keeper.details, FILES: text}), tagged[1])


def _oldest(handle: TableHandle, keeper: Keeper) -> Snapshot | None:
    """Return the oldest version in a clone's log that can be read; None where versions of the clone may come after it.

    Where tags or branches keep versions of the clone, it may need all that it ever had: None, too. Raises
    `TableNotFound`.
    """
    name, own = keeper.details.get(OWNER), keeper.details.get(OWNER_ID)
    if name is None or own is None:  # who knows what for
        return None
    clone = WarmTable(handle.store, f"{name}/", name, handle.clock, follows=False)
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
    """Whether a file lies below a root, or its deletion vector; also where that is unknown, outside the lake."""
    try:
        return any(key.startswith(root) for key in _keys(snapshot, file))
    except Unsupported:
        return True
