"""All objects of a table, sorted by what they are for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from alluvia.delta.log.paths import LOG_FOLDER, SIDECAR_FOLDER, CheckpointFile, CommitFile, parse_name
from alluvia.delta.partitioning.hive import holds_no_data
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.reading.change_files import CHANGE_FOLDER
from alluvia.store import ObjectInfo

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
    found = Objects()
    for info in (replace(each, key=each.key[len(root) :]) for each in infos):
        _place(found, info.key)[info.key] = info
    for info in found.log.values():
        file = parse_name(info.key.removeprefix(LOG_FOLDER))
        if isinstance(file, CommitFile):
            found.commits[file.version] = info
    _find_checkpoints(found)
    return found


def _place(found: Objects, key: str) -> dict[str, ObjectInfo]:
    if key.rpartition("/")[2].startswith("."):  # such as the checksums of Hadoop's file systems
        return found.hidden
    for folder, place in (
        (SIDECAR_FOLDER, found.sidecars),
        (LOG_FOLDER, found.log),
        (CHANGE_FOLDER, found.changes),
        (WINDOW_FOLDER, found.windows),
    ):
        if key.startswith(folder):
            return place
    return found.hidden if holds_no_data(key) else found.other


def _find_checkpoints(found: Objects) -> None:
    candidates: dict[tuple[int, str, int], list[CheckpointFile]] = {}
    for key in found.log:
        file = parse_name(key.removeprefix(LOG_FOLDER))
        if isinstance(file, CheckpointFile):
            candidates.setdefault((file.version, file.name if file.v2 else "", file.parts), []).append(file)
    for (version, _, parts), files in sorted(candidates.items()):
        whole = tuple(sorted(files, key=lambda file: file.part))
        if {file.part for file in files} == set(range(1, parts + 1)):
            found.checkpoints.setdefault(version, []).append(whole)
        else:
            found.incomplete.append(whole)
