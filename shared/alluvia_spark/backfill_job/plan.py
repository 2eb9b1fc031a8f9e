"""Which rows share files, and which task writes them: big partitions have many tasks, small ones share one. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from alluvia.delta.partitioning.partition import PartitionRows, least_bytes, partitions
from alluvia.delta.partitioning.spec import PartitionSpec
from alluvia.delta.partitioning.transforms import Key

BUCKET_BYTES_MAX = 256 << 20
FILE_BYTES_MAX = 512 << 20
"""The most bytes of Arrow data that a task has in memory, however big the files of a table are to be."""
BUCKET_BYTES_MIN = 16 << 20
WAVES = 2


class Group(NamedTuple):
    """Rows that share files: of one partition (by its folder) of one of the job's tables (by its number)."""

    table: int
    folder: str


class Weight(NamedTuple):
    """What rows amount to: their number, their bytes of Arrow data, and those of Parquet as samples have it."""

    rows: int
    size: int
    packed: int

    def plus(self, other: Weight) -> Weight:
        """Return both together."""
        return Weight(self.rows + other.rows, self.size + other.size, self.packed + other.packed)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where rows of a table belong: by values of the identity columns, the highest key of each group, ascending."""

    groups: Mapping[tuple[str | None, ...], tuple[Sequence[Key], Sequence[Group]]]

    def places(self, parts: Iterable[PartitionRows]) -> Iterator[tuple[Group, int, int]]:
        """Yield which group some rows, described in their order, belong to: the group, and from which row to which."""
        start = end = 0
        last: Group | None = None
        for part in parts:
            highs, groups = self.groups[part.values]
            group = groups[min(bisect_left(highs, part.key), len(groups) - 1)]
            if last is not None and group != last:
                yield last, start, end
                start = end
            last, end = group, end + part.rows
        if last is not None:
            yield last, start, end


def plan_layout(
    table: int, spec: PartitionSpec, weights: Mapping[tuple[tuple[str | None, ...], Key], Weight], file_size: int
) -> tuple[Layout, dict[Group, int], int]:
    """Cut a table's rows into groups that share files, by the weights of their partition values.

    Returns the layout, the bytes of Arrow data of each group, and how many of them make a file of `file_size` bytes.
    """
    ordered = sorted(weights, key=lambda each: ([(text is None, text or "") for text in each[0]], each[1]))
    total = Weight(0, 0, 0)
    for weight in weights.values():
        total = total.plus(weight)
    row_bytes = total.size / max(1, total.rows)
    file_bytes = int(file_size * total.size / max(1, total.packed))
    parts = [PartitionRows(values, key, weights[values, key].rows) for values, key in ordered]
    groups: dict[tuple[str | None, ...], tuple[list[Key], list[Group]]] = {}
    sizes: dict[Group, int] = {}
    at = done = 0
    for partition, count in partitions(parts, spec, row_bytes, least_bytes(parts, row_bytes, file_bytes, apart=True)):
        highs, members = groups.setdefault(parts[at].values, ([], []))
        group = Group(table, partition.folder)
        highs.append(partition.span.high)
        members.append(group)
        sizes[group], end = 0, done + count
        while done < end:
            sizes[group] += weights[ordered[at]].size
            done += parts[at].rows
            at += 1
    return Layout(groups), sizes, file_bytes


@dataclass(frozen=True, slots=True)
class Share:
    """The tasks of a group: `count` of them from `first` on. A row's task among them follows from its event id."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A share for each group, of `tasks` tasks."""

    shares: Mapping[Group, Share]
    tasks: int


def bucket_bytes(total_bytes: int, parallelism: int) -> int:
    """Return how many bytes of Arrow data a task should write: enough tasks for all cores, but bounded memory."""
    return min(BUCKET_BYTES_MAX, max(BUCKET_BYTES_MIN, -(-total_bytes // (parallelism * WAVES))))


def plan_shares(sizes: Mapping[Group, int], task_bytes: int, file_bytes: int = 0) -> Plan:
    """Give groups tasks by their size in bytes; neighbours that are small share a task.

    A group has several tasks only if each of them can fill a file, of `file_bytes` in memory.
    """
    alone_bytes = max(task_bytes, min(file_bytes, FILE_BYTES_MAX))
    shares: dict[Group, Share] = {}
    tasks = 0
    open_bytes: int | None = None
    for group, size in sorted(sizes.items()):
        if size > task_bytes:
            count = max(1, round(size / alone_bytes))  # a little too much for one task is not worth two files
            shares[group] = Share(tasks, count)
            tasks += count
            open_bytes = None
            continue
        if open_bytes is None or open_bytes + size > task_bytes:
            tasks += 1
            open_bytes = 0
        shares[group] = Share(tasks - 1, 1)
        open_bytes += size
    return Plan(shares, tasks)
