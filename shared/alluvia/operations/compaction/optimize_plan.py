"""Which files optimize rewrites together, and into what. Pure.

Files of one partition value are packed, smallest first, into files of about the target. Files that hold several values
are rewritten where they overlap, sorted by partition value and cut between values, so that no query for a value reads
more than before; a value with enough rows gets files of its own. `optimize_outputs` joins files of different values,
once nothing is left to do here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from math import ceil, inf, log

from alluvia.delta.clustering import part_cell
from alluvia.delta.partitioning.transforms import Key, Span, hull
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.compaction.optimize_cuts import (
    OVER_SHARE,
    SMALL_SHARE,
    cut_ranges,
    even_size,
    keys_within,
    worth_dividing,
)
from alluvia.operations.compaction.optimize_files import CLUSTER_FILES_MIN, Candidate

FULL_SHARE = 0.75
"""A file of this share of the target is left alone: it is as good as full."""
GROWTH_MAX = 8
"""A file joins smaller ones only if it is at most this many times as big as they are together, so that a big file is
not written again for every few small ones."""
DUE_GROWTH = 2
"""The same for merges after every few commits: rows are rewritten only after their file has grown by half."""
DUE_FILES = 16
"""A merge is due if it saves this many files. DuckDB opens them in about the time of a small query without them."""
DUE_GROUP_FILES = 8
"""Each group of a due merge saves at least this many files."""
DEPTH_MAX = 4
"""Where more full files than this overlap, they are rewritten into ones that do not."""
CUT_TARGETS_MAX = 8
"""Files of several values are rewritten this many targets at a time, which bounds a commit's size."""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """How many rows have a key."""

    key: Key
    rows: int


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition that are rewritten together. `weight` is what their rows are expected to take, in bytes.

    With `cut` their rows are cut between partition values, into about `expected` files; with `divided`, along the curve
    of a clustered table; else they become one file, of several partition values if they are `joined`.
    """

    files: tuple[Candidate, ...]
    cut: bool = False
    expected: int = 1
    divided: bool = False
    joined: bool = False

    @property
    def size(self) -> int:
        """Bytes of the files together."""
        return sum(each.file.size for each in self.files)

    @property
    def weight(self) -> int:
        """Bytes that the rewritten rows are expected to take."""
        return sum(each.weight for each in self.files)

    @property
    def span(self) -> Span:
        """Return the span of all rows."""
        return hull(each.span for each in self.files)

    def cell(self, at: int, count: int) -> str:
        """Return the cell of one of the files that the group becomes."""
        if self.cut:
            return ""
        return part_cell(self.files[0].cell, at, count) if self.divided else self.files[0].cell


def plan_optimize(
    candidates: Iterable[Candidate], target: int, growth: float = GROWTH_MAX, *, full: bool = False
) -> list[FileGroup]:
    """Return the groups of files to rewrite, the smallest first.

    `target` is in bytes. A file joins smaller ones if it is at most `growth` times as big as they are together. `full`
    takes whatever fits, also a big file with a few small ones.
    """
    growth = inf if full else growth
    values: dict[tuple[object, Key, str], list[Candidate]] = {}
    wide: dict[object, list[Candidate]] = {}
    for each in sorted(candidates, key=lambda each: (each.weight, each.file.path)):
        partition = tuple(sorted(each.file.partition_values.items()))
        if each.single:
            values.setdefault((partition, each.span.low, each.cell), []).append(each)
        else:
            wide.setdefault(partition, []).append(each)
    groups: list[FileGroup] = []
    for files in values.values():
        small = [each for each in files if _is_small(each, target)]
        groups += _divided(small, target) or _packed(small, target, growth)
        groups += _divided([each for each in files if not _is_small(each, target)], target, full=full)
    groups += [group for files in wide.values() for group in _recut(files, target, growth)]
    return sorted(groups, key=lambda group: (group.weight, group.files[0].file.path))


def _packed(files: Sequence[Candidate], target: int, growth: float) -> Iterator[FileGroup]:
    """Pack files of one value, in ascending order, into groups that hold at least about the target, if possible."""
    for tier in tiers(files, target, growth):
        if len(tier) > 1 or tier[0].thinned:
            yield FileGroup(tuple(tier), expected=ceil(_total(tier) / even_size(_total(tier), target)))


def _is_small(each: Candidate, target: int) -> bool:
    return each.thinned or each.weight < target * FULL_SHARE


def _divided(files: Sequence[Candidate], target: int, *, full: bool = False) -> list[FileGroup]:
    """Group files of a cell of a clustered table that are worth being cut along one curve, the oldest first."""
    by_age = sorted(files, key=lambda each: (each.file.modification_time, each.file.path))
    groups = []
    for chunk in _chunks(by_age, CUT_TARGETS_MAX * target):
        parts = ceil(_total(chunk) / even_size(_total(chunk), target))
        enough = _total(chunk) >= (2 if full else CLUSTER_FILES_MIN) * target * FULL_SHARE
        if enough and worth_dividing(chunk, parts):
            groups.append(FileGroup(tuple(chunk), expected=parts, divided=True))
    return groups


def tiers(files: Sequence[Candidate], target: int, growth: float) -> Iterator[list[Candidate]]:
    """Divide files, in ascending order, into those that become a file of about the target."""

    def ends(size: int, more: int) -> bool:
        # Two files that are both nearly full become a full one, and one that waits for more rows.
        return more > growth * size or (size + more > target and size >= target * FULL_SHARE)

    return filled(files, ends, CUT_TARGETS_MAX * target)


def _chunks(files: Sequence[Candidate], most: int) -> Iterator[list[Candidate]]:
    return filled(files, lambda size, more: size + more > most, most)


def filled(files: Sequence[Candidate], ends: Callable[[int, int], bool], most: int) -> Iterator[list[Candidate]]:
    """Divide files where `ends` says so, given the expected bytes of those taken and of the next one.

    Whatever is expected of them, no more than `most` bytes are read together.
    """
    taken: list[Candidate] = []
    size = read = 0
    for each in files:
        if taken and (ends(size, each.weight) or read + each.file.size > most):
            yield taken
            taken, size, read = [], 0, 0
        taken.append(each)
        size += each.weight
        read += each.file.size
    if taken:
        yield taken


def _recut(files: Sequence[Candidate], target: int, growth: float) -> Iterator[FileGroup]:
    """Group files of several values, in ascending order: small ones that overlap, and big ones worth being divided."""
    small = [each for each in files if _is_small(each, target)]
    big = [each for each in files if not _is_small(each, target)]
    chunks = [chunk for level in _levels(small, growth) for chunk in _chunks(level, CUT_TARGETS_MAX * target)]
    for tier in chunks:
        for overlapping in _components(tier):
            group = _as_group(overlapping, target)
            fewer = group.expected < len(overlapping)
            if fewer or _divisible(overlapping, target) or any(each.thinned for each in overlapping):
                yield group
    for overlapping in _components(big):
        for chunk in _chunks(overlapping, CUT_TARGETS_MAX * target):
            if _divisible(chunk, target) or max(_covering(chunk, [1] * len(chunk))) > DEPTH_MAX:
                yield _as_group(chunk, target)


def _levels(files: Sequence[Candidate], growth: float) -> Iterator[list[Candidate]]:
    """Divide files, in ascending order, where those of the next magnitude are too much to be written again with them.

    One small file over all keys overlaps every bigger one: each of them may be small enough to join it, but not all.
    """
    taken: list[Candidate] = []
    for _, same in groupby(files, lambda each: int(log(each.weight, GROWTH_MAX))):
        level = list(same)
        if taken and _total(level) > growth * _total(taken):
            yield taken
            taken = []
        taken += level
    if taken:
        yield taken


def _total(files: Iterable[Candidate]) -> int:
    return sum(each.weight for each in files)


def _components(files: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """Yield sets of files that overlap, directly or through others, along the order of keys."""
    together: list[Candidate] = []
    end: Key = ()
    for each in sorted(files, key=lambda each: (each.span.low, each.span.high, each.file.path)):
        if together and each.span.low > end:
            yield together
            together = []
        end = max(end, each.span.high) if together else each.span.high
        together.append(each)
    if together:
        yield together


def _divisible(files: Sequence[Candidate], target: int) -> bool:
    """Whether a value must be among those of some files that has enough rows for files of its own."""
    values, weight = keys_within(hull(each.span for each in files)), _total(files)
    return values is not None and weight > target * OVER_SHARE and weight >= values * target * SMALL_SHARE


def _as_group(files: Sequence[Candidate], target: int) -> FileGroup:
    """Return a group with its expected number of files, as if each file's rows were spread evenly over its span."""
    widths = _widths(files)
    ends = list(accumulate(widths, initial=0))
    weights = [each.weight for each in files]
    rates = [weight / (ends[end] - ends[start]) for weight, (start, end) in zip(weights, _places(files), strict=True)]
    covering = zip(widths, _covering(files, rates), _covering(files, weights), strict=True)
    pieces = [(rate * width, limit) for width, rate, limit in covering if width]
    ranges = cut_ranges([size for size, _ in pieces], [limit for _, limit in pieces], target)
    return FileGroup(tuple(files), cut=True, expected=len(ranges))


