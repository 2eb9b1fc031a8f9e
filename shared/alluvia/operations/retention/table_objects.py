"""Listing and deleting the objects of a table: in this process, or elsewhere, many at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.handle import TableHandle
from alluvia.delta.log.files.file_set import scanned
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import NotDeleted
from alluvia.store import ListedPage
from alluvia.store.base import restarted

DELETE_TRIES = 3
SAMPLED = 64
"""Keys of live files that are looked at for each range of a listing."""


class TableObjects(Protocol):
    """The objects below a table's root."""

    def pages(self, after: str | None) -> Iterator[ListedPage]:
        """Yield objects in the order of their keys, those after a key below the root; None for all."""

    def delete(self, keys: Sequence[str]) -> list[str]:
        """Delete objects by their keys below the root; return those that the store refused every time."""


class OwnObjects:
    """Lists and deletes in this process."""

    def __init__(self, handle: TableHandle) -> None:
        self._handle = handle

    def pages(self, after: str | None) -> Iterator[ListedPage]:
        """One LIST for each 1,000 objects."""
        root = self._handle.root
        return self._handle.store.list_pages(root, None if after is None else root + after)

    def delete(self, keys: Sequence[str]) -> list[str]:
        """One DELETE for each 1,000 objects."""
        return delete_all(self._handle, keys)


def delete_all(handle: TableHandle, keys: Sequence[str]) -> list[str]:
    """Delete objects by their keys below the table's root; return those that the store refused every time."""
    store, root = handle.store, handle.root
    wanted: Sequence[str] = [root + key for key in keys]
    for _ in range(DELETE_TRIES):
        try:
            store.delete(wanted)
        except NotDeleted as error:
            wanted = error.keys
        else:
            return []
    return [key[len(root) :] for key in wanted]


def borders(snapshot: Snapshot, ranges: int) -> list[str]:
    """Return keys in the store, in order, that divide a table's objects into ranges of about equal size.

    They are taken from its live files; a table with few files has fewer. Pure.
    """
    step = max(1, snapshot.files.expected_len // (ranges * SAMPLED))
    sampled: list[pa.Array] = [pa.array([], pa.string())]
    for batch in scanned(snapshot.files, {}):
        paths = pc.struct_field(batch, "path")
        sampled.append(paths.take(pa.array(range(0, len(paths), step), pa.int64())))
    keys = sorted(set(restarted(pa.concat_arrays(sampled), "", snapshot.root).to_pylist()))
    return sorted({keys[at * len(keys) // ranges] for at in range(1, ranges)}) if keys else []
