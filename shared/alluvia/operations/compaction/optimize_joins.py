"""Which small files of different partition values optimize joins, where too many are small. Pure.

A query for one value then reads a file of about the target where it read a small one. So files are joined only where
more than a quarter of those that could be are small, and nothing else is left to merge.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby

from alluvia.delta.log.actions import AddFile
from alluvia.delta.partitioning.spans import hull
from alluvia.operations.compaction.optimize_cuts import OVER_SHARE, SMALL_SHARE
from alluvia.operations.compaction.optimize_files import Candidate
from alluvia.operations.compaction.optimize_plan import CUT_TARGETS_MAX, FileGroup, filled, tiers

SMALL_FILES_MAX = 1 / 4
"""If more than this share of the files are small, those of different values are joined."""
FILES_MIN = 8
"""Fewer files than this are left as they are."""


def plan_joins(
    candidates: Iterable[Candidate], target: int, files_like: Callable[[AddFile], int], *, full: bool = False
) -> list[FileGroup]:
    """Return groups of small files, each of which becomes one file; the smallest first.

    `target` is in bytes. `files_like` says how many files of the table have a file's values of the partition columns:
    Delta has others in no file with them. `full` also joins a file with a few rows to one that waits for more.
    """
    small = [each for each in candidates if each.file.size < target * SMALL_SHARE and not each.cell]
    groups: list[FileGroup] = []
    for _, members in groupby(sorted(small, key=_place), key=_partition):
        files = list(members)
        if len(files) < 2 or not _too_many(len(files), files_like(files[0].file)):
            continue
        groups += _joined(files, target, full=full)
    return sorted(groups, key=lambda group: (group.weight, group.files[0].file.path))


def _partition(each: Candidate) -> tuple[tuple[str, bool, str], ...]:
    """Return the values of the partition columns, in a form that can be sorted."""
    return tuple((name, text is None, text or "") for name, text in sorted(each.file.partition_values.items()))


def _place(each: Candidate) -> tuple[object, ...]:
    return (_partition(each), each.span.low, each.span.high, each.file.path)


def _too_many(small: int, files: int) -> bool:
    return files >= FILES_MIN and small > files * SMALL_FILES_MAX


def _joined(files: Sequence[Candidate], target: int, *, full: bool) -> Iterator[FileGroup]:
    """Join neighbours, in the order of their values, until they are a file of about the target.

    What remains is too little for one: it waits for more rows, in few files.
    """
    spanning = _spanning(files, target)
    chains = _chains([each for each in files if each.file.path not in spanning], target)
    rest = chains.pop() if chains and _weight(chains[-1]) < target * SMALL_SHARE else []
    if chains and _weight(chains[-1]) + _weight(rest) <= target * OVER_SHARE:
        chains[-1] += rest
        rest = []
    waiting = [*rest, *(each for each in files if each.file.path in spanning)]
    chains += tiers(sorted(waiting, key=lambda each: (each.weight, each.file.path)), target, full=full)
    for chain in chains:
        if len(chain) > 1:
            yield FileGroup(tuple(chain), joined=not hull(each.span for each in chain).single)


def _chains(files: Sequence[Candidate], target: int) -> list[list[Candidate]]:
    """Divide files, in order, so that each part but the last is expected to be a file that is not small."""

    def ends(size: int, more: int) -> bool:
        return size >= target * SMALL_SHARE and size + more > target

    return list(filled(files, ends, CUT_TARGETS_MAX * target))


def _spanning(files: Sequence[Candidate], target: int) -> set[str]:
    """Return the paths of the files among whose values more than a target of the other files begins.

    Joined to a neighbour, they would have a full file of rows read for every value in between.
    """
    starts = [each.span.low for each in files]
    before = list(accumulate((each.weight for each in files), initial=0))
    return {
        each.file.path
        for each in files
        if before[bisect_right(starts, each.span.high)] - before[bisect_left(starts, each.span.low)] - each.weight
        > target
    }


def _weight(files: Iterable[Candidate]) -> int:
    return sum(each.weight for each in files)