def _borders(files: Sequence[Candidate]) -> list[tuple[Key, bool]]:
    """Return where spans begin, before a key, and end, after one (then True), in order."""
    return sorted({border for each in files for border in ((each.span.low, False), (each.span.high, True))})


def _places(files: Sequence[Candidate]) -> list[tuple[int, int]]:
    """Return the pieces of the keys that each file covers: between two borders, the same files have the keys."""
    numbers = {border: number for number, border in enumerate(_borders(files))}
    return [(numbers[each.span.low, False], numbers[each.span.high, True]) for each in files]


def _widths(files: Sequence[Candidate]) -> list[int]:
    """Return how many keys each piece may have; where that is not known 1, or 0 if no span begins or ends in it."""
    widths = []
    for (low, after_low), (high, after_high) in pairwise(_borders(files)):
        keys = keys_within(Span(low, high))
        widths.append(int(not (after_low and not after_high)) if keys is None else keys - after_low - (not after_high))
    return widths


def _covering(files: Sequence[Candidate], amounts: Sequence[float]) -> list[float]:
    """Return for each piece the sum of the amounts of the files that cover it."""
    places = _places(files)
    changes = [0.0] * (max(end for _, end in places) + 1)
    for (start, end), amount in zip(places, amounts, strict=True):
        changes[start] += amount
        changes[end] -= amount
    return list(accumulate(changes))[:-1]


