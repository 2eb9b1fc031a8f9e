"""The parts of a table that go into a copy: the files of a version, and the part of the log that it needs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from alluvia.commit.commit_records import DECISIONS
from alluvia.commit.event_window.id_files import ID_FOLDER
from alluvia.commit.event_window.index import WINDOW_FOLDER
from alluvia.commit.intents import TableAt
from alluvia.delta.deletion_vectors.descriptors import stored_vector
from alluvia.delta.log.paths import LOG_FOLDER, SIDECAR_FOLDER, CheckpointFile, CommitFile, parse_name
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.backup.backup_record import BackupRecord
from alluvia.operations.tables.drop import DROP_HINT

_WINDOW = re.compile(rf"{WINDOW_FOLDER}(\d+)\.arrow", re.ASCII)
CHECKPOINTS = 2
"""Versions with checkpoints of which the log is copied: of the newest, a file may still be on its way."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The `data` files and `log` files of a table to copy, sizes in bytes by key; and facts about the copy.

    `decisions` are the keys of those on transactions over several tables that have happened by the moment, but are not
    in the table's log. No others may go along. `files` are the paths and sizes of the version's own files, in order.
    """

    name: str
    root: str
    version: int
    is_dropped: bool
    data: Mapping[str, int]
    log: Mapping[str, int]
    decisions: Sequence[str]
    files: Sequence[tuple[str, int]]

    def check(self, there: Mapping[str, int], record: BackupRecord) -> None:
        """Raise `Invalid` if the copy of the table has versions that no backup has written."""
        newest = max(map(_commit_of, self._names(there)), default=-1)
        known = record.newest(self.name)
        if newest > known:
            raise Invalid(
                f"backup: the copy of table {self.name} was written to: it has version {newest}, and the last backup "
                f"left version {known}. Choose an empty place"
            )
        if newest > self.version:
            raise Invalid(f"backup: table {self.name} was created again since the last backup. Choose an empty place")

    def _names(self, keys: Mapping[str, int]) -> Sequence[str]:
        start = f"{self.root}{LOG_FOLDER}"
        return [key.removeprefix(start) for key in keys if key.startswith(start)]


def plan_table(
    snapshot: Snapshot, at: TableAt, sizes: Mapping[str, int], known: int, *, dropped: bool
) -> TablePlan | None:
    """Return what to copy of a table at a moment; None if it has files of other tables.

    `sizes` are those of its objects. The copy has the version `known`, -1 for none: its log goes on from there.
    """
    data: dict[str, int] = {}
    for file in snapshot.files:
        data[snapshot.key(file)] = file.size
        stored = None if file.deletion_vector is None else stored_vector(file.deletion_vector)
        if stored is not None:
            key = snapshot.locate(stored.path)
            data[key] = sizes.get(key, 0)
    if not all(key.startswith(snapshot.root) for key in data):
        return None
    names = {key: parse_name(key.removeprefix(f"{snapshot.root}{LOG_FOLDER}")) for key in sizes}
    checkpoints = {
        each.version for each in names.values() if isinstance(each, CheckpointFile) and each.version <= at.version
    }
    first = sorted(checkpoints)[-CHECKPOINTS:][0] if checkpoints else 0
    first = min(first, known + 1) if known >= 0 else first
    log = {
        key: size
        for key, size in sizes.items()
        if _is_needed(key.removeprefix(snapshot.root), names[key], first, at.version)
    }
    files = sorted((file.path, file.size) for file in at.state.files)
    decisions = [f"{min(each.tables)}/{DECISIONS}{each.transaction_id}.json" for each in at.claims]
    return TablePlan(snapshot.name, snapshot.root, at.version, dropped, data, log, decisions, files)


def _is_needed(name: str, file: CommitFile | CheckpointFile | None, first: int, last: int) -> bool:
    """Whether a version of a table needs an object of its log, by its name below the table's root."""
    if file is not None:
        return first <= file.version <= last
    window = _WINDOW.fullmatch(name)
    if window is not None:
        return first <= int(window[1]) <= last
    return name.startswith((SIDECAR_FOLDER, ID_FOLDER, DROP_HINT))


def _commit_of(name: str) -> int:
    file = parse_name(name)
    return file.version if isinstance(file, CommitFile) else -1
