"""Undo compactions of a table: the files that they read come back, and those that they wrote go. Pure.

A change of rows of a file that was compacted meanwhile would have to find them among others in new files. A writer that
began long ago, such as a branch, cannot plan again; but while the compaction's files are unchanged, it can be undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from alluvia.commit.changes import Changes
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.replay import State
from alluvia.delta.properties import OLDEST_READABLE
from alluvia.lazy_dataclasses import dataclass

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

    def winner(self, version: int) -> CommitActions:
        """Return what the conflict rules see of the commit that undoes them."""
        changes = self.changes(0)
        return CommitActions(version, adds=changes.adds, removes=changes.removes)

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

    Each compaction writes the rows that it reads. So if the files that some of them have read and not written are
    gone, and those that they have written and not read are there, then the ones hold the rows of the others.
    """
    removed_by = {remove.key: commit for commit in commits for remove in commit.removes}
    undone: dict[int, CommitActions] = {}
    wanted = [key for key in wanted if now.files.get(key) is None]
    gone = [*wanted]
    while gone:
        move = removed_by.get(gone.pop())
        if move is not None and is_compaction(move) and move.version not in undone:
            undone[move.version] = move
            gone += [add.key for add in move.adds if now.files.get(add.key) is None]
    times = Counter(remove.key for move in undone.values() for remove in move.removes)
    times.subtract(add.key for move in undone.values() for add in move.adds)
    known = {add.key: add for commit in commits for add in commit.adds}
    back = {key: known.get(key) or base.files.get(key) for key, number in times.items() if number > 0}
    went = {key: known[key] for key, number in times.items() if number < 0}
    once = {-1, 0, 1}.issuperset(times.values())
    fits = not any(map(now.files.get, back)) and all(map(now.files.get, went)) and back.keys() >= set(wanted)
    files = [file for file in back.values() if file is not None]
    if not back or not once or not fits or len(files) < len(back):
        return None
    later = [removed_by[key].version for key in back if base.files.get(key) is None]
    return UndoPlan(tuple(sorted(undone)), tuple(files), tuple(went.values()), min(later, default=now.version + 1) - 1)


def is_compaction(commit: CommitActions) -> bool:
    """Whether a commit only moves rows into other files."""
    plain = commit.metadata is None and commit.protocol is None and not commit.cdc
    return plain and bool(commit.adds and commit.removes) and not commit.changes_rows
