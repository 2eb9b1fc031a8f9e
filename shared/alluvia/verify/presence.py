"""Which of the files that a table names exist, according to one listing. Pure.

A file that is not in the listing may still exist: it may have been written during the listing, or be outside the table.
The caller checks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from alluvia.delta.deletion_vectors.descriptors import StoredVector, stored_vector
from alluvia.delta.log.actions import AddFile, RemoveFile
from alluvia.errors import AlluviaError, Corrupt, Unsupported
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import ObjectInfo
from alluvia.store.base import LINK
from alluvia.verify.objects import Objects

Locate = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """An object that a live file needs: its key in the store, its path, and its bytes, exact for a data file.

    `info` is what the listing says of it, None if it is not there.
    """

    key: str
    path: str
    file: AddFile
    size: int
    exact: bool
    info: ObjectInfo | None


def wanted_objects(
    files: Iterable[AddFile], objects: Objects, root: str, locate: Locate
) -> Iterator[Wanted | tuple[str, AddFile, str]]:
    """Yield what live files need; for what cannot be told, the kind of finding, the file and the reason.

    `locate` is `Snapshot.locate`.
    """
    for file in files:
        try:
            yield _wanted(locate(file.path), file.path, file, file.size, objects, root, exact=True)
        except Unsupported as error:
            yield "file-outside-lake", file, str(error)
        if file.deletion_vector is None:
            continue
        try:
            stored = stored_vector(file.deletion_vector)
        except (Corrupt, Unsupported) as error:
            yield "deletion-vector-unreadable", file, f"data file {file.path}: {error}"
            continue
        try:
            if stored is not None:
                yield _wanted(locate(stored.path), stored.path, file, stored.end, objects, root, exact=False)
        except Unsupported as error:
            yield "file-outside-lake", file, str(error)


def _wanted(key: str, path: str, file: AddFile, size: int, objects: Objects, root: str, *, exact: bool) -> Wanted:
    info = objects.get(key[len(root) :]) if key.startswith(root) else None
    info = None if info is not None and info.etag == LINK else info
    return Wanted(key, path, file, size, exact, info)


def named_paths(files: Iterable[AddFile | RemoveFile], root: str, locate: Locate) -> set[str]:
    """Return the keys below the root of all that some files need, deletion vectors too."""
    found: set[str] = set()
    for file in files:
        for path in paths_of(file):
            try:
                found.add(locate(path)[len(root) :])
            except AlluviaError:  # outside of the lake: it is not in the listing
                continue
    return found


def paths_of(file: AddFile | RemoveFile) -> list[str]:
    """Return the path of a file, and that of its deletion vector if that is in a file of its own and can be told."""
    try:
        stored: StoredVector | None = None if file.deletion_vector is None else stored_vector(file.deletion_vector)
    except AlluviaError:
        stored = None
    return [file.path] if stored is None else [file.path, stored.path]
