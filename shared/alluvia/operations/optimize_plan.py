"""Which files optimize rewrites together. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from alluvia.log.actions import AddFile
from alluvia.table.partitioning.partition import layout_of

FULL_SHARE = 0.75
"""A file of this share of the target is left alone: it is as good as full."""
DELETED_SHARE = 0.05
"""A file of which a deletion vector deletes more than this share is worth rewriting for that alone."""
GROWTH_MAX = 8
"""A file joins smaller ones only if it is at most this many times as big as they are together, so that a big file is
not written again for every few small ones."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition that become one file."""

    files: tuple[AddFile, ...]

    @property
    def size(self) -> int:
        """Bytes of the files together."""
        return sum(file.size for file in self.files)


def plan_optimize(files: Iterable[AddFile], target_size: int, *, full: bool = False) -> list[FileGroup]:
    """Group the small files of each partition, smallest first, into files of about `target_size` bytes.

    `full` takes whatever fits, also a big file with a few small ones. Groups come in the order of their partitions.
    """
    partitions: dict[object, list[AddFile]] = {}
    for file in files:
        if file.size < target_size * FULL_SHARE or is_thinned(file, full=full):
            partitions.setdefault(layout_of(file), []).append(file)
    groups: list[FileGroup] = []
    for layout in sorted(partitions, key=repr):
        groups += _groups(sorted(partitions[layout], key=lambda file: (file.size, file.path)), target_size, full=full)
    return groups


def is_thinned(file: AddFile, *, full: bool = False) -> bool:
    """Whether enough rows of a file are deleted to rewrite it, even if it is big or alone; `full`: any at all."""
    live, rows = file.live_records, file.num_records
    if live is None or not rows:
        return False
    return rows - live > rows * (0 if full else DELETED_SHARE)


def _groups(files: list[AddFile], target_size: int, *, full: bool) -> list[FileGroup]:
    groups: list[FileGroup] = []
    taken: list[AddFile] = []
    size = 0
    for file in files:
        too_big = taken and not full and file.size > GROWTH_MAX * size
        if taken and (size + file.size > target_size or too_big):
            groups.append(FileGroup(tuple(taken)))
            taken, size = [], 0
        taken.append(file)
        size += file.size
    groups.append(FileGroup(tuple(taken)))
    return [group for group in groups if len(group.files) > 1 or is_thinned(group.files[0], full=full)]
