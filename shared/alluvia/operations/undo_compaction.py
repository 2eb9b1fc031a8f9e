"""Undo compactions of a table: what they have read comes back, in the place of what they have written. Pure.

Who changes rows of a file that was compacted meanwhile would have to find them among others in new files. Whoever began
long ago, as a branch, cannot plan again; but as long as nobody changed what a compaction wrote, it can be undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from alluvia.lazy_dataclasses import dataclass
from alluvia.log.actions import AddFile
from alluvia.log.commit import CommitActions
from alluvia.log.replay import State
from alluvia.table.changes import Changes
from alluvia.table.properties import OLDEST_READABLE

UNDO = "UNDO OPTIMIZE"


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """The compactions to undo, by version: files to put back and to remove.

    `oldest` is the oldest version that must be readable, so that no vacuum has taken what is put back.
    """

    versions: tuple[int, ...]
    adds: tuple[AddFile, ...]
    removes: tuple[AddFile, ...]
    oldest: int

    def changes(self, now_ms: int) -> Changes:
        """Return the commit that undoes them."""
        return Changes(
            UNDO,
            {"versions": ", ".join(map(str, self.versions))},
            adds=[replace(file, data_change=False) for file in self.adds],
            removes=[file.removed(now_ms, data_change=False) for file in self.removes],
            can_match=lambda _: False,
            domains_read=frozenset({OLDEST_READABLE}),
        )


def plan_undo(base: State, commits: Sequence[CommitActions], now: State, wanted: Iterable[str]) -> UndoPlan | None:
    """Return what brings some files of `base`, by their keys, back into `now`; `commits` are those between the two.

    None where they are all there, or where rows of them have changed, alone or in the files that they were moved to.
    """
    moved_by = {remove.key: commit for commit in commits if is_compaction(commit) for remove in commit.removes}
    undone: dict[int, CommitActions] = {}
    gone = [key for key in wanted if now.files.get(key) is None]
    while gone:
        move = moved_by.get(gone.pop())
        if move is None:
            return None
        if move.version not in undone:
            undone[move.version] = move
            gone += [add.key for add in move.adds if now.files.get(add.key) is None]
    written = {add.key: add for move in undone.values() for add in move.adds}
    read = {remove.key: move.version for move in undone.values() for remove in move.removes}
    known = {add.key: add for commit in commits for add in commit.adds}
    back = [known.get(key) or base.files.get(key) for key in read if key not in written]
    if not back or None in back or any(now.files.get(file.key) is not None for file in back if file is not None):
        return None
    later = [version for key, version in read.items() if key not in written and base.files.get(key) is None]
    return UndoPlan(
        tuple(sorted(undone)),
        tuple(file for file in back if file is not None),
        tuple(add for key, add in written.items() if key not in read),
        min(later, default=now.version + 1) - 1,
    )


def is_compaction(commit: CommitActions) -> bool:
    """Whether a commit only moves rows into other files."""
    plain = commit.metadata is None and commit.protocol is None and not commit.cdc
    return plain and bool(commit.adds and commit.removes) and not commit.data_change
