"""The files of a clone: those of another table, named where they are, or copied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import unquote

from alluvia.commit.handle import TableHandle
from alluvia.delta.deletion_vectors.descriptors import renamed_vector, stored_vector
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.fields import Json
from alluvia.delta.log.paths import encode_path, folder_of, is_absolute, is_own_name
from alluvia.delta.snapshot import Snapshot
from alluvia.store import Store


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
