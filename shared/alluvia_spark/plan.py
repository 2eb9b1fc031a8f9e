"""Which task writes which rows: big partitions are spread over many tasks, small ones share one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

BUCKET_BYTES_MAX = 256 << 20
BUCKET_BYTES_MIN = 16 << 20
WAVES = 2


class Group(NamedTuple):
    """Rows that belong to one partition (by its folder) of one of the job's tables (by its number)."""

    table: int
    folder: str


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


def plan_shares(sizes: Mapping[Group, int], task_bytes: int) -> Plan:
    """Give groups tasks by their size in bytes; neighbours that are small share a task."""
    shares: dict[Group, Share] = {}
    tasks = 0
    open_bytes: int | None = None
    for group, size in sorted(sizes.items()):
        if size > task_bytes:
            count = round(size / task_bytes)  # a little too much for one task is not worth two files
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


def spread_tables(groups: Iterable[Group]) -> frozenset[int]:
    """Return the tables that have rows in more than one partition: there, equal event ids need not meet in a task."""
    seen: set[int] = set()
    twice: set[int] = set()
    for group in groups:
        (twice if group.table in seen else seen).add(group.table)
    return frozenset(twice)
