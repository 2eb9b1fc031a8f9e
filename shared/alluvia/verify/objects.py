"""All objects of a table, sorted by what they are for. Pure.

A file that is not in the listing may still exist: it may have been written during the listing, or be outside the table.
The caller checks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace

from alluvia.delta.deletion_vectors.descriptors import StoredVector, stored_vector
from alluvia.delta.log.actions import AddFile, RemoveFile
from alluvia.delta.log.paths import LOG_FOLDER, SIDECAR_FOLDER, CheckpointFile, CommitFile, parse_name
from alluvia.delta.partitioning.values import holds_no_data
from alluvia.errors import AlluviaError, Corrupt, Unsupported
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.reading.change_files import CHANGE_FOLDER
from alluvia.store import ObjectInfo
from alluvia.store.base import LINK

WINDOW_FOLDER = "_alluvia/window/"
Checkpoint = tuple[CheckpointFile, ...]


@dataclass(slots=True)
class Objects:
    """The objects below a table's root, by key relative to it.

    `commits` and `checkpoints` are by version; a version may have several checkpoints. `other` has data files and
    deletion vectors, but nothing below a hidden folder.
    """

    log: dict[str, ObjectInfo] = field(default_factory=dict)
    sidecars: dict[str, ObjectInfo] = field(default_factory=dict)
    changes: dict[str, ObjectInfo] = field(default_factory=dict)
    windows: dict[str, ObjectInfo] = field(default_factory=dict)
    other: dict[str, ObjectInfo] = field(default_factory=dict)
    hidden: dict[str, ObjectInfo] = field(default_factory=dict)
    commits: dict[int, ObjectInfo] = field(default_factory=dict)
    checkpoints: dict[int, list[Checkpoint]] = field(default_factory=dict)
    incomplete: list[Checkpoint] = field(default_factory=list)

    def get(self, key: str) -> ObjectInfo | None:
        """Return what was listed under a key."""
        places = (self.other, self.changes, self.hidden, self.log)
        return next((place[key] for place in places if key in place), None)

    @property
    def newest(self) -> int:
        """Return the highest version that the log names; -1 for none."""
        return max((*self.commits, *self.checkpoints), default=-1)

    @property
    def newest_checkpoint(self) -> int:
        """Return the version of the newest complete checkpoint; -1 for none."""
        return max(self.checkpoints, default=-1)

    def add_commit(self, version: int, info: ObjectInfo) -> None:
        """Take a commit that was found after the listing."""
        self.log[info.key] = self.commits[version] = info


def sort_objects(infos: Iterable[ObjectInfo], root: str) -> Objects:
    """Sort the objects of a listing of a table's root."""
    objects = Objects()
    for info in (replace(each, key=each.key[len(root) :]) for each in infos):
        _place(objects, info.key)[info.key] = info
    for info in objects.log.values():
        file = parse_name(info.key.removeprefix(LOG_FOLDER))
        if isinstance(file, CommitFile):
            objects.commits[file.version] = info
    _find_checkpoints(objects)
    return objects


def _place(objects: Objects, key: str) -> dict[str, ObjectInfo]:
    if key.rpartition("/")[2].startswith("."):  # such as the checksums of Hadoop's file systems
        return objects.hidden
    for folder, place in (
        (SIDECAR_FOLDER, objects.sidecars),
        (LOG_FOLDER, objects.log),
        (CHANGE_FOLDER, objects.changes),
        (WINDOW_FOLDER, objects.windows),
    ):
        if key.startswith(folder):
            return place
    return objects.hidden if holds_no_data(key) else objects.other


def _find_checkpoints(objects: Objects) -> None:
    candidates: dict[tuple[int, str, int], list[CheckpointFile]] = {}
    for key in objects.log:
        file = parse_name(key.removeprefix(LOG_FOLDER))
        if isinstance(file, CheckpointFile):
            candidates.setdefault((file.version, file.name if file.v2 else "", file.parts), []).append(file)
    for (version, _, parts), files in sorted(candidates.items()):
        whole = tuple(sorted(files, key=lambda file: file.part))
        if {file.part for file in files} == set(range(1, parts + 1)):
            objects.checkpoints.setdefault(version, []).append(whole)
        else:
            objects.incomplete.append(whole)


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
    paths: set[str] = set()
    for file in files:
        for path in paths_of(file):
            try:
                paths.add(locate(path)[len(root) :])
            except AlluviaError:  # outside of the lake: it is not in the listing
                continue
    return paths


def paths_of(file: AddFile | RemoveFile) -> list[str]:
    """Return the path of a file, and that of its deletion vector if that is in a file of its own and can be told."""
    try:
        stored: StoredVector | None = None if file.deletion_vector is None else stored_vector(file.deletion_vector)
    except AlluviaError:
        stored = None
    return [file.path] if stored is None else [file.path, stored.path]