def cut_group(group: FileGroup, keys: Sequence[KeyedRows], target: int) -> list[tuple[int, Span]]:
    """Return how many of a group's rows go to which span, in order; `keys` are in order too."""
    rows = sum(each.rows for each in keys)
    if group.joined:
        return [(rows, Span(keys[0].key, keys[-1].key))] if keys else []
    sizes = [each.rows * group.weight / rows for each in keys]
    limits, between = _read_before(group.files, [each.key for each in keys])
    return [
        (sum(each.rows for each in keys[at.start : at.stop]), Span(keys[at.start].key, keys[at.stop - 1].key))
        for at in cut_ranges(sizes, limits, target, between)
    ]


def _read_before(files: Sequence[Candidate], keys: Sequence[Key]) -> tuple[list[float], list[float]]:
    """Return the bytes of the files that may hold each key, and of those that may hold one between it and the last.

    Where no key can be between the two, there is no limit.
    """
    at_key, between = [0.0] * (len(keys) + 1), [0.0] * (len(keys) + 1)
    for each in files:
        first, end = bisect_left(keys, each.span.low), bisect_right(keys, each.span.high)
        for changes, start in ((at_key, first), (between, first + 1)):
            if start < end:
                changes[start] += each.weight
                changes[end] -= each.weight
    neighbours = [True, *((keys_within(Span(*pair)) or 2) == 2 for pair in pairwise(keys))]
    limits = zip(neighbours, accumulate(between), strict=False)
    return list(accumulate(at_key))[:-1], [inf if near else limit for near, limit in limits]


def limited(groups: Sequence[FileGroup], max_files: int | None, max_bytes: int | None) -> list[FileGroup]:
    """Return the first groups within a number of files and of bytes, the last of them with fewer files if need be."""
    kept: list[FileGroup] = []
    files, size = max_files, max_bytes
    for group in groups:
        taken: list[Candidate] = []
        for each in group.files:
            if (files is not None and len(taken) >= files) or (
                size is not None and sum(other.file.size for other in taken) + each.file.size > size
            ):
                break
            taken.append(each)
        if len(taken) < len(group.files):
            if group.cut or group.joined or group.divided:  # a part of it might not be worth it
                continue
            return [*kept, FileGroup(tuple(taken))] if len(taken) > 1 else kept
        kept.append(group)
        files = None if files is None else files - len(taken)
        size = None if size is None else size - group.size
    return kept


def due(groups: Sequence[FileGroup]) -> list[FileGroup]:
    """Return the groups that are worth rewriting now.

    Groups with many deleted rows, and groups whose rows are cut along a curve, always are. All others wait until they
    save enough files.
    """
    kept = [(group, len(group.files) - group.expected) for group in groups]
    enough = sum(saved for _, saved in kept) >= DUE_FILES
    return [
        group
        for group, saved in kept
        if saved <= 0 or (enough and saved >= DUE_GROUP_FILES) or any(each.thinned for each in group.files)
    ]


ORDERS = ("smallest", "oldest", "newest")


def ordered(groups: Sequence[FileGroup], order: str) -> list[FileGroup]:
    """Return groups in an order: `smallest`, `oldest` or `newest` first, by when their first file was written."""
    if order == "smallest":
        return list(groups)
    oldest_first = sorted(groups, key=lambda group: min(each.file.modification_time for each in group.files))
    return oldest_first if order == "oldest" else oldest_first[::-1]
